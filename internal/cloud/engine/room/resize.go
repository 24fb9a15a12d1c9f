//go:build linux

package room

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// Resize changes the processors, the memory and the disk of the held sandbox to those of l. If one of
// them cannot be changed, Resize puts the others back.
func (s *Sandbox) Resize(ctx context.Context, l engine.Limits) error {
	if err := s.resize(ctx, l.WithDefaults()); err != nil {
		return fmt.Errorf("room: resize sandbox %s: %w", s.options.ID, err)
	}
	return nil
}

func (s *Sandbox) resize(ctx context.Context, l engine.Limits) (err error) {
	end, err := s.pause.standstill.Turn(ctx) // until the call ends, the sandbox cannot be removed
	if err != nil {
		return err
	}
	defer end()
	promises := s.room.report.Promises
	if err := errors.Join(l.Check(), promises.Check(engine.Resizes)); err != nil {
		return err
	}
	was := s.share.limits
	var undo []func() error
	defer func() {
		if err == nil {
			return
		}
		for _, back := range slices.Backward(undo) {
			err = errors.Join(err, back())
		}
	}()
	for _, change := range []struct {
		feature   engine.Feature
		differs   bool
		set, back func() error
	}{
		{
			engine.DiskLimit, l.DiskBytes != was.DiskBytes,
			func() error { return s.setDisk(l.DiskBytes) }, func() error { return s.setDisk(was.DiskBytes) },
		},
		{
			engine.MemoryLimit, l.MemoryBytes != was.MemoryBytes,
			func() error { return s.setMemory(was.MemoryBytes, l.MemoryBytes) }, func() error { return s.setMemory(l.MemoryBytes, was.MemoryBytes) },
		},
		{
			engine.CPULimit, l.CPUs != was.CPUs,
			func() error { return s.setCPUs(was.CPUs, l.CPUs) }, func() error { return s.setCPUs(l.CPUs, was.CPUs) },
		},
	} {
		if !change.differs {
			continue
		}
		if err := promises.Check(change.feature); err != nil {
			return err
		}
		undo = append(undo, change.back) // a change that fails may have happened in part
		if err := change.set(); err != nil {
			return err
		}
	}
	s.share.resize(l)
	return nil
}

// setDisk changes the size of the file system.
func (s *Sandbox) setDisk(size int64) error {
	disk, ok := s.room.runner.disk(s)
	if !ok {
		return engine.ErrGone
	}
	used := int64(disk.Blocks-disk.Bfree) * disk.Bsize
	if used = max(used, int64(disk.Files-disk.Ffree)<<10); used > size { // each file counts as 1 KiB at least
		return &engine.InUseError{Resource: "disk", Used: used, Most: size}
	}
	return s.resizeInside(wire.ResizeSpec{Disk: size})
}

func (s *Sandbox) setMemory(from, to int64) error {
	err := s.share.group.SetMemory(from, to)
	if err == nil {
		err = s.resizeInside(wire.ResizeSpec{Memory: to})
	}
	return err
}

// setCPUs changes the limit of processor time, and the processors that the sandbox runs on. Programs
// that have chosen processors themselves keep them.
func (s *Sandbox) setCPUs(from, to float64) error {
	if err := s.share.group.SetCPUs(to); err != nil {
		return err
	}
	if math.Ceil(from) == math.Ceil(to) {
		return nil
	}
	old := s.share.cpus // only this function changes it
	taken := s.room.roster.swapProcessors(old, int(math.Ceil(to)))
	s.share.move(taken)
	s.kernels.endAhead() // it has counted the old processors
	if err := s.moveTo(taken, old); err != nil {
		return err
	}
	return s.resizeInside(wire.ResizeSpec{Processors: taken})
}

// moveTo makes those threads of the sandbox that run on exactly the processors old run on the
// processors given.
func (s *Sandbox) moveTo(given, old []int) error {
	if len(given) == 0 || len(old) == 0 {
		return nil // programs run on all processors of the machine
	}
	pids, err := s.processes()
	if err != nil {
		return err
	}
	before, after := setOf(old), setOf(given)
	for _, pid := range pids {
		threads, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
		if err != nil {
			continue // the process has ended
		}
		for _, thread := range threads {
			tid, err := strconv.Atoi(thread.Name())
			if err != nil {
				continue
			}
			var now unix.CPUSet
			if err := unix.SchedGetaffinity(tid, &now); err != nil || now != before {
				continue
			}
			if err := unix.SchedSetaffinity(tid, &after); err != nil && !errors.Is(err, unix.ESRCH) {
				return os.NewSyscallError("sched_setaffinity", err)
			}
		}
	}
	return nil
}

func setOf(processors []int) (set unix.CPUSet) {
	for _, cpu := range processors {
		set.Set(cpu)
	}
	return set
}

// resizeInside makes the room change resources that programs of the sandbox see. It does nothing for
// a sandbox without namespaces.
func (s *Sandbox) resizeInside(spec wire.ResizeSpec) error {
	if s.files.written == nil {
		return nil
	}
	var files wire.Files
	defer files.Close()
	files.Lend(wire.FileFiles, s.files.written)
	if err := s.room.process.control.SendFiles(wire.Message{Kind: wire.KindResize, ID: s.number, Spec: wire.Encode(spec)}, &files); err != nil {
		return fmt.Errorf("ask the room: %w", err)
	}
	select {
	case err := <-s.process.told:
		return err
	case <-s.process.exited:
		return engine.ErrGone
	}
}

// noResize returns the reason why the limits of running sandboxes cannot be changed; "" if they can
// be.
func (r *Room) noResize() string {
	for _, of := range []struct{ controller, limited string }{{"memory", "memory"}, {"cpu", "processor time"}} {
		if r.keeper.groups.How(of.controller) == "" {
			return fmt.Sprintf("no control group limits the %s: %s", of.limited, r.keeper.groups.Why[of.controller])
		}
	}
	return ""
}
