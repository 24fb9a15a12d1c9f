//go:build linux

package runtime

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// This file is the rungs without namespaces: the agent and its processes live
// among those of the host, restricted or not, in a directory of their own.

// place is where a sandbox without namespaces lives; "" where it has them.
type place struct {
	Dir        string `json:"dir,omitempty"` // holds home and tmp
	Restricted bool   `json:"restricted,omitempty"`
}

func (p place) home() string { return filepath.Join(p.Dir, "home", "user") }
func (p place) temp() string { return filepath.Join(p.Dir, "tmp") }
func (p place) run() string  { return filepath.Join(p.Dir, "run") }

// planPlaces is the directory that holds those of sandboxes. The ids of a server
// that is root reach nothing below its home, where the instance directory is.
func planPlaces(instance string) string {
	if os.Geteuid() != 0 {
		return filepath.Join(instance, "sandboxes")
	}
	return filepath.Join(os.TempDir(), "e2bctl-"+rand.Text())
}

// makePlaces makes it. Others may go through it and see nothing.
func (r *Room) makePlaces() error {
	if r.rung == Full {
		return nil
	}
	if err := os.Mkdir(r.places, 0o711); err != nil && !errors.Is(err, fs.ErrExist) { // of the rung tried before
		return err
	}
	return os.Chmod(r.places, 0o711)
}

// makePlace makes the directory of a sandbox, for the id it will run as.
func (s *Sandbox) makePlace() (place, error) {
	p := place{Dir: filepath.Join(s.room.places, strconv.FormatUint(s.number, 10)), Restricted: s.room.rung == Restricted}
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

// placeID is the host's id that a restricted sandbox of a server that is root
// runs as; otherwise it runs as the server does.
func (r *Room) placeID(slot uint32) (int, bool) {
	return idBase + firstID(slot), r.rung == Restricted && r.ids.ranged
}

// removePlace removes a directory of sandboxes, including directories whose mode keeps their owner out.
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

// enterPlace is the first stage in place: the same restrictions as far as they
// go without namespaces.
func enterPlace(c *control, spec *initSpec) error {
	runtime.LockOSThread()
	if err := os.Chdir(spec.Place.home()); err != nil {
		return err
	}
	if err := limit(spec.Limits); err != nil {
		return err
	}
	// The host's /etc/profile sets a PATH, and login shells read this after it.
	if err := os.WriteFile(".profile", []byte("export PATH="+shellQuote(spec.Path)+"\n"), 0o644); err != nil {
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
	return executeAgent(c, false, func() error { return applyLandlock(trees, spec.Place.Dir) })
}

// reachable divides directories into those that this process's id may enter and
// those it may not: what root keeps below its home is closed to the ids of its
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

// sweep kills what outlived its agent. Such processes are children of the room
// then, for it is their subreaper. Starts wait meanwhile, so that every child
// that is not a running agent is such a process.
func (r *roomProcess) sweep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	agents := make(map[int]bool)
	for _, p := range r.running {
		agents[p.Pid] = true
	}
	for {
		found := false
		for _, pid := range childrenOf(os.Getpid()) {
			if agents[pid] {
				continue
			}
			found = true
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
			var status unix.WaitStatus
			for {
				if _, err := unix.Wait4(pid, &status, 0, nil); !errors.Is(err, unix.EINTR) {
					break
				}
			}
		}
		if !found {
			return
		}
	}
}

// childrenOf lists the children of a process.
func childrenOf(parent int) []int {
	var children []int
	names, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is good
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		// The name of the program is in parentheses and may hold anything.
		fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
		if len(fields) < 2 || fields[1] != strconv.Itoa(parent) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			children = append(children, pid)
		}
	}
	return children
}

// placeAttr is how the room starts a sandbox in place.
func placeAttr(m message) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if m.UID != 0 {
		attr.Credential = &syscall.Credential{Uid: m.UID, Gid: m.UID}
	}
	return attr
}

// becomeReaper makes orphans below this process its children.
func becomeReaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	return nil
}
