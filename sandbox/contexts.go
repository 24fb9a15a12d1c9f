package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// Contexts are the contexts of a sandbox's code, each with a kernel and variables
// of its own. It is safe for concurrent use.
type Contexts struct{ sb *Sandbox }

// CodeContext is a kernel with its variables. Code in different contexts runs at
// the same time and shares nothing except files.
type CodeContext struct {
	// ID is the id to use in RunCodeParams.Context and agent.Params.Context.
	ID string `json:"id"`
	// Language is the language of its code.
	Language string `json:"language"`
	// Cwd is the directory that it started in.
	Cwd string `json:"cwd,omitempty"`
}

// CodeContextParams describes the context to create.
type CodeContextParams struct {
	// Language is the language of its code, as in [RunCodeParams]; empty means
	// Python.
	Language string
	// Cwd is the directory to start in; empty means the user's home.
	Cwd string
}

// Create creates a context in addition to the default one. A language
// without a kernel is [ErrUnknownLanguage].
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
	made, err := sb.code.create(ctx, CodeContext{Language: cmp.Or(normalLanguage(p.Language), defaultLanguage), Cwd: p.Cwd})
	if err != nil {
		return nil, sb.failed(ctx, "create a context", err)
	}
	sb.code.mu.Lock()
	defer sb.code.mu.Unlock()
	sb.code.beside[made.ID] = struct{}{}
	return made, nil
}

// List returns the contexts in the order in which they were created. The
// default one may not exist before the first code runs. Contexts whose kernel
// died for good are left out once this handle has noticed.
func (c *Contexts) List(ctx context.Context) ([]CodeContext, error) {
	sb := c.sb
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	contexts, err := sb.code.contexts(ctx)
	if err != nil {
		return nil, sb.failed(ctx, "list contexts", err)
	}
	return contexts, nil
}

// Restart replaces the kernel of a context with a fresh one under the same
// id, and its variables are lost; an empty id means the default context. Code
// that runs in it fails with [ErrKernelDied] or [ErrKernelLost]; code that waits
// for its turn runs in the fresh kernel. It also works after the kernel died for
// good; see [ErrKernelDied].
func (c *Contexts) Restart(ctx context.Context, id string) error {
	return c.end(ctx, restart, http.MethodPost, cmp.Or(id, defaultContext), "/restart")
}

// Remove ends a context. Code that runs in it fails in the same way as
// when the context is restarted; code that waits for its turn finds no context,
// or the fresh default one.
func (c *Contexts) Remove(ctx context.Context, id string) error {
	return c.end(ctx, removal, http.MethodDelete, id, "")
}

// Interrupt interrupts the code that runs in a context, no matter which client
// runs it; an empty id means the default context. Python code sees a
// KeyboardInterrupt. It needs the websocket's port. If no code runs, nothing
// happens.
func (c *Contexts) Interrupt(ctx context.Context, id string) error {
	sb := c.sb
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	k, err := sb.code.websocket(ctx, id)
	if err == nil {
		err = k.interrupt(ctx)
	}
	if err != nil {
		return sb.failed(ctx, "interrupt", err)
	}
	return nil
}

// What end does, for its errors.
const (
	restart = "restart"
	removal = "remove"
)

func (c *Contexts) end(ctx context.Context, verb, method, id, route string) error {
	sb := c.sb
	if !validContext(id) {
		return fmt.Errorf("sandbox: %s context %q: not an id: %w", verb, clip.Text(id, 64), api.ErrInvalidArgument)
	}
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	id = sb.code.named(id)
	open, err := sb.code.shut(ctx, id)
	if err != nil {
		return sb.failed(ctx, verb+" context "+id, err)
	}
	defer open()
	var nothing any
	interpreter := portClient{sb, protocol.PortInterpreter}
	if err := interpreter.json(ctx, method, "/contexts/"+id+route, nil, &nothing); err != nil {
		if err = sb.code.endDead(ctx, id, verb, err); err != nil {
			return sb.failed(ctx, verb+" context "+id, err)
		}
	}
	sb.code.drop(id)
	if verb == restart {
		sb.code.noteEnd(id)
	}
	return nil
}

// contexts asks the interpreter for its contexts. Contexts that are dead or have
// an id that cannot be used are left out.
func (r *codeRunner) contexts(ctx context.Context) ([]CodeContext, error) {
	var contexts []CodeContext
	interpreter := portClient{r.sb, protocol.PortInterpreter}
	if err := interpreter.json(ctx, http.MethodGet, "/contexts", nil, &contexts); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(contexts, func(c CodeContext) bool {
		_, dead := r.dead[c.ID]
		return dead || !validContext(c.ID)
	}), nil
}

// unknownLanguage names the service's error about a kernel that is not installed.
func unknownLanguage(err error) error {
	if e, ok := errors.AsType[*api.Error](err); ok && strings.Contains(e.Message, "kernel is not available") {
		return fmt.Errorf("%w: %w", ErrUnknownLanguage, err)
	}
	return err
}

// create creates a context and remembers its language.
func (r *codeRunner) create(ctx context.Context, wanted CodeContext) (*CodeContext, error) {
	var made CodeContext
	interpreter := portClient{r.sb, protocol.PortInterpreter}
	if err := interpreter.json(ctx, http.MethodPost, "/contexts", wanted, &made); err != nil {
		return nil, unknownLanguage(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, dead := r.dead[made.ID]; dead || !validContext(made.ID) {
		return nil, errors.New("the interpreter's answer has no usable context id")
	}
	if made.Language == "" {
		made.Language = wanted.Language
	}
	r.languages[made.ID] = made.Language
	return &made, nil
}

// named returns the id of the context that id means to this handle. The other
// name of the default context may mean another one to the service.
func (r *codeRunner) named(id string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id == defaultContext {
		return cmp.Or(r.defaults[defaultLanguage], id)
	}
	return r.current(id)
}

// shut keeps code that waits for its turn in a context from starting until open
// is called.
func (r *codeRunner) shut(ctx context.Context, id string) (open func(), err error) {
	r.mu.Lock()
	k := r.kernels[id]
	r.mu.Unlock()
	if k == nil {
		return func() {}, nil
	}
	select {
	case k.gate <- struct{}{}:
		return func() { <-k.gate }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// drop forgets a context and ends the connection to its kernel.
func (r *codeRunner) drop(id string) {
	r.mu.Lock()
	key := r.lossOf(r.current(id))
	k := r.kernels[id]
	delete(r.kernels, id)
	if language := r.languages[id]; r.defaults[language] == id {
		delete(r.defaults, language)
	}
	delete(r.languages, id)
	delete(r.beside, id)
	r.mu.Unlock()
	if k != nil {
		k.close()
	}
	// The caller that ends a context knows that its variables are gone.
	r.mu.Lock()
	delete(r.lost, key)
	r.mu.Unlock()
}
