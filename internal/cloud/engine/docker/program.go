package docker

import (
	"archive/tar"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
)

// program is the file of the first process of each container.
type program struct {
	file   *os.File
	info   os.FileInfo
	path   string // where the file is; "": it may have been replaced
	shared bool   // every user may execute it where it is
}

const staticRemedy = "build it with CGO_ENABLED=0, or name a static e2bctl with local.WithBinary(path)"

// openProgram opens the program, or this one, which must run in any Linux container of the
// architecture.
func openProgram(path, architecture string) (*program, error) {
	open := path
	if path == "" {
		own, err := os.Executable()
		if err != nil {
			return nil, err
		}
		path, open = own, own
		if runtime.GOOS == "linux" {
			open = "/proc/self/exe" // works even if the file was replaced or removed in the meantime
		}
	}
	f, err := os.Open(open)
	if err != nil {
		return nil, fmt.Errorf("the program for containers: %w", err)
	}
	p := &program{file: f, path: path}
	if err := p.check(architecture); err != nil {
		f.Close()
		return nil, fmt.Errorf("the program for containers, %s: %w", path, err)
	}
	return p, nil
}

func (p *program) check(architecture string) error {
	var err error
	if p.info, err = p.file.Stat(); err != nil {
		return err
	}
	p.shared = p.info.Mode()&0o005 == 0o005
	f, err := elf.NewFile(p.file)
	if err != nil {
		return fmt.Errorf("it is no program of Linux, and containers run nothing else: name one, e2bctl of the same version, with local.WithBinary(path): %w", err)
	}
	if slices.ContainsFunc(f.Progs, func(s *elf.Prog) bool { return s.Type == elf.PT_INTERP }) {
		return errors.New("it is linked to libraries that a container may not have: " + staticRemedy)
	}
	machines := map[elf.Machine]string{elf.EM_X86_64: "x86_64 amd64", elf.EM_AARCH64: "aarch64 arm64"}
	if architecture != "" && !slices.Contains(strings.Fields(machines[f.Machine]), architecture) {
		return fmt.Errorf("it is for %v and the daemon runs %s: name another one with local.WithBinary(path)", f.Machine, architecture)
	}
	return nil
}

// current reports whether the path still leads to the file.
func (p *program) current() bool {
	info, err := os.Stat(p.path)
	return err == nil && os.SameFile(info, p.info)
}

// archive writes a tar with the program for the root directory of a container.
func (p *program) archive(w io.Writer) error {
	archive := tar.NewWriter(w)
	header := tar.Header{Typeflag: tar.TypeReg, Name: guest.Program[1:], Size: p.info.Size(), Mode: 0o555, ModTime: p.info.ModTime()}
	if err := archive.WriteHeader(&header); err != nil {
		return err
	}
	if _, err := io.Copy(archive, io.NewSectionReader(p.file, 0, p.info.Size())); err != nil {
		return err
	}
	return archive.Close()
}

// Close closes the file.
func (p *program) Close() error { return p.file.Close() }
