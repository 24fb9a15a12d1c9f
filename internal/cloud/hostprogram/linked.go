package hostprogram

import (
	"debug/elf"
	"io"
	"slices"
)

// IsLinked reports whether a program for Linux is dynamically linked, so that it needs a loader to
// start. For a file that is not a program, IsLinked returns false; the error then comes from the
// attempt to start the file.
func IsLinked(program io.ReaderAt) bool {
	f, err := elf.NewFile(program)
	return err == nil && slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}
