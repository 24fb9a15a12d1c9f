//go:build linux

package realservice

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/jupyter"
)

const (
	// userHome is the user's home in the template.
	userHome = "/home/user"
	// interruptDelay is the time between the release of a context's lock and the interrupt, after a
	// client went away. It is so long that the next request reaches the kernel before the interrupt.
	interruptDelay = 100 * time.Millisecond
)

// interpreter stands in for the service's server on port 49999, and has the same faults as this
// server. The reference of the data plane describes these faults. interpreter answers the requests of the
// SDK.
type interpreter struct {
	jupyter *jupyterServer
	home    string                               // the directory that stands for userHome
	envs    func(token string) map[string]string // returns envd's variables
	ctx     context.Context                      //nolint:containedctx // ends work that outlives its request
	after   sync.WaitGroup                       // waits for the interrupts that are under way

	mu        sync.Mutex
	kernels   map[string]*kernel
	order     []string
	languages map[string]string // the id of the context, by language
	// the kernel of the first context; clients reach it as "default", even after the context was
	// removed
	standard *kernel
	creating sync.Mutex
}

// start creates the context that exists from the beginning.
func (i *interpreter) start(ctx context.Context) error {
	k, err := i.create(ctx, "python", userHome)
	if err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.standard, i.languages["python"] = k, k.id
	return nil
}

func (i *interpreter) close() {
	i.after.Wait()
	i.mu.Lock()
	kernels := append(slices.Collect(maps.Values(i.kernels)), i.standard)
	i.mu.Unlock()
	for _, k := range kernels {
		if k != nil {
			k.disconnect()
		}
	}
}

func (i *interpreter) handler() http.Handler {
	routes := http.NewServeMux()
	routes.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { answer(w, "OK") })
	routes.HandleFunc("POST /execute", i.execute)
	routes.HandleFunc("GET /contexts", i.list)
	routes.HandleFunc("POST /contexts", i.add)
	routes.HandleFunc("POST /contexts/{id}/restart", i.restart)
	routes.HandleFunc("DELETE /contexts/{id}", i.remove)
	return routes
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}

func refuse(w http.ResponseWriter, status int, format string, arguments ...any) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprintf(w, format, arguments...)
}

func normalLanguage(name string) string {
	switch name = strings.ToLower(strings.TrimSpace(name)); name {
	case "":
		return "python"
	case "js":
		return "javascript"
	case "ts":
		return "typescript"
	}
	return name
}

// create starts a kernel and changes to its working directory.
func (i *interpreter) create(ctx context.Context, language, cwd string) (*kernel, error) {
	name, id := language, jupyter.NewID()
	if name == "typescript" {
		name = "javascript"
	}
	var session struct {
		ID     string
		Kernel struct{ ID string }
	}
	request := map[string]any{"path": id, "name": id, "type": "notebook", "kernel": map[string]string{"name": name}}
	if err := i.jupyter.call(ctx, http.MethodPost, "/api/sessions", request, &session); err != nil {
		if refused, ok := err.(*statusError); ok { //nolint:errorlint // call returns it unwrapped
			return nil, fmt.Errorf("Failed to create context: %s", refused.body) //nolint:staticcheck // the service's words
		}
		return nil, err
	}
	k := &kernel{
		jupyter: i.jupyter, id: session.Kernel.ID, session: session.ID, language: language, cwd: cwd,
		turn: make(chan struct{}, 1), running: map[string]*running{},
	}
	if err := k.connect(ctx); err != nil {
		return nil, err
	}
	i.mu.Lock()
	i.kernels[k.id] = k
	i.order = append(i.order, k.id)
	i.mu.Unlock()
	if language == "python" {
		directory := cwd
		if rest, ok := strings.CutPrefix(cwd, userHome); ok {
			directory = i.home + rest
		}
		r, err := k.send(ctx, "%cd "+directory, true)
		if err == nil {
			err = r.follow(ctx, func(line) error { return nil })
		}
		if err != nil {
			return nil, fmt.Errorf("Failed to set working directory") //nolint:staticcheck // the service's words
		}
	}
	return k, nil
}

func (i *interpreter) list(w http.ResponseWriter, _ *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	all := []any{}
	for _, id := range i.order {
		all = append(all, i.kernels[id].described())
	}
	answer(w, all)
}

func (k *kernel) described() any {
	return map[string]string{"id": k.id, "language": k.language, "cwd": k.cwd}
}

func (i *interpreter) add(w http.ResponseWriter, r *http.Request) {
	var request struct{ Language, Cwd string }
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		refuse(w, http.StatusUnprocessableEntity, "%v", err)
		return
	}
	k, err := i.create(r.Context(), normalLanguage(request.Language), cmp.Or(request.Cwd, userHome))
	if err != nil {
		refuse(w, http.StatusInternalServerError, "%v", err)
		return
	}
	answer(w, k.described())
}

// named returns the kernel of a context. It searches for the context as the real service does.
func (i *interpreter) named(id string) *kernel {
	i.mu.Lock()
	defer i.mu.Unlock()
	if id == "default" {
		return i.standard
	}
	return i.kernels[id]
}

func (i *interpreter) restart(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	old := i.named(id)
	if old == nil {
		refuse(w, http.StatusNotFound, "Context %s not found", id)
		return
	}
	old.disconnect()
	if err := i.jupyter.call(r.Context(), http.MethodPost, "/api/kernels/"+old.id+"/restart", nil, nil); err != nil {
		refuse(w, http.StatusInternalServerError, "Failed to restart context %s", id)
		return
	}
	k := &kernel{
		jupyter: old.jupyter, id: old.id, session: old.session, language: old.language, cwd: old.cwd,
		turn: make(chan struct{}, 1), running: map[string]*running{},
	}
	if err := k.connect(r.Context()); err != nil {
		refuse(w, http.StatusInternalServerError, "Failed to restart context %s", id)
		return
	}
	i.mu.Lock()
	if _, listed := i.kernels[old.id]; listed {
		i.kernels[old.id] = k
	}
	i.mu.Unlock()
	answer(w, nil)
}

func (i *interpreter) remove(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	k := i.named(id)
	if k == nil {
		refuse(w, http.StatusNotFound, "Context %s not found", id)
		return
	}
	k.disconnect()
	if err := i.jupyter.call(r.Context(), http.MethodDelete, "/api/kernels/"+k.id, nil, nil); err != nil {
		refuse(w, http.StatusInternalServerError, "Failed to remove context %s", id)
		return
	}
	i.mu.Lock()
	delete(i.kernels, k.id)
	i.order = slices.DeleteFunc(i.order, func(other string) bool { return other == k.id })
	i.mu.Unlock()
	answer(w, nil)
}

// kernelOf returns the kernel of a language's context. If there is no such context, kernelOf
// creates it.
func (i *interpreter) kernelOf(ctx context.Context, language string) (*kernel, error) {
	i.creating.Lock()
	defer i.creating.Unlock()
	i.mu.Lock()
	id, known := i.languages[language]
	k := i.kernels[id]
	i.mu.Unlock()
	if known {
		return k, nil // nil when it was removed: the service does not notice
	}
	k, err := i.create(ctx, language, userHome)
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.languages[language] = k.id
	return k, nil
}

func (i *interpreter) execute(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Code      string            `json:"code"`
		ContextID string            `json:"context_id"`
		Language  string            `json:"language"`
		EnvVars   map[string]string `json:"env_vars"`
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		refuse(w, http.StatusUnprocessableEntity, "%v", err)
		return
	}
	// The rest of the body is read so that the server notices when the client goes
	// away.
	_, _ = io.Copy(io.Discard, r.Body)
	ctx := r.Context()
	var k *kernel
	switch {
	case request.ContextID != "" && request.Language != "":
		refuse(w, http.StatusBadRequest, "Only one of context_id or language can be provided")
		return
	case request.Language != "":
		var err error
		if k, err = i.kernelOf(ctx, normalLanguage(request.Language)); err != nil {
			refuse(w, http.StatusInternalServerError, "%v", err)
			return
		}
	default:
		k = i.named(cmp.Or(request.ContextID, "default"))
	}
	if k == nil {
		refuse(w, http.StatusNotFound, "Context %s not found", cmp.Or(request.ContextID, "None"))
		return
	}
	w.Header()["Content-Type"] = nil
	out := http.NewResponseController(w)
	_ = out.Flush() // the client may be gone; also below
	select {
	case k.turn <- struct{}{}:
	case <-ctx.Done():
		return
	}
	release := sync.OnceFunc(func() { <-k.turn })
	defer release()
	tell := func(l line) error {
		if err := json.NewEncoder(w).Encode(l); err != nil {
			return err
		}
		return out.Flush()
	}
	code := request.Code
	if k.globals == nil {
		k.globals = i.envs(r.Header.Get("X-Access-Token"))
		code = prefixed(code, k.globals, request.EnvVars)
	} else {
		code = prefixed(code, nil, request.EnvVars)
	}
	running, err := k.send(ctx, code, false)
	if err != nil {
		_ = tell(line{"type": "error", "name": "WebSocketError", "value": "Failed to send execution request", "traceback": ""})
		_ = tell(line{"type": "end_of_execution"})
		return
	}
	if err := running.follow(ctx, tell); err != nil {
		// This is the fault of the original: the next request reaches the kernel
		// before the interrupt does, and is dropped together with the interrupted
		// code.
		release()
		i.after.Go(func() {
			timer := time.NewTimer(interruptDelay)
			defer timer.Stop()
			select {
			case <-timer.C:
				_ = k.interrupt(i.ctx) // the kernel may be gone
			case <-i.ctx.Done():
			}
		})
		return
	}
	_ = tell(line{"type": "end_of_execution"})
	if len(request.EnvVars) > 0 {
		if running, err := k.send(i.ctx, restoring(k.globals, request.EnvVars), true); err == nil {
			_ = running.follow(i.ctx, func(line) error { return nil })
		}
	}
}

// prefixed returns code, preceded by assignments of environment variables. It writes the
// assignments as the real service does: without any quoting, and indented like the code.
func prefixed(code string, all ...map[string]string) string {
	first := strings.TrimLeft(code, "\n")
	indent := first[:len(first)-len(strings.TrimLeft(first, " \t"))]
	var prefix strings.Builder
	for _, envs := range all {
		for _, name := range slices.Sorted(maps.Keys(envs)) {
			fmt.Fprintf(&prefix, "%simport os; os.environ['%s'] = '%s'\n", indent, name, envs[name])
		}
	}
	return prefix.String() + code
}

// restoring returns the code that restores the environment variables after one
// call.
func restoring(globals, envs map[string]string) string {
	var code strings.Builder
	for _, name := range slices.Sorted(maps.Keys(envs)) {
		if value, global := globals[name]; global {
			fmt.Fprintf(&code, "import os; os.environ['%s'] = '%s'\n", name, value)
		} else {
			fmt.Fprintf(&code, "import os; del os.environ['%s']\n", name)
		}
	}
	return code.String()
}
