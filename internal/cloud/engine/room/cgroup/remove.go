//go:build linux

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Remove ends the processes in the group, and then removes the group.
func (s *Group) Remove() error {
	var dirs []string
	for _, h := range s.Dirs {
		dirs = append(dirs, h.Dir)
	}
	if f := s.freezer; f != nil && f.made && f.home != "" {
		dirs = append(dirs, f.dir)
	}
	return Remove(context.Background(), dirs)
}

// StopForks prevents the processes of a group from starting other processes. It is called before the
// group is removed.
func (s *Group) StopForks() {
	for _, h := range s.Dirs {
		stopForks(h.Dir)
	}
}

// stopForks ends the processes in a group and in the groups below it, or prevents them from starting
// other processes, as far as the group's controllers and the kernel support this. The reason is that
// processes that start new processes all the time cannot be killed one by one. The freezer of
// version 1 would stop such processes too, but is not used: processes frozen by it cannot be killed,
// and would remain if this process ended.
func stopForks(dir string) {
	for _, set := range []setting{{file: "cgroup.kill", value: "1"}, {file: "pids.max", value: "0"}, {file: "cgroup.freeze", value: "1"}} {
		if put(filepath.Join(dir, set.file), set.value) == nil { // a group may lack the file
			return
		}
	}
}

// Remove removes the control groups dirs. The same process may be in several of these groups.
func Remove(ctx context.Context, dirs []string) error {
	for _, dir := range dirs {
		stopForks(dir)
	}
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, removeOne(ctx, dir))
	}
	return errors.Join(errs...)
}

// removeOne removes a group and the groups below it. It kills the processes in these groups and waits
// until they have ended, because the kernel does not remove a group with a process that is still
// ending.
func removeOne(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeOne(ctx, filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("remove group %s: %w", dir, err)
		}
		procs, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for _, field := range strings.Fields(string(procs)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
				_ = unix.Kill(pid, unix.SIGKILL) // it may have ended already
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove group %s: %w", dir, err)
		case <-tick.C:
		}
	}
}
