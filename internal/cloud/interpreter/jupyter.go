//go:build linux

package interpreter

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/kernel"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// jupyterVersion is the jupyter_server whose API this is.
const jupyterVersion = "2.20.0"

// Jupyter answers on port 8888.
func (s *Server) Jupyter() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"version": jupyterVersion})
	})
	mux.HandleFunc("GET /api/status", s.status)
	mux.HandleFunc("GET /api/kernelspecs", s.getKernelspecs)
	mux.HandleFunc("GET /api/kernelspecs/{name}", s.getKernelspec)
	mux.HandleFunc("GET /api/kernels", s.getKernels)
	mux.HandleFunc("POST /api/kernels", s.postKernel)
	mux.HandleFunc("GET /api/kernels/{id}", s.withKernel(func(w http.ResponseWriter, _ *http.Request, k *runningKernel) {
		writeJSON(w, http.StatusOK, s.kernelModel(k))
	}))
	mux.HandleFunc("DELETE /api/kernels/{id}", s.withKernel(func(w http.ResponseWriter, _ *http.Request, k *runningKernel) {
		s.removeKernel(k)
		w.WriteHeader(http.StatusNoContent)
	}))
	mux.HandleFunc("POST /api/kernels/{id}/interrupt", s.withKernel(func(w http.ResponseWriter, _ *http.Request, k *runningKernel) {
		k.Interrupt()
		w.WriteHeader(http.StatusNoContent)
	}))
	mux.HandleFunc("POST /api/kernels/{id}/restart", s.withKernel(s.restartKernel))
	mux.HandleFunc("GET /api/kernels/{id}/channels", s.withKernel(s.channels))
	mux.HandleFunc("GET /api/sessions", s.getSessions)
	mux.HandleFunc("POST /api/sessions", s.postSession)
	mux.HandleFunc("GET /api/sessions/{id}", s.withSession(func(w http.ResponseWriter, _ *http.Request, o *session) {
		writeJSON(w, http.StatusOK, s.sessionModel(o))
	}))
	mux.HandleFunc("PATCH /api/sessions/{id}", s.withSession(s.patchSession))
	mux.HandleFunc("DELETE /api/sessions/{id}", s.withSession(func(w http.ResponseWriter, _ *http.Request, o *session) {
		s.removeKernel(o.kernel)
		w.WriteHeader(http.StatusNoContent)
	}))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		jupyterError(w, http.StatusNotFound, fmt.Sprintf("%s %.100q is not served: this is a server for kernels and sessions alone", r.Method, r.URL.Path))
	})
	return s.authorized(mux)
}

// authorized asks for the sandbox's token, where it has one.
func (s *Server) authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.options.Token != "" && !s.hasToken(r) {
			writeJSON(w, http.StatusForbidden, map[string]any{"message": "Forbidden", "reason": nil})
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) hasToken(r *http.Request) bool {
	given := []string{r.Header.Get("X-Access-Token"), r.URL.Query().Get("token")}
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok &&
		(strings.EqualFold(scheme, "token") || strings.EqualFold(scheme, "bearer")) {
		given = append(given, strings.TrimSpace(token))
	}
	return slices.ContainsFunc(given, func(token string) bool {
		return subtle.ConstantTimeCompare([]byte(token), []byte(s.options.Token)) == 1
	})
}

func jupyterError(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, map[string]any{"message": message, "reason": nil})
}

// readJupyter decodes a body that may be empty.
func readJupyter(w http.ResponseWriter, r *http.Request, into any) bool {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err == nil && len(data) > 0 {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		jupyterError(w, http.StatusBadRequest, "Invalid JSON in body of request")
	}
	return err == nil
}

func jupyterTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

type kernelModel struct {
	ID             string `json:"id"`
	Name           string `json:"name"`
	LastActivity   string `json:"last_activity"`
	ExecutionState string `json:"execution_state"`
	Connections    int    `json:"connections"`
}

func (s *Server) kernelModel(k *runningKernel) kernelModel {
	state, activity := k.State()
	return kernelModel{ID: k.id, Name: k.kernelName(), LastActivity: jupyterTime(activity), ExecutionState: state, Connections: s.connections(k)}
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	kernels := s.listKernels()
	last, connections := s.began, 0
	for _, k := range kernels {
		if _, activity := k.State(); activity.After(last) {
			last = activity
		}
		connections += s.connections(k)
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"connections": connections, "kernels": len(kernels), "last_activity": jupyterTime(last), "started": jupyterTime(s.began),
	})
}

func (s *Server) getKernelspecs(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"default": "python3", "kernelspecs": s.specModels()})
}

func (s *Server) getKernelspec(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	spec, ok := s.specModels()[name]
	if !ok {
		jupyterError(w, http.StatusNotFound, fmt.Sprintf("Kernel spec %.64s not found", name))
		return
	}
	writeJSON(w, http.StatusOK, spec)
}

// specModels returns the kernels that can be started, by name.
func (s *Server) specModels() map[string]any {
	list := map[string]any{"python3": specModel(&kernel.Kernelspec{
		Name: "python3", Argv: append(slices.Clone(s.options.Python), s.driver), DisplayName: "Python 3", Language: "python",
		InterruptMode: "signal", Metadata: json.RawMessage("{}"),
	})}
	if specs, err := s.kernelspecs(); err == nil {
		for _, spec := range specs.All() {
			if _, ours := list[spec.Name]; !ours {
				list[spec.Name] = specModel(spec)
			}
		}
	}
	return list
}

func specModel(spec *kernel.Kernelspec) map[string]any {
	env := spec.Env
	if env == nil {
		env = map[string]string{}
	}
	return map[string]any{
		"name": spec.Name,
		"spec": map[string]any{
			"argv": spec.Argv, "display_name": spec.DisplayName, "language": spec.Language,
			"interrupt_mode": spec.InterruptMode, "env": env, "metadata": spec.Metadata,
		},
		"resources": map[string]string{},
	}
}

func (s *Server) getKernels(w http.ResponseWriter, _ *http.Request) {
	list := []kernelModel{}
	for _, k := range s.listKernels() {
		list = append(list, s.kernelModel(k))
	}
	writeJSON(w, http.StatusOK, list)
}

func (s *Server) postKernel(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Name     string `json:"name"`
		Path     string `json:"path"`
		KernelID string `json:"kernel_id"`
	}
	if !readJupyter(w, r, &body) {
		return
	}
	spec, err := s.kernelFor(strings.ToLower(body.Name))
	if err != nil {
		reason := err.Error()
		if missing, ok := errors.AsType[errNoKernel](err); ok {
			reason = fmt.Sprintf("No such kernel named %.64s", string(missing))
		}
		writeJSON(w, http.StatusInternalServerError, map[string]any{"message": "Unhandled error", "reason": reason, "traceback": ""})
		return
	}
	k, err := s.addKernel(&runningKernel{id: body.KernelID, spec: spec, cwd: s.directory(body.Path)})
	if err != nil {
		jupyterError(w, http.StatusConflict, err.Error())
		return
	}
	s.background(k.startQuietly)
	w.Header().Set("Location", "/api/kernels/"+k.id)
	writeJSON(w, http.StatusCreated, s.kernelModel(k))
}

// directory is the nearest directory to a path below the root.
func (s *Server) directory(relative string) string {
	for p := path.Clean("/" + relative); p != "/"; p = path.Dir(p) {
		full := filepath.Join(s.options.Dir, p)
		if isDirectory(full) {
			return full
		}
	}
	return s.options.Dir
}

// startQuietly starts the process early; the first request tells the error.
func (k *runningKernel) startQuietly(ctx context.Context) { _, _ = k.Start(ctx) }

func (s *Server) withKernel(do func(http.ResponseWriter, *http.Request, *runningKernel)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		k := s.kernelByID(id)
		if k == nil {
			jupyterError(w, http.StatusNotFound, fmt.Sprintf("Kernel does not exist: %.64s", id))
			return
		}
		do(w, r, k)
	}
}

func (s *Server) restartKernel(w http.ResponseWriter, r *http.Request, k *runningKernel) {
	if err := k.Restart(r.Context()); err != nil {
		jupyterError(w, http.StatusInternalServerError, err.Error())
		return
	}
	writeJSON(w, http.StatusOK, s.kernelModel(k))
}

// session names a kernel, as notebooks do.
type session struct {
	id, path, name, kind string
	kernel               *runningKernel
}

func (s *Server) sessionModel(o *session) map[string]any {
	s.mu.Lock()
	model := map[string]any{
		"id": o.id, "path": o.path, "name": o.name, "type": o.kind, "notebook": map[string]string{"path": o.path, "name": o.name},
	}
	k := o.kernel
	s.mu.Unlock()
	model["kernel"] = s.kernelModel(k)
	return model
}

func (s *Server) getSessions(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	sessions := slices.Clone(s.sessions)
	s.mu.Unlock()
	list := []any{}
	for _, o := range sessions {
		list = append(list, s.sessionModel(o))
	}
	writeJSON(w, http.StatusOK, list)
}

// sessionBody is what POST and PATCH may say.
type sessionBody struct {
	Path   *string `json:"path"`
	Name   *string `json:"name"`
	Type   *string `json:"type"`
	Kernel *struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"kernel"`
}

func (s *Server) postSession(w http.ResponseWriter, r *http.Request) {
	var body sessionBody
	if !readJupyter(w, r, &body) {
		return
	}
	switch {
	case body.Path == nil:
		jupyterError(w, http.StatusBadRequest, "Missing field in JSON data: path")
		return
	case body.Type == nil:
		jupyterError(w, http.StatusBadRequest, "Missing field in JSON data: type")
		return
	}
	s.mu.Lock()
	if i := slices.IndexFunc(s.sessions, func(o *session) bool { return o.path == *body.Path }); i >= 0 {
		o := s.sessions[i]
		s.mu.Unlock()
		writeJSON(w, http.StatusCreated, s.sessionModel(o))
		return
	}
	s.mu.Unlock()
	k := s.sessionKernel(w, &body)
	if k == nil {
		return
	}
	o := &session{id: jupyter.NewID(), path: *body.Path, kind: *body.Type, kernel: k}
	if body.Name != nil {
		o.name = *body.Name
	}
	s.mu.Lock()
	full := len(s.sessions) >= maxSessions
	if !full {
		s.sessions = append(s.sessions, o)
	}
	s.mu.Unlock()
	if full {
		jupyterError(w, http.StatusConflict, fmt.Sprintf("too many sessions: the limit of a sandbox is %d", maxSessions))
		return
	}
	w.Header().Set("Location", "/api/sessions/"+o.id)
	writeJSON(w, http.StatusCreated, s.sessionModel(o))
}

// sessionKernel gives the kernel that a session asks for, which may be a new
// one. It answers and gives nil when there can be none.
func (s *Server) sessionKernel(w http.ResponseWriter, body *sessionBody) *runningKernel {
	language, id := "", ""
	if body.Kernel != nil {
		language, id = body.Kernel.Name, body.Kernel.ID
	}
	if id != "" {
		k := s.kernelByID(id)
		if k == nil {
			jupyterError(w, http.StatusNotFound, fmt.Sprintf("Kernel does not exist: %.64s", id))
		}
		return k
	}
	spec, err := s.kernelFor(strings.ToLower(language))
	if missing, ok := errors.AsType[errNoKernel](err); ok {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotImplemented)
		_, _ = io.WriteString(w, missing.Error())
		return nil
	}
	if err != nil {
		jupyterError(w, http.StatusInternalServerError, err.Error())
		return nil
	}
	relative := ""
	if body.Path != nil {
		relative = path.Dir(path.Clean("/" + *body.Path))
	}
	k, err := s.addKernel(&runningKernel{spec: spec, cwd: s.directory(relative)})
	if err != nil {
		jupyterError(w, http.StatusConflict, err.Error())
		return nil
	}
	s.background(k.startQuietly)
	return k
}

func (s *Server) patchSession(w http.ResponseWriter, r *http.Request, o *session) {
	var body sessionBody
	if !readJupyter(w, r, &body) {
		return
	}
	var k *runningKernel
	if body.Kernel != nil {
		if k = s.sessionKernel(w, &body); k == nil {
			return
		}
	}
	s.mu.Lock()
	for to, from := range map[*string]*string{&o.path: body.Path, &o.name: body.Name, &o.kind: body.Type} {
		if from != nil {
			*to = *from
		}
	}
	if k != nil {
		o.kernel = k
	}
	s.mu.Unlock()
	writeJSON(w, http.StatusOK, s.sessionModel(o))
}

func (s *Server) withSession(do func(http.ResponseWriter, *http.Request, *session)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		s.mu.Lock()
		i := slices.IndexFunc(s.sessions, func(o *session) bool { return o.id == id })
		var o *session
		if i >= 0 {
			o = s.sessions[i]
		}
		s.mu.Unlock()
		if o == nil {
			jupyterError(w, http.StatusNotFound, fmt.Sprintf("Session not found: session_id=%.64q", id))
			return
		}
		do(w, r, o)
	}
}
