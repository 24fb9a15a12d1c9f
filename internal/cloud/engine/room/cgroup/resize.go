//go:build linux

package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// SetMemory changes the memory limit of the group from one number of bytes to another. No process is
// killed: if the group uses more than the new limit, even without its page cache, the limit stays,
// and the error is an [*engine.InUseError]. The processes of the group must be stopped.
func (s *Group) SetMemory(from, to int64) error {
	if s.Memory.Version == 1 {
		return s.setMemory1(from, to)
	}
	if to >= from {
		return s.Memory.write(settings("memory", 2, engine.Limits{MemoryBytes: to}))
	}
	// A memory.max below the use would kill processes. memory.high only frees page cache.
	high := func(value string) error { return s.Memory.write([]setting{{"memory.high", value, false}}) }
	if err := high(strconv.FormatInt(to, 10)); err != nil {
		return err
	}
	used, err := ReadNumber(filepath.Join(s.Memory.Dir, "memory.current"))
	switch {
	case err != nil:
	case used > to:
		err = &engine.InUseError{Resource: "memory", Used: used, Most: to}
	default:
		err = s.Memory.write(settings("memory", 2, engine.Limits{MemoryBytes: to}))
	}
	return errors.Join(err, high("max"))
}

// setMemory1 is SetMemory for version 1, where the kernel refuses a limit below the use. It also
// refuses a limit of the memory above that of memory and swap together.
func (s *Group) setMemory1(from, to int64) error {
	order := settings("memory", 1, engine.Limits{MemoryBytes: to})
	back := settings("memory", 1, engine.Limits{MemoryBytes: from})
	if to > from {
		slices.Reverse(order)
	} else {
		slices.Reverse(back)
	}
	err := s.Memory.write(order)
	if err == nil {
		return nil
	}
	undone := s.Memory.write(back)
	if !errors.Is(err, unix.EBUSY) {
		return errors.Join(err, undone)
	}
	used, unread := ReadNumber(filepath.Join(s.Memory.Dir, "memory.usage_in_bytes"))
	return errors.Join(&engine.InUseError{Resource: "memory", Used: used, Most: to}, unread, undone)
}

// SetCPUs changes the limit of the group's processor time.
func (s *Group) SetCPUs(n float64) error {
	return s.CPU.write(settings("cpu", s.CPU.Version, engine.Limits{CPUs: n}))
}

// write writes settings to the files of a group.
func (h Hierarchy) write(all []setting) error {
	for _, set := range all {
		err := put(filepath.Join(h.Dir, set.file), set.value)
		if err != nil && (!set.optional || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	return nil
}

// put writes a value to a file of a group. It does not create the file, because the kernel would refuse
// that with an error that does not match [fs.ErrNotExist].
func put(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(value)
	return err
}
