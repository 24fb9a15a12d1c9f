package hostprogram

import (
	"debug/elf"
	"io"
	"slices"
)

// IsLinked reports whether a program for Linux is dynamically linked: it needs a loader
// to start. A file that is no program is found out when it is started.
func IsLinked(program io.ReaderAt) bool {
	f, err := elf.NewFile(program)
	return err == nil && slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}
