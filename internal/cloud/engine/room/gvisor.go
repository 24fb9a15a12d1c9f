//go:build linux

package room

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// The control group of a sandbox also counts the threads of gVisor: a fixed number, and some more
// for each process or thread in gVisor.
const (
	gvisorThreads   = 128
	threadsOfGVisor = 4
)

// programMount returns the program for gVisor as a detached mount. If only a process of the
// sandbox can make mounts, it returns a path.
func (r *Room) programMount() (path string, mounts []*os.File, err error) {
	if !r.ranged() {
		path, err = r.copiedBinary()
		return path, nil, err
	}
	fd, err := unix.OpenTree(int(r.binary.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return "", nil, fmt.Errorf("clone the mount of the program: %w", err)
	}
	return "", []*os.File{os.NewFile(uintptr(fd), "program")}, nil
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
