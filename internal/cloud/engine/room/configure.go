//go:build linux

package room

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// configure names the sandbox and starts its envd with the configuration text.
func (s *Sandbox) configure(ctx context.Context, text []byte, as wire.Role) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.bootTimeout(), errBootTimeout)
	defer cancel()
	config, err := memoryFile(text)
	if err != nil {
		return err
	}
	var files wire.Files
	defer files.Close()
	files.Add(wire.FileConfig, config)
	for name, open := range map[wire.FileName]func() (*os.File, error){wire.FileOOMKills: s.share.group.OpenOOMKills, wire.FileMemoryUse: s.share.group.OpenMemoryUse} {
		if f, err := open(); err != nil {
			return fmt.Errorf("limit: %w", err)
		} else if f != nil {
			files.Add(name, f)
		}
	}
	spec := s.envdSpec()
	if err := s.room.runner.configure(s, as, &spec, &files); err != nil {
		return err
	}
	if err := s.envd.Assign(ctx, as, spec, &files); err != nil {
		return s.explain(ctx, "configure", err)
	}
	if err := s.envd.AwaitReady(ctx, s.bootTimeout()); err != nil {
		return s.explain(ctx, "start envd", err)
	}
	return nil
}

// name makes the room set the hostname.
func (s *Sandbox) name() error {
	if err := s.room.process.control.Send(wire.Message{Kind: wire.KindName, ID: s.number, Host: s.options.ID}); err != nil {
		return fmt.Errorf("ask the room: %w", err)
	}
	select {
	case err := <-s.process.told:
		return err
	case <-s.process.exited:
		return s.causeOfDeath()
	}
}

// rlimits returns the resource limits (setrlimit) of each process of the sandbox.
func (s *Sandbox) rlimits() ([]wire.Rlimit, error) {
	files, err := openFiles(s.room.runner.openers(s.share.limits.MaxProcesses))
	if err != nil {
		return nil, err
	}
	limits, err := sandboxLimits()
	if err != nil {
		return nil, err
	}
	core, err := coreLimit()
	if err != nil {
		return nil, err
	}
	limits = append(limits,
		wire.Rlimit{unix.RLIMIT_CORE, core},
		wire.Rlimit{unix.RLIMIT_NOFILE, files},
		// The server may have been given the privilege for these.
		wire.Rlimit{unix.RLIMIT_RTPRIO, 0},
		wire.Rlimit{unix.RLIMIT_NICE, 0},
	)
	own, err := s.room.runner.ownLimits(s)
	if err != nil {
		return nil, err
	}
	limits = append(limits, own...)
	return limits, checkLimits(limits)
}

// memoryFile returns a sealed file in memory that contains data. No process that receives the file
// can change it.
func memoryFile(data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("config", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "config")
	_, err = f.Write(data)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
