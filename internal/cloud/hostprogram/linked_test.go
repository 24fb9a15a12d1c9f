package hostprogram

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestIsLinked checks that only a program that names a loader counts as dynamically linked.
func TestIsLinked(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		program string
		want    bool
	}{
		"a static program":    {elfFile(t, elf.PT_LOAD, elf.PT_NOTE), false},
		"a linked program":    {elfFile(t, elf.PT_LOAD, elf.PT_INTERP), true},
		"no segments":         {elfFile(t), false},
		"a script":            {"#!/bin/sh\n", false},
		"a part of a program": {elfFile(t, elf.PT_INTERP)[:70], false},
		"nothing":             {"", false},
	} {
		if got := IsLinked(strings.NewReader(tt.program)); got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}

// elfFile returns a program for Linux with empty segments of these types.
func elfFile(t *testing.T, segments ...elf.ProgType) string {
	t.Helper()
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: uint16(len(segments)),
	}
	var file bytes.Buffer
	must.Do(t, binary.Write(&file, binary.LittleEndian, header))
	for _, segment := range segments {
		must.Do(t, binary.Write(&file, binary.LittleEndian, elf.Prog64{Type: uint32(segment)}))
	}
	return file.String()
}
