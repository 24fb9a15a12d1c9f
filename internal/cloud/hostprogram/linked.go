package hostprogram

import (
	"debug/elf"
	"io"
	"slices"
)

// IsLinked reports whether a program of Linux needs another one to start, which loads its
// libraries. What is no program at all is found out when it is started.
func IsLinked(program io.ReaderAt) bool {
	f, err := elf.NewFile(program)
	return err == nil && slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}
