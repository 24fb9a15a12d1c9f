package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// maxDead bounds how many dead contexts are remembered: the sandbox says how many
// there are.
const maxDead = 1 << 10

// deadContext is a context whose kernel died so often in a row that Jupyter gave
// it up. The service's interpreter does not notice: it goes on listing the context,
// and never answers code that is sent there. So each handle has to put another
// context in its place.
type deadContext struct {
	CodeContext
	standard bool   // it was the default context of its language, whose heir is the next default
	heir     string // what took the place of another; empty until it is needed
}

// errDead is the error of a context that died before this handle used it: nobody
// could say what is to take its place.
var errDead = fmt.Errorf("its kernel died too often and was given up: create another context: %w", api.ErrNotFound)

// bury finds out why a context has no kernel: it notes which contexts are dead, and
// forgets those that the interpreter does not list any longer. found is false when
// what listens on the port is no server of kernels.
func (r *codeRunner) bury(ctx context.Context) (found bool, err error) {
	// In this order: a context that is created meanwhile must not look dead.
	contexts, err := r.contexts(ctx)
	if err != nil {
		return false, fmt.Errorf("list contexts: %w", err)
	}
	var kernels []struct {
		ID string `json:"id"`
	}
	server := portClient{r.sb, protocol.PortJupyter}
	err = server.json(ctx, http.MethodGet, "/api/kernels", nil, &kernels)
	if answer, ok := errors.AsType[*api.Error](err); ok && answer.StatusCode != 0 {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("list kernels: %w", err)
	}
	kept := map[string]bool{}
	for _, k := range kernels {
		kept[k.ID] = true
	}
	alive := map[string]bool{}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range contexts {
		if alive[c.ID] = kept[c.ID]; !kept[c.ID] && len(r.dead) < maxDead {
			r.dead[c.ID] = deadContext{CodeContext: c, standard: r.defaults[c.Language] == c.ID}
		}
	}
	maps.DeleteFunc(r.languages, func(id, _ string) bool { return !alive[id] })
	maps.DeleteFunc(r.defaults, func(_, id string) bool { return !alive[id] })
	return true, nil
}

// heirOf returns what to use where a context or, without an id, the default one of
// a language is asked for. r.mu is held.
func (r *codeRunner) heirOf(id, language string) (heir, ofLanguage string) {
	dead, ok := r.dead[id]
	switch {
	case ok && dead.standard:
		return "", dead.Language
	case ok && dead.heir != "":
		return dead.heir, language
	}
	return id, language
}

// current returns the id of what took the place of a context, or else its own.
// r.mu is held.
func (r *codeRunner) current(id string) string {
	heir, language := r.heirOf(id, "")
	return cmp.Or(heir, r.defaults[language], id)
}

// replace creates a context in place of a dead one. The caller holds r.opening.
func (r *codeRunner) replace(ctx context.Context, id string) (heir string, err error) {
	r.mu.Lock()
	dead, ok := r.dead[id]
	_, ours := r.beside[id]
	ours = ours || dead.standard || r.kernels[id] != nil
	r.mu.Unlock()
	switch {
	case !ok:
		return "", fmt.Errorf("the sandbox has no context %q: %w", clip.Text(id, 64), api.ErrNotFound)
	case !ours:
		return "", fmt.Errorf("the context %q: %w", clip.Text(id, 64), errDead)
	}
	made, err := r.create(ctx, CodeContext{Language: dead.Language, Cwd: dead.Cwd})
	if err != nil {
		return "", fmt.Errorf("create a context in place of %s, whose kernel died too often: %w", id, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if dead.standard {
		r.defaults[dead.Language] = made.ID
		return made.ID, nil
	}
	r.beside[made.ID] = struct{}{}
	for other, d := range r.dead {
		if other == id || d.heir == id {
			d.heir = made.ID
			r.dead[other] = d
		}
	}
	if why, ok := r.lost[id]; ok {
		delete(r.lost, id)
		r.lost[made.ID] = why
	}
	return made.ID, nil
}

// names returns all ids under which code reaches a context: its own, and those of
// the dead ones that it took the place of.
func (r *codeRunner) names(id string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := []string{id}
	for other, dead := range r.dead {
		if dead.heir == id || dead.standard && r.defaults[dead.Language] == id {
			names = append(names, other)
		}
	}
	return names
}

// endDead does what the interpreter could not do for it failed: restart or remove
// a context that is dead. It returns failed when that is not the reason.
func (r *codeRunner) endDead(ctx context.Context, id, verb string, failed error) error {
	if answer, ok := errors.AsType[*api.Error](failed); !ok || answer.StatusCode < http.StatusInternalServerError {
		return failed
	}
	release, err := r.exclusively(ctx)
	if err != nil {
		return err
	}
	defer release()
	if _, err := r.bury(ctx); err != nil {
		return failed
	}
	r.mu.Lock()
	dead, ok := r.dead[id]
	if ok && verb == removal {
		r.dead[id] = deadContext{CodeContext: dead.CodeContext}
	}
	r.mu.Unlock()
	switch {
	case !ok:
		return failed
	case verb == removal:
		return nil
	}
	_, err = r.replace(ctx, id)
	return err
}
