package sandbox

import (
	"cmp"
	"context"
	"fmt"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
)

// Contexts manages the code contexts of a sandbox. Each context has a kernel and variables of its
// own. Contexts is safe for concurrent use.
type Contexts struct{ sb *Sandbox }

// ContextID identifies a context of a sandbox. An empty id means the default context, except
// for [Contexts.Remove].
type ContextID string

// CodeContext is a kernel with its variables. Code in different contexts runs at
// the same time and shares nothing except files.
type CodeContext struct {
	// ID is the id for RunCodeParams.Context and agent.Params.Context.
	ID ContextID `json:"id"`
	// Language is the programming language of the context.
	Language string `json:"language"`
	// Cwd is the directory in which the context started.
	Cwd string `json:"cwd,omitempty"`
}

// CodeContextParams describes the context to create.
type CodeContextParams struct {
	// Language is the programming language of the context, as in [RunCodeParams]; empty means Python.
	Language string
	// Cwd is the directory in which the context starts; empty means the user's home.
	Cwd string
}

// Create creates a context in addition to the default context. If the sandbox has no kernel for the
// language, the error is [ErrUnknownLanguage].
func (c *Contexts) Create(ctx context.Context, p *CodeContextParams) (*CodeContext, error) {
	sb := c.sb
	if p == nil {
		p = &CodeContextParams{}
	}
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	made, err := sb.code.kernels.Create(ctx, kernelconn.Context{Language: cmp.Or(normalLanguage(p.Language), kernelconn.DefaultLanguage), Cwd: p.Cwd})
	if err != nil {
		return nil, sb.failed(ctx, "create a context", err)
	}
	return new(codeContext(*made)), nil
}

// List returns the contexts in the order of their creation. The default context may not exist
// before the first code runs. If this handle has noticed that the kernel of a context has died and
// will not be restarted, List omits the context.
func (c *Contexts) List(ctx context.Context) ([]CodeContext, error) {
	sb := c.sb
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	listed, err := sb.code.kernels.Contexts(ctx)
	if err != nil {
		return nil, sb.failed(ctx, "list contexts", err)
	}
	contexts := make([]CodeContext, 0, len(listed))
	for _, c := range listed {
		contexts = append(contexts, codeContext(c))
	}
	return contexts, nil
}

func codeContext(c kernelconn.Context) CodeContext {
	return CodeContext{ID: ContextID(c.ID), Language: c.Language, Cwd: c.Cwd}
}

// Restart replaces the kernel of a context with a new one under the same id; the variables are
// lost. An empty id means the default context. Code that runs in the context fails with
// [ErrKernelDied] or [ErrKernelLost]. Code that waits for the context runs in the new kernel.
// Restart also works if the service itself no longer restarts the kernel: see [ErrKernelDied].
func (c *Contexts) Restart(ctx context.Context, id ContextID) error {
	return c.end(ctx, "restart", cmp.Or(string(id), kernelconn.DefaultContext), c.sb.code.kernels.Restart)
}

// Remove ends a context. Code that runs in the context fails with the errors that
// [Contexts.Restart] describes. Code that waits for the context fails as well, because the context
// is missing. But if the context is the default context, waiting code runs in a new kernel.
func (c *Contexts) Remove(ctx context.Context, id ContextID) error {
	return c.end(ctx, "remove", string(id), c.sb.code.kernels.Remove)
}

// Interrupt interrupts the code that runs in a context, even if another client runs it. An
// empty id means the default context. Python code receives a KeyboardInterrupt. Interrupt needs
// the port of the kernel's websocket. If no code runs, Interrupt has no effect.
func (c *Contexts) Interrupt(ctx context.Context, id ContextID) error {
	sb := c.sb
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	k, err := sb.code.websocket(ctx, string(id))
	if err == nil {
		err = k.Interrupt(ctx)
	}
	if err != nil {
		return sb.failed(ctx, "interrupt", err)
	}
	return nil
}

func (c *Contexts) end(ctx context.Context, verb, id string, do func(context.Context, string) error) error {
	sb := c.sb
	if !kernelconn.ValidID(id) {
		return fmt.Errorf("sandbox: %s context %q: not an id: %w", verb, clip.Text(id, 64), api.ErrInvalidArgument)
	}
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	id = sb.code.kernels.Named(id)
	if err := do(ctx, id); err != nil {
		return sb.failed(ctx, verb+" context "+id, err)
	}
	return nil
}
