package kernelconn

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

// maxDead bounds the number of dead contexts that are recorded. A bound is necessary because code
// in the sandbox can cause any number of dead contexts.
const maxDead = 1 << 10

// deadContext is a context whose kernel died so often in a row that Jupyter does not start the
// kernel again. The service's interpreter does not notice that the kernel is not
// started again. It still lists the context, but never answers code that is sent to this context. So each handle has to replace the context with a
// new one.
type deadContext struct {
	Context
	standard bool   // the context was the default of its language; the next default replaces it
	heir     string // the id of the context that replaces this one; empty until a replacement is needed
}

// errDead is the error for a context that died before this handle used it. The context cannot be
// replaced, because its language and its directory are unknown.
var errDead = fmt.Errorf("its kernel died too often and was given up: create another context: %w", api.ErrNotFound)

// bury finds the contexts that have no kernel. It records these contexts as dead, and forgets the
// contexts that the interpreter no longer lists. If no kernel server listens on the port, found is
// false.
func (ks *Kernels) bury(ctx context.Context) (found bool, err error) {
	// The order matters: a context that is created in the meantime must not look
	// dead.
	contexts, err := ks.Contexts(ctx)
	if err != nil {
		return false, fmt.Errorf("list contexts: %w", err)
	}
	var kernels []struct {
		ID string `json:"id"`
	}
	err = ks.json(ctx, protocol.PortJupyter, http.MethodGet, "/api/kernels", nil, &kernels)
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
	ks.mu.Lock()
	defer ks.mu.Unlock()
	for _, c := range contexts {
		if alive[c.ID] = kept[c.ID]; !kept[c.ID] && len(ks.dead) < maxDead {
			ks.dead[c.ID] = deadContext{Context: c, standard: ks.defaults[c.Language] == c.ID}
		}
	}
	maps.DeleteFunc(ks.languages, func(id, _ string) bool { return !alive[id] })
	maps.DeleteFunc(ks.defaults, func(_, id string) bool { return !alive[id] })
	return true, nil
}

// heirOf returns the id and the language of the context that replaces the requested context. An
// empty id means the default context of the language. If nothing replaces the context, heirOf
// returns its parameters. The caller holds ks.mu.
func (ks *Kernels) heirOf(id, language string) (heir, ofLanguage string) {
	dead, ok := ks.dead[id]
	switch {
	case ok && dead.standard:
		return "", dead.Language
	case ok && dead.heir != "":
		return dead.heir, language
	}
	return id, language
}

// current returns the id of the context that replaced the context with the given id. If no context
// replaced it, current returns id. The caller holds ks.mu.
func (ks *Kernels) current(id string) string {
	heir, language := ks.heirOf(id, "")
	return cmp.Or(heir, ks.defaults[language], id)
}

// replace creates a context in place of a dead one. The caller holds ks.opening.
func (ks *Kernels) replace(ctx context.Context, id string) (heir string, err error) {
	ks.mu.Lock()
	dead, ok := ks.dead[id]
	_, ours := ks.beside[id]
	ours = ours || dead.standard || ks.open[id] != nil
	ks.mu.Unlock()
	switch {
	case !ok:
		return "", fmt.Errorf("the sandbox has no context %q: %w", clip.Text(id, 64), api.ErrNotFound)
	case !ours:
		return "", fmt.Errorf("the context %q: %w", clip.Text(id, 64), errDead)
	}
	made, err := ks.create(ctx, Context{Language: dead.Language, Cwd: dead.Cwd})
	if err != nil {
		return "", fmt.Errorf("create a context in place of %s, whose kernel died too often: %w", id, err)
	}
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if dead.standard {
		ks.defaults[dead.Language] = made.ID
		return made.ID, nil
	}
	ks.beside[made.ID] = struct{}{}
	for other, d := range ks.dead {
		if other == id || d.heir == id {
			d.heir = made.ID
			ks.dead[other] = d
		}
	}
	if why, ok := ks.lost[id]; ok {
		delete(ks.lost, id)
		ks.lost[made.ID] = why
	}
	return made.ID, nil
}

// names returns all ids with which a call reaches a context: the context's own id, and the ids of
// the dead contexts that it replaced.
func (ks *Kernels) names(id string) []string {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	names := []string{id}
	for other, dead := range ks.dead {
		if dead.heir == id || dead.standard && ks.defaults[dead.Language] == id {
			names = append(names, other)
		}
	}
	return names
}

// endDead restarts or removes a dead context after the interpreter failed to do this. failed is the
// error of the interpreter. If the context is not dead, endDead returns failed.
func (ks *Kernels) endDead(ctx context.Context, id string, removal bool, failed error) error {
	if answer, ok := errors.AsType[*api.Error](failed); !ok || answer.StatusCode < http.StatusInternalServerError {
		return failed
	}
	release, err := ks.exclusively(ctx)
	if err != nil {
		return err
	}
	defer release()
	if _, err := ks.bury(ctx); err != nil {
		return failed
	}
	ks.mu.Lock()
	dead, ok := ks.dead[id]
	if ok && removal {
		ks.dead[id] = deadContext{Context: dead.Context}
	}
	ks.mu.Unlock()
	switch {
	case !ok:
		return failed
	case removal:
		return nil
	}
	_, err = ks.replace(ctx, id)
	return err
}
