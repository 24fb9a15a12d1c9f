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

// CodeContext is a kernel with its variables. Code in different contexts runs
// at the same time and shares nothing but files.
type CodeContext struct {
	// ID is what RunCodeParams.Context and agent.Params.Context mean.
	ID string `json:"id"`
	// Language is that of its code.
	Language string `json:"language"`
	// Cwd is the directory that it started in.
	Cwd string `json:"cwd,omitempty"`
}

// CodeContextParams say what context to create.
type CodeContextParams struct {
	// Language is that of its code, as in [RunCodeParams]; empty means Python.
	Language string
	// Cwd is the directory to start in; empty means the user's home.
	Cwd string
}

// CreateContext makes a context beside the default one. A language without a
// kernel is [ErrUnknownLanguage].
func (sb *Sandbox) CreateContext(ctx context.Context, p *CodeContextParams) (*CodeContext, error) {
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

// Contexts returns the contexts there are, in the order they were made in. The
// default one may not exist before the first code runs. Those whose kernel died for
// good are left out once this handle has noticed.
func (sb *Sandbox) Contexts(ctx context.Context) ([]CodeContext, error) {
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

// RestartContext gives a context a fresh kernel under the same id, and its
// variables are lost; an empty id is the default context. Code that runs in it
// fails with [ErrKernelDied] or [ErrKernelLost]; code that waits for its turn
// runs in the fresh one. It works after the kernel died for good, too; see
// [ErrKernelDied].
func (sb *Sandbox) RestartContext(ctx context.Context, id string) error {
	return sb.endContext(ctx, restart, http.MethodPost, cmp.Or(id, defaultContext), "/restart")
}

// RemoveContext ends a context. Code that runs in it fails as when it is
// restarted; code that waits for its turn finds no context, or the fresh default
// one.
func (sb *Sandbox) RemoveContext(ctx context.Context, id string) error {
	return sb.endContext(ctx, removal, http.MethodDelete, id, "")
}

// What endContext does, for its errors.
const (
	restart = "restart"
	removal = "remove"
)

func (sb *Sandbox) endContext(ctx context.Context, verb, method, id, route string) error {
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

// contexts asks the interpreter. Ids that cannot be used and contexts that are dead
// are left out.
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

// create makes a context and notes its language.
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

// named returns the id of the context that id means to this handle. By the other
// name of the default context the service may mean another.
func (r *codeRunner) named(id string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id == defaultContext {
		return cmp.Or(r.defaults[defaultLanguage], id)
	}
	return r.current(id)
}

// shut keeps code that waits for its turn in a context from beginning, until
// open is called.
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
	// Who ends a context knows that its variables are gone.
	r.mu.Lock()
	delete(r.lost, key)
	r.mu.Unlock()
}
