//go:build linux

package room

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// The control group of a sandbox also counts the threads of gVisor itself: gvisorThreads threads, and
// threadsOfGVisor more for each process or thread that runs in gVisor.
const (
	gvisorThreads   = 128
	threadsOfGVisor = 4
)

// gvisorProcesses is more than the number of processes of gVisor that open files of the
// machine. There are only a few such processes, and they keep the files of all programs in
// the sandbox open.
const gvisorProcesses = 64

// gvisor runs the programs of each sandbox in gVisor, whose processes run in the sandbox's
// namespaces.
type gvisor struct {
	namespaces
	copying sync.Mutex // locked while the binary is copied
}

func (g *gvisor) groupLimits(limits engine.Limits) engine.Limits {
	limits.MaxProcesses = limits.MaxProcesses*threadsOfGVisor + gvisorThreads
	return g.namespaces.groupLimits(limits)
}

func (*gvisor) openers(processes int) int { return min(processes, gvisorProcesses) }

// ownLimits returns no limits: they would count the memory and the threads of gVisor itself.
func (*gvisor) ownLimits(*Sandbox) ([]wire.Rlimit, error) { return nil, nil }

func (g *gvisor) build(spec *wire.InitSpec, files *wire.Files) (err error) {
	spec.GVisor = true
	spec.Program, err = g.showProgram(files)
	return err
}

// takeBuilt takes the sandbox's files only: gVisor has a /proc/meminfo of its own.
func (*gvisor) takeBuilt(s *Sandbox, files *wire.Files) (err error) {
	s.files.written, err = files.Take(wire.FileFiles)
	return err
}

// configure gives envd the program of gVisor, and the saved memory.
func (g *gvisor) configure(s *Sandbox, as wire.Role, spec *wire.EnvdSpec, files *wire.Files) error {
	spec.GVisor = true
	if err := g.namespaces.configure(s, as, spec, files); err != nil || as != wire.RoleEnvd {
		return err
	}
	if s.options.Memory != "" {
		memory, err := os.Open(s.options.Memory)
		if err != nil {
			return err
		}
		files.Add(wire.FileMemory, memory)
	}
	runsc, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", g.room.runsc.Fd())) // closed with the others
	if err != nil {
		return err
	}
	files.Add(wire.FileRunsc, runsc)
	return nil
}

func (*gvisor) takes(kind wire.Kind) bool {
	return kind == wire.KindStop || kind == wire.KindSaveMemory || kind == wire.KindGoOn
}

func (*gvisor) dialler(*Sandbox) func(context.Context, uint16) (*net.TCPConn, error) { return nil }

func (*gvisor) restores() bool { return true }

// killed returns true for any status: the kernel kills the process of gVisor, and envd ends after
// it.
func (*gvisor) killed(syscall.WaitStatus) bool { return true }

func (*gvisor) limitsReport(why map[string]string) (memory, processes string) {
	return "not enforced: " + why["memory"], "not enforced: " + why["pids"]
}

// showProgram adds the program for gVisor to files, as a detached mount. If only a process of the
// sandbox can make mounts, showProgram instead returns the path of a copy of the program.
func (g *gvisor) showProgram(files *wire.Files) (path string, err error) {
	if !g.room.ranged() {
		return g.copiedBinary()
	}
	fd, err := unix.OpenTree(int(g.room.keeper.binary.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return "", fmt.Errorf("clone the mount of the program: %w", err)
	}
	files.Add(wire.FileProgram, os.NewFile(uintptr(fd), "program"))
	return "", nil
}

// copiedBinary returns the path of a copy of the binary. A copy is necessary because the original
// path may now lead to another file.
func (g *gvisor) copiedBinary() (string, error) {
	g.copying.Lock()
	defer g.copying.Unlock()
	r := g.room
	name := filepath.Join(r.options.Dir, "program")
	if _, err := os.Stat(name); err == nil {
		return name, nil
	}
	temporary, err := os.CreateTemp(r.options.Dir, "program-*")
	if err != nil {
		return "", err
	}
	defer temporary.Close()
	info, err := r.keeper.binary.Stat()
	if err != nil {
		return "", err
	}
	if _, err := io.Copy(temporary, io.NewSectionReader(r.keeper.binary, 0, info.Size())); err != nil {
		return "", fmt.Errorf("copy the program: %w", err)
	}
	if err := temporary.Chmod(0o555); err != nil {
		return "", err
	}
	return name, os.Rename(temporary.Name(), name)
}
