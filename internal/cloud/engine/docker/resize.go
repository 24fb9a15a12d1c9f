package docker

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// noResize returns the reason why the limits of running containers cannot be changed; "" if they can
// be.
func (e *Engine) noResize() string {
	return unless(e.info.MemoryLimit && e.info.CPUCfsQuota, "the daemon has no control groups for memory and processors")
}

// Resize changes the processors and the memory of the held container to those of l. The daemon cannot
// change the disk.
func (s *sandbox) Resize(ctx context.Context, l engine.Limits) error {
	if err := s.resize(ctx, s.engine.limits(engine.SandboxOptions{Limits: l})); err != nil {
		return fmt.Errorf("docker: resize sandbox %s: %w", s.id, err)
	}
	return nil
}

func (s *sandbox) resize(ctx context.Context, l engine.Limits) error {
	end, err := s.standstill.Turn(ctx)
	if err != nil {
		return err
	}
	defer end()
	was := s.limits
	if err := errors.Join(l.Check(), s.engine.promises().Check(engine.Resizes)); err != nil {
		return err
	}
	if l.DiskBytes != was.DiskBytes {
		return engine.Lackf(engine.DiskLimit, "the disk of a container keeps the size of its start")
	}
	if used := s.Memory(); l.MemoryBytes < was.MemoryBytes && used > l.MemoryBytes { // the kernel would kill processes
		return &engine.InUseError{Resource: "memory", Used: used, Most: l.MemoryBytes}
	}
	if err := s.update(ctx, l); err != nil {
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
		defer cancel()
		_ = s.update(back, was) // the daemon may have changed some of them
		return s.gone(ctx, err)
	}
	s.limits = l
	return nil
}

func (s *sandbox) update(ctx context.Context, l engine.Limits) error {
	_, err := s.engine.client.ContainerUpdate(ctx, s.name, client.ContainerUpdateOptions{Resources: &container.Resources{
		Memory: l.MemoryBytes, MemorySwap: l.MemoryBytes, CPUPeriod: cpuPeriod, CPUQuota: quotaOf(l),
	}})
	return err
}

// quotaOf returns the processor time of a container in each cpuPeriod, in microseconds.
func quotaOf(l engine.Limits) int64 { return int64(math.Ceil(l.CPUs * cpuPeriod)) }
