package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/runhost"
	"github.com/e2bctl/e2bctl/sandbox"
)

// Begin starts a run. It installs the packages, sends the state, makes the tools and final_answer
// callable, and reserves the context until Close. ctx bounds the call of Begin, and not the run.
// The websocket transport is required.
//
// Code ends the run by calling final_answer(x), at any depth. The value is recorded in this
// program, and later code cannot change it. 2 seconds after the call, the code is interrupted. A
// tool may have any name except final_answer: see [NewTool]. The code waits while a tool runs. Code
// may call a tool from a thread. In a coroutine, use await tool.aio(…). The class of a tool's
// exceptions is tool.Error.
//
// Errors are [ErrContextBusy], [sandbox.ErrPublicKernel], an [*sandbox.InstallError], a
// [*GuardError], an error of the transport, or an error of package state. An error of package state
// names the variable. After an error the context is free again.
func Begin(ctx context.Context, sb *sandbox.Sandbox, p *Params) (*Run, error) {
	if p == nil {
		p = &Params{}
	}
	redact, err := newRedactor(p.Redact)
	if err != nil {
		return nil, fmt.Errorf("agent: begin a run: %w", err)
	}
	r, err := begin(ctx, sb, p)
	return r, redact.err(err)
}

// begin does the work of Begin. Its errors may contain values that Params.Redact must remove.
func begin(ctx context.Context, sb *sandbox.Sandbox, p *Params) (*Run, error) {
	if _, err := p.Guard.config(p.Packages); err != nil {
		return nil, err
	}
	if err := checkNames(p); err != nil {
		return nil, fmt.Errorf("agent: begin a run: %w", err)
	}
	host := runhost.Of(sb)
	if len(p.Tools) > 0 {
		if err := host.CheckPrivate(ctx); err != nil {
			return nil, err
		}
	}
	installation, err := install(ctx, sb.Packages, p)
	if err != nil {
		return nil, err
	}
	id, err := host.ContextID(ctx, string(p.Context))
	if err != nil {
		return nil, err
	}
	all := host.Attached(func() any { return new(runs) }).(*runs)
	r, err := all.begin(ctx, sandboxHost{sb, host}, id, *p)
	if err != nil {
		return nil, err
	}
	r.Installation = installation
	r.log.begin()
	return r, nil
}

// install installs the packages of a run. If there is nothing to install, it returns nil.
func install(ctx context.Context, packages *sandbox.Packages, p *Params) (*sandbox.Installation, error) {
	switch {
	case p.Lock != nil:
		installed, err := packages.InstallLock(ctx, p.Lock, &sandbox.InstallLockParams{Require: p.Packages})
		return installed, adviseImport(err)
	case len(p.Packages) > 0:
		installed, err := packages.Install(ctx, p.Packages, nil)
		return installed, adviseImport(err)
	}
	return nil, nil
}

// adviseImport extends the error of a refused import with the advice to add the import to
// Guard.Allow. It returns other errors unchanged.
func adviseImport(err error) error {
	if refused, ok := errors.AsType[*sandbox.RequirementError](err); ok && refused.Import {
		return fmt.Errorf("%w; to allow the import, name it in Guard.Allow", err)
	}
	return err
}

// checkNames returns an error if names of tools or variables of the run collide.
func checkNames(p *Params) error {
	what := map[string]string{finalAnswer: "the function that gives the final answer"}
	for _, t := range p.Tools {
		if t.call == nil {
			return errors.New("a Tool was not made by NewTool, ToolFromSchema or NewManaged")
		}
		if other, taken := what[t.name]; taken {
			return fmt.Errorf("the tool %q has the name of %s: rename one", t.name, other)
		}
		what[t.name] = fmt.Sprintf("the tool %q", t.name)
	}
	if p.State != nil {
		for _, name := range p.State.Names() {
			if other, taken := what[name]; taken {
				return fmt.Errorf("the variable %q of the state has the name of %s: rename one", name, other)
			}
		}
	}
	return nil
}

func newRun(rs *runs, host runHost, c *runContext, p Params) (*Run, error) {
	r := &Run{id: jupyter.NewID(), runs: rs, host: host, about: host.about(), context: c, params: p, calls: map[*inFlight]struct{}{}}
	if p.Limits.RunTimeout > 0 {
		r.deadline = time.Now().Add(p.Limits.RunTimeout)
	}
	var err error
	if r.guard, err = p.Guard.config(p.Packages); err != nil {
		return nil, err
	}
	if r.redact, err = newRedactor(p.Redact); err != nil {
		return nil, err
	}
	r.bridge, r.log = newBridge(r, p.Tools), newRunLog(r)
	r.ending = sync.OnceValue(r.close)
	return r, nil
}
