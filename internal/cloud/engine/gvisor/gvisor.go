package gvisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/gvisorenv"
)

// Options configure [New].
type Options struct {
	// Runsc is the gVisor program that was passed to the room. Binary is the program that was
	// passed to the room for re-execution; "" means the running program.
	Runsc  gvisorenv.Program
	Binary string
	// Programs are paths of files of this machine that processes in sandboxes execute. Saved memory
	// is restored only with the same files.
	Programs []string
}

// Engine runs sandboxes of a room in gVisor.
type Engine struct {
	engine.Engine // the room
	program       gvisorenv.Program
	machine       func() (*machine, error)
}

var _ engine.Engine = (*Engine)(nil)

// New returns an engine that runs its sandboxes in the room. It first starts one sandbox as a test.
// The engine's Close closes the room. If New fails, New itself closes the room.
func New(ctx context.Context, room engine.Engine, o Options) (*Engine, error) {
	e := &Engine{Engine: room, program: o.Runsc}
	e.machine = sync.OnceValues(func() (*machine, error) {
		return describe(o.Runsc.Version, cmp.Or(o.Binary, "/proc/self/exe"), o.Programs)
	})
	s, err := room.NewSandbox(ctx, engine.SandboxOptions{ID: "trial"})
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("gvisor: this machine does not run sandboxes in gVisor (%s at %s): %w", e.program.Version, e.program.Path, err), room.Close())
	}
	return e, nil
}

// NewSandbox starts a sandbox of the room. ctx bounds only the start.
func (e *Engine) NewSandbox(ctx context.Context, o engine.SandboxOptions) (engine.Sandbox, error) {
	if o.Memory != "" {
		if err := e.checkMemory(o.Memory); err != nil {
			return nil, fmt.Errorf("gvisor: %w: %w", engine.ErrOtherMachine, err)
		}
	}
	s, err := e.Engine.NewSandbox(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("gvisor: %w", err)
	}
	return &sandbox{s, e.machine}, nil
}

// checkMemory returns an error if saved memory cannot be restored here.
func (e *Engine) checkMemory(dir string) error {
	saved, err := readMachine(dir)
	if err != nil {
		return err
	}
	here, err := e.machine()
	if err != nil {
		return err
	}
	return saved.check(here)
}

// sandbox is a sandbox of the room that runs in gVisor.
type sandbox struct {
	engine.Sandbox
	machine func() (*machine, error)
}

// SaveMemory saves the memory, with a description of the machine that the memory depends on.
func (s *sandbox) SaveMemory(ctx context.Context, dir string) error {
	here, err := s.machine()
	if err == nil {
		err = s.Sandbox.SaveMemory(ctx, dir)
	}
	if err == nil {
		err = here.write(dir)
	}
	if err != nil {
		return fmt.Errorf("gvisor: %w", err)
	}
	return nil
}

// Report returns the room's report, adjusted for gVisor.
func (e *Engine) Report() engine.Report {
	r := e.Engine.Report()
	r.Engine = engine.GVisor
	r.Notes = append(slices.Clone(r.Notes), fmt.Sprintf("sandboxes run in gVisor: %s at %s", e.program.Version, e.program.Path))
	r.Pause = "gVisor itself, which stops its processes"
	r.Promises[engine.SavedMemory] = "" // the promises are a copy
	if r.Promises[engine.ProcessLimit] == "" {
		r.Processes += ", of the threads of gVisor, which ends with its sandbox when it can have no more"
	}
	return r
}
