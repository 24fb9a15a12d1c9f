//go:build linux

package room

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/landlock"
	"github.com/e2bctl/e2bctl/internal/shell"
)

// This file contains the isolation levels without namespaces: the agent and its
// processes live among those of the host, restricted or not, in a directory of
// their own.

// place is the root directory of a sandbox without namespaces; "" if it has
// namespaces.
type place struct {
	Dir        string `json:"dir,omitempty"` // contains home and tmp
	Restricted bool   `json:"restricted,omitempty"`
}

func (p place) home() string { return filepath.Join(p.Dir, "home", "user") }
func (p place) temp() string { return filepath.Join(p.Dir, "tmp") }
func (p place) run() string  { return filepath.Join(p.Dir, "run") }

// planPlaces returns the directory that contains the sandboxes' directories. The
// ids that a root server gives to sandboxes cannot reach anything below its home,
// where the instance directory is.
func planPlaces(instance string) string {
	if os.Geteuid() != 0 {
		return filepath.Join(instance, "sandboxes")
	}
	return filepath.Join(os.TempDir(), "e2bctl-"+rand.Text())
}

// makePlaces makes that directory. Others may go through it but not list it.
func (r *Room) makePlaces() error {
	if r.rung == engine.Full {
		return nil
	}
	if err := os.Mkdir(r.places, 0o711); err != nil && !errors.Is(err, fs.ErrExist) { // may exist from the level tried before
		return err
	}
	return os.Chmod(r.places, 0o711)
}

// makePlace makes the directory of a sandbox, for the id that it will run as. Its
// name cannot be guessed: where sandboxes share an id, one that knew the name could
// change the mode of the directory (Landlock does not check chmod).
func (s *Sandbox) makePlace() (place, error) {
	p := place{Dir: filepath.Join(s.room.places, rand.Text()), Restricted: s.room.rung == engine.Restricted}
	err := os.Mkdir(p.Dir, 0o700)
	for _, dir := range []string{p.home(), p.temp()} {
		err = errors.Join(err, os.MkdirAll(dir, 0o755))
	}
	if id, switched := s.room.placeID(s.slot); switched {
		for _, dir := range []string{p.home(), filepath.Dir(p.home()), p.temp(), p.Dir} {
			err = errors.Join(err, os.Chown(dir, id, id))
		}
	}
	return p, err
}

// placeID returns the host's id that a restricted sandbox runs as if the server is
// root; otherwise the sandbox runs as the server does.
func (r *Room) placeID(slot uint32) (int, bool) {
	return idBase + firstID(slot), r.rung == engine.Restricted && r.ids.ranged
}

// removePlace removes a directory of sandboxes, including directories whose mode
// locks out their owner.
func removePlace(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	walk := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return err
	})
	return errors.Join(walk, os.RemoveAll(dir))
}

// enterPlace is the first stage in place: it applies the same restrictions, as far
// as that is possible without namespaces.
func enterPlace(c *control, spec *initSpec) error {
	runtime.LockOSThread()
	// The room requested this when it started the process, but the kernel keeps the
	// setting per thread, and this is the thread that becomes the agent.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("end with the room: %w", err)
	}
	if err := os.Chdir(spec.Place.home()); err != nil {
		return err
	}
	if err := limit(spec.Limits); err != nil {
		return err
	}
	// The host's /etc/profile sets a PATH, and login shells read this after it.
	if err := os.WriteFile(".profile", []byte("export PATH="+shell.Quote(spec.Path)+"\n"), 0o644); err != nil {
		return err
	}
	trees, hidden := reachable(spec.Trees)
	if err := c.built(message{Kind: kindReady, Hidden: hidden}); err != nil {
		return err
	}
	if !spec.Place.Restricted {
		if err := c.export(controlFD); err != nil {
			return err
		}
		return execBinary()
	}
	return executeAgent(c, false, func() error { return restrictFiles(trees, spec.Place.Dir) })
}

// readableFiles are the files that programs read to start, if the sandbox has no
// file system of its own.
var readableFiles = []string{
	"/etc/passwd", "/etc/group", "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/os-release", "/etc/profile",
	"/etc/profile.d", "/etc/bash.bashrc", "/etc/inputrc", "/proc",
}

// restrictFiles restricts this thread and what it executes to the trees, a few
// files, devices without state, and dir.
func restrictFiles(trees []string, dir string) error {
	access := landlock.Access{Program: binaryFD, Own: dir, Execute: slices.Concat(trees, rootLinks), Read: slices.Clone(readableFiles)}
	for _, pattern := range copiedFiles {
		names, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		access.Read = append(access.Read, names...)
	}
	for _, name := range deviceNames {
		access.Devices = append(access.Devices, "/dev/"+name)
	}
	return landlock.Apply(access)
}

// reachable divides directories into those that this process's id may enter and
// those that it may not: what root keeps below its home is closed to the ids of its
// sandboxes.
func reachable(trees []string) (open, closed []string) {
	for _, path := range trees {
		if err := unix.Access(path, unix.R_OK|unix.X_OK); errors.Is(err, fs.ErrPermission) {
			closed = append(closed, path)
			continue
		}
		open = append(open, path)
	}
	return open, closed
}

// sweep ends processes that outlived their agent. They are then children of the
// room, which is their subreaper, and every child that is not an agent is one of
// them.
func (r *roomProcess) sweep() error {
	r.sweeping.Lock() // so that only one goroutine waits for them
	defer r.sweeping.Unlock()
	return endOrphans(r.orphans)
}

// orphans lists them. While an agent is being started it waits, because a starting
// agent is not an orphan.
func (r *roomProcess) orphans() ([]int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	agents := make(map[int]bool)
	for _, p := range r.running {
		agents[p.Pid] = true
	}
	children, err := childrenOf(os.Getpid())
	return slices.DeleteFunc(children, func(pid int) bool { return agents[pid] }), err
}

// placeAttr returns how the room starts a sandbox in place.
func placeAttr(m message) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if m.UID != 0 {
		attr.Credential = &syscall.Credential{Uid: m.UID, Gid: m.UID}
	}
	return attr
}
