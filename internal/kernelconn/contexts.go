package kernelconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

const (
	// DefaultLanguage is the language of code whose request names no language.
	DefaultLanguage = "python"
	// DefaultContext is another name for the first context of [DefaultLanguage]. The service accepts
	// this name, too.
	DefaultContext = "default"
)

// Context is a kernel with its variables, as the interpreter describes it.
type Context struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Cwd      string `json:"cwd,omitempty"`
}

// ValidID reports whether an id can be part of the path of a request.
func ValidID(id string) bool {
	return id != "" && len(id) <= 128 && url.PathEscape(id) == id && id != "." && id != ".."
}

// Contexts asks the interpreter for its contexts. It leaves out contexts that are dead, and
// contexts with an id that cannot be used.
func (ks *Kernels) Contexts(ctx context.Context) ([]Context, error) {
	var contexts []Context
	if err := ks.json(ctx, protocol.PortInterpreter, http.MethodGet, "/contexts", nil, &contexts); err != nil {
		return nil, err
	}
	ks.mu.Lock()
	defer ks.mu.Unlock()
	return slices.DeleteFunc(contexts, func(c Context) bool {
		_, dead := ks.dead[c.ID]
		return dead || !ValidID(c.ID)
	}), nil
}

// unknownLanguage turns the service's error about a missing kernel into
// [ErrUnknownLanguage].
func unknownLanguage(err error) error {
	if e, ok := errors.AsType[*api.Error](err); ok && strings.Contains(e.Message, "kernel is not available") {
		return fmt.Errorf("%w: %w", ErrUnknownLanguage, err)
	}
	return err
}

// Create creates a context that is not the default context of any language.
func (ks *Kernels) Create(ctx context.Context, wanted Context) (*Context, error) {
	made, err := ks.create(ctx, wanted)
	if err != nil {
		return nil, err
	}
	ks.mu.Lock()
	defer ks.mu.Unlock()
	ks.beside[made.ID] = struct{}{}
	return made, nil
}

// create creates a context and records the context's language in ks.languages.
func (ks *Kernels) create(ctx context.Context, wanted Context) (*Context, error) {
	var made Context
	if err := ks.json(ctx, protocol.PortInterpreter, http.MethodPost, "/contexts", wanted, &made); err != nil {
		return nil, unknownLanguage(err)
	}
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if _, dead := ks.dead[made.ID]; dead || !ValidID(made.ID) {
		return nil, errors.New("the interpreter's answer has no usable context id")
	}
	if made.Language == "" {
		made.Language = wanted.Language
	}
	ks.languages[made.ID] = made.Language
	return &made, nil
}

// lookup returns the id of the context that a call must use. If id is not empty, the call must use
// the named context, or its replacement. Otherwise it must use the first context of the language. If
// the language has no context, lookup creates one.
func (ks *Kernels) lookup(ctx context.Context, id, language string) (string, error) {
	if id == DefaultContext {
		id = ""
	}
	if language == "" {
		language = DefaultLanguage
	}
	ks.mu.Lock()
	id, language = ks.heirOf(id, language)
	known := ks.defaults[language]
	_, named := ks.languages[id]
	ks.mu.Unlock()
	switch {
	case id != "" && named:
		return id, nil
	case id == "" && known != "":
		return known, nil
	}
	contexts, err := ks.Contexts(ctx)
	if err != nil {
		return "", fmt.Errorf("list contexts: %w", err)
	}
	ks.mu.Lock()
	for _, c := range contexts {
		ks.languages[c.ID] = c.Language
		if _, beside := ks.beside[c.ID]; !beside && ks.defaults[c.Language] == "" {
			ks.defaults[c.Language] = c.ID
		}
	}
	known = ks.defaults[language]
	_, named = ks.languages[id]
	ks.mu.Unlock()
	switch {
	case id != "" && !named:
		return ks.replace(ctx, id)
	case id != "":
		return id, nil
	case known != "":
		return known, nil
	}
	made, err := ks.create(ctx, Context{Language: language})
	if err != nil {
		return "", fmt.Errorf("create a context for %s: %w", clip.Text(language, 64), err)
	}
	ks.mu.Lock()
	defer ks.mu.Unlock()
	ks.defaults[language] = made.ID
	return made.ID, nil
}

// Named returns the id of the context to which id refers in this handle. For the
// service, [DefaultContext] may refer to another context.
func (ks *Kernels) Named(id string) string {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if id == DefaultContext {
		return cmp.Or(ks.defaults[DefaultLanguage], id)
	}
	return ks.current(id)
}

// Restart replaces the kernel of a context with a fresh kernel. id must be a result of Named.
func (ks *Kernels) Restart(ctx context.Context, id string) error { return ks.end(ctx, id, false) }

// Remove ends a context. id must be a result of Named.
func (ks *Kernels) Remove(ctx context.Context, id string) error { return ks.end(ctx, id, true) }

// end ends the kernel of a context and the connection to this kernel. If removal is set, it also
// removes the context. Otherwise another kernel replaces the ended kernel.
func (ks *Kernels) end(ctx context.Context, id string, removal bool) error {
	method, path := http.MethodPost, "/contexts/"+id+"/restart"
	if removal {
		method, path = http.MethodDelete, "/contexts/"+id
	}
	open, err := ks.shut(ctx, id)
	if err != nil {
		return err
	}
	defer open()
	var nothing any
	if err := ks.json(ctx, protocol.PortInterpreter, method, path, nil, &nothing); err != nil {
		if err = ks.endDead(ctx, id, removal, err); err != nil {
			return err
		}
	}
	ks.drop(id)
	if !removal {
		ks.noteEnd(id)
	}
	return nil
}

// drop forgets a context and ends the connection to its kernel.
func (ks *Kernels) drop(id string) {
	ks.mu.Lock()
	key := ks.lossOf(ks.current(id))
	k := ks.open[id]
	delete(ks.open, id)
	if language := ks.languages[id]; ks.defaults[language] == id {
		delete(ks.defaults, language)
	}
	delete(ks.languages, id)
	delete(ks.beside, id)
	delete(ks.heard, id)
	ks.mu.Unlock()
	if k != nil {
		k.close()
	}
	// The caller that ends a context knows that its variables are gone.
	ks.mu.Lock()
	delete(ks.lost, key)
	ks.mu.Unlock()
}
