//go:build linux

package room

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// The control group of a sandbox also counts the threads of gVisor: a fixed number, and some more
// for each process or thread in gVisor.
const (
	gvisorThreads   = 128
	threadsOfGVisor = 4
)

// showProgram adds the program for gVisor to files, as a detached mount. If only a process of the
// sandbox can make mounts, it returns a path.
func (r *Room) showProgram(files *wire.Files) (path string, err error) {
	if !r.ranged() {
		return r.copiedBinary()
	}
	fd, err := unix.OpenTree(int(r.binary.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return "", fmt.Errorf("clone the mount of the program: %w", err)
	}
	files.Add(wire.FileProgram, os.NewFile(uintptr(fd), "program"))
	return "", nil
}

// copiedBinary returns the path of a copy of the binary, because the original path may lead to
// another file by now.
func (r *Room) copiedBinary() (string, error) {
	r.copying.Lock()
	defer r.copying.Unlock()
	name := filepath.Join(r.options.Dir, "program")
	if _, err := os.Stat(name); err == nil {
		return name, nil
	}
	temporary, err := os.CreateTemp(r.options.Dir, "program-*")
	if err != nil {
		return "", err
	}
	defer temporary.Close()
	info, err := r.binary.Stat()
	if err != nil {
		return "", err
	}
	if _, err := io.Copy(temporary, io.NewSectionReader(r.binary, 0, info.Size())); err != nil {
		return "", fmt.Errorf("copy the program: %w", err)
	}
	if err := temporary.Chmod(0o555); err != nil {
		return "", err
	}
	return name, os.Rename(temporary.Name(), name)
}
