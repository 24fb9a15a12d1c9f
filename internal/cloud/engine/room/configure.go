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
	for name, open := range map[wire.FileName]func() (*os.File, error){wire.FileOOMKills: s.group.OpenOOMKills, wire.FileMemoryUse: s.group.OpenMemoryUse} {
		if f, err := open(); err != nil {
			return fmt.Errorf("limit: %w", err)
		} else if f != nil {
			files.Add(name, f)
		}
	}
	if s.root == nil {
		if err := s.name(); err != nil {
			return err
		}
	}
	if s.room.runsc != nil && as == wire.RoleEnvd {
		if s.options.Memory != "" {
			memory, err := os.Open(s.options.Memory)
			if err != nil {
				return err
			}
			files.Add(wire.FileMemory, memory)
		}
		runsc, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", s.room.runsc.Fd())) // closed with the others
		if err != nil {
			return err
		}
		files.Add(wire.FileRunsc, runsc)
	}
	if err := s.envd.Assign(ctx, as, s.envdSpec(), &files); err != nil {
		return s.explain(ctx, "configure", err)
	}
	if err := s.envd.AwaitReady(ctx, s.bootTimeout()); err != nil {
		return s.explain(ctx, "start envd", err)
	}
	return nil
}

// name makes the room set the hostname.
func (s *Sandbox) name() error {
	if err := s.room.control.Send(wire.Message{Kind: wire.KindName, ID: s.number, Host: s.options.ID}); err != nil {
		return fmt.Errorf("ask the room: %w", err)
	}
	select {
	case err := <-s.named:
		return err
	case <-s.exited:
		return s.causeOfDeath()
	}
}

// rlimits returns the limits of every process of the sandbox.
func (s *Sandbox) rlimits() ([]wire.Rlimit, error) {
	processes := s.limits.MaxProcesses
	if s.room.runsc != nil {
		processes = min(processes, gvisorProcesses)
	}
	files, err := openFiles(processes)
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
	if s.room.runsc != nil {
		return limits, checkLimits(limits) // the remaining limits would count the memory and the threads of gVisor itself
	}
	if s.room.groups.How("memory") == "" {
		limits = append(limits, wire.Rlimit{unix.RLIMIT_DATA, uint64(s.limits.MemoryBytes) + s.room.options.ReservedBytes})
	}
	if most, limited := s.processLimit(); limited {
		var own unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NPROC, &own); err != nil {
			return nil, os.NewSyscallError("getrlimit", err)
		}
		limits = append(limits, wire.Rlimit{unix.RLIMIT_NPROC, min(most, own.Max)})
	}
	return limits, checkLimits(limits)
}

// memoryFile returns data as a sealed file: no process that gets it can change it.
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
