//go:build linux

package room

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/halt"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/orphan"
)

// freezeTimeout bounds a freeze. A freeze takes some milliseconds, or longer if a process waits for a
// disk.
const freezeTimeout = 10 * time.Second

var errFreezeTimeout = fmt.Errorf("the processes had not all stopped within %v", freezeTimeout)

// Freeze stops every process of the sandbox until [Sandbox.Thaw], and cuts every connection into
// it and out of it. If it fails, or ctx ends, all processes continue.
func (s *Sandbox) Freeze(ctx context.Context) error { return s.frozen(s.pause.standstill.Freeze(ctx)) }

// Hold stops every process of the sandbox until [Sandbox.Thaw]. It does not cut the sandbox's
// connections; their data waits until the thaw. If Hold fails, or ctx ends, all processes continue.
func (s *Sandbox) Hold(ctx context.Context) error { return s.frozen(s.pause.standstill.Hold(ctx)) }

// frozen wraps the error of a freeze. It returns nil if err is nil.
func (s *Sandbox) frozen(err error) error {
	if err != nil {
		return fmt.Errorf("room: freeze sandbox %s: %w", s.options.ID, err)
	}
	return nil
}

// Thaw lets the processes of a frozen sandbox run again.
func (s *Sandbox) Thaw(ctx context.Context) error {
	if err := s.pause.standstill.Thaw(ctx); err != nil {
		return fmt.Errorf("room: thaw sandbox %s: %w", s.options.ID, err)
	}
	return nil
}

// stop forbids ordering new kernels, and stops all processes. It returns the function that undoes
// both.
func (s *Sandbox) stop(ctx context.Context) (resume func(context.Context) error, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, freezeTimeout, errFreezeTimeout)
	defer cancel()
	s.pause.holdKernels(ctx)
	thaw, err := s.room.runner.stopProcesses(ctx, s)
	if err != nil {
		s.pause.orderKernels()
		return nil, err
	}
	return func(context.Context) error {
		s.pause.orderKernels()
		return thaw()
	}, nil
}

// stopProcesses stops all processes of s, and returns the function that lets them run again.
func (direct) stopProcesses(ctx context.Context, s *Sandbox) (thaw func() error, err error) {
	if f := s.share.group.Freezer(); f != nil {
		if err = f.Freeze(ctx); err == nil {
			return f.Thaw, nil
		}
		if ctx.Err() != nil || s.life.err() != nil {
			return nil, err
		}
		s.room.options.Logger.WarnContext(ctx, "a sandbox is stopped by signals: its control group does not freeze", "sandbox", s.options.ID, "error", err)
	}
	envd, err := s.process.pid()
	if err != nil {
		return nil, err
	}
	all, err := s.members(envd)
	if err != nil {
		return nil, err
	}
	halted, err := halt.Stop(ctx, all, envd)
	if err != nil {
		return nil, err
	}
	return halted.Continue, nil
}

// members are the processes of a sandbox. They are the processes of the sandbox's control group, or
// else the descendants of its envd. envd adopts orphans.
type members struct {
	*Sandbox
	envd   int
	groups []byte // the content of envd's /proc/PID/cgroup
}

func (s *Sandbox) members(envd int) (m members, err error) {
	m = members{Sandbox: s, envd: envd}
	m.groups, err = groupsOf(envd)
	return m, err
}

func groupsOf(pid int) ([]byte, error) { return os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid)) }

func (m members) List() ([]int, error) {
	if pids, known, err := m.share.group.Processes(); known {
		return pids, err
	}
	all := []int{m.envd}
	for i := 0; i < len(all); i++ {
		children, err := orphan.ChildrenOf(all[i])
		if err != nil && i == 0 {
			return nil, err
		}
		all = append(all, children...) // none if the process has ended
	}
	return all, nil
}

func (m members) Has(pid int) bool {
	if groups, err := groupsOf(pid); err != nil || len(m.share.group.Dirs) > 0 && bytes.Equal(groups, m.groups) {
		return err == nil
	}
	// A process whose first thread has ended is found in its groups only by its other threads.
	if pids, known, err := m.share.group.Processes(); known {
		return err == nil && slices.Contains(pids, pid)
	}
	for pid != m.envd {
		parent, err := halt.Parent(pid)
		if err != nil || parent <= 1 {
			return false
		}
		pid = parent
	}
	return true
}

// Memory returns the bytes of memory in use that cannot be reclaimed, including files of the
// sandbox. If no control group counts these bytes, Memory returns the memory of the processes,
// without files. 0 means unknown.
func (s *Sandbox) Memory() int64 {
	f, err := s.share.group.OpenMemoryUse()
	if err != nil {
		return 0 // the sandbox has ended
	}
	if f != nil {
		defer f.Close()
		m, _ := cgroup.ReadMemory(f)
		return int64(m.Used())
	}
	pids, err := s.processes()
	if err != nil {
		return 0
	}
	var bytes uint64
	for _, pid := range pids {
		bytes += privateMemory(pid)
	}
	return int64(bytes)
}
