package hostprogram

import (
	"debug/elf"
	"io"
	"slices"
)

// IsLinked reports whether a program for Linux is dynamically linked, so that it needs a loader to
// start. It returns false for a file that is not a program. The attempt to start that file returns
// the error.
func IsLinked(program io.ReaderAt) bool {
	f, err := elf.NewFile(program)
	return err == nil && slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}
