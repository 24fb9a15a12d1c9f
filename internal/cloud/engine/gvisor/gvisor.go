package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/gvisorenv"
)

// Engine runs sandboxes of a room in gVisor.
type Engine struct {
	engine.Engine // the room
	program       gvisorenv.Program
}

var _ engine.Engine = (*Engine)(nil)

// New returns an engine whose sandboxes are those of a room that was started with program as
// its Runsc, after it has tried one. Close closes the room, and so does an error.
func New(ctx context.Context, room engine.Engine, program gvisorenv.Program) (*Engine, error) {
	e := &Engine{room, program}
	s, err := room.NewSandbox(ctx, engine.SandboxOptions{ID: "trial", Config: json.RawMessage("{}")})
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("gvisor: this machine does not run sandboxes in gVisor (%s at %s): %w", program.Version, program.Path, err), room.Close())
	}
	return e, nil
}

// NewSandbox starts a sandbox of the room. ctx bounds only the start.
func (e *Engine) NewSandbox(ctx context.Context, o engine.SandboxOptions) (engine.Sandbox, error) {
	s, err := e.Engine.NewSandbox(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("gvisor: %w", err)
	}
	return s, nil
}

// Report is that of the room, with what gVisor adds and takes away.
func (e *Engine) Report() engine.Report {
	r := e.Engine.Report()
	r.Engine = engine.GVisor
	r.Notes = append(slices.Clone(r.Notes), fmt.Sprintf("sandboxes run in gVisor: %s at %s", e.program.Version, e.program.Path))
	r.Promises[engine.SavedMemory] = "" // the promises are a copy
	if r.Promises[engine.ProcessLimit] == "" {
		r.Processes += ", of the threads of gVisor, which ends with its sandbox when it can have no more"
	}
	return r
}
