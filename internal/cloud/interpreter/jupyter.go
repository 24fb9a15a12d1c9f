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
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/kernel"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel/zmq"
	"github.com/e2bctl/e2bctl/internal/lazyregexp"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// jupyterVersion is the version of jupyter_server whose API this package
// implements.
const jupyterVersion = "2.20.0"

// Jupyter returns the handler of port 8888.
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
	mux.HandleFunc("DELETE /api/sessions/{id}", s.withSession(s.deleteSession))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		jupyterError(w, http.StatusNotFound, fmt.Sprintf("%s %.100q is not served: this server has only kernels and sessions", r.Method, r.URL.Path))
	})
	return s.authorized(mux)
}

// authorized wraps next. If the sandbox has a token, requests must have the token. Requests that a
// browser sends for a page of another origin are refused.
func (s *Server) authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !s.hasToken(r):
			jupyterError(w, http.StatusForbidden, "Forbidden")
			return
		case !sameOrigin(r):
			jupyterError(w, http.StatusForbidden, "Cross origin requests are not allowed: Origin must match Host")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// sameOrigin reports whether a request has the origin of this server. It also accepts a request
// without an Origin, because only browsers send one.
func sameOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && strings.EqualFold(u.Host, r.Host)
}

func (s *Server) hasToken(r *http.Request) bool {
	want := s.options.Token()
	if want == "" {
		return true
	}
	given := []string{r.Header.Get(protocol.HeaderAccess), r.URL.Query().Get("token")}
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok &&
		(strings.EqualFold(scheme, "token") || strings.EqualFold(scheme, "bearer")) {
		given = append(given, strings.TrimSpace(token))
	}
	return slices.ContainsFunc(given, func(token string) bool {
		return subtle.ConstantTimeCompare([]byte(token), []byte(want)) == 1
	})
}

func jupyterError(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, map[string]any{"message": message, "reason": nil})
}

// maxJupyterBody bounds the bytes of a request's body. A body contains little more than the name of a
// kernel or session.
const maxJupyterBody = 64 << 10

// readJupyter decodes the body of a request. The body may be empty. If the body is malformed,
// readJupyter answers the request with the error and returns false.
func readJupyter(w http.ResponseWriter, r *http.Request, into any) bool {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxJupyterBody))
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

// specModels returns the kernels that can be started, keyed by name.
func (s *Server) specModels() map[string]any {
	list := map[string]any{}
	environ, err := s.options.Environ()
	if err != nil {
		return list
	}
	argv := s.python(environ)
	switch {
	case s.options.Wasm != nil:
		argv = s.options.Wasm.Command
	case argv != nil:
		argv = append(argv, s.driver)
	}
	if argv != nil {
		list["python3"] = specModel(&zmq.Spec{
			Name: "python3", Argv: argv, DisplayName: "Python 3", Language: "python",
			InterruptMode: "signal", Metadata: json.RawMessage("{}"),
		})
	}
	if specs, err := s.kernelspecs(); err == nil {
		for _, spec := range specs.All() {
			if _, ours := list[spec.Name]; !ours {
				list[spec.Name] = specModel(spec)
			}
		}
	}
	return list
}

func specModel(spec *zmq.Spec) map[string]any {
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
	if body.KernelID != "" && (len(body.KernelID) > maxKernelID || !kernelID().MatchString(body.KernelID)) {
		jupyterError(w, http.StatusBadRequest, fmt.Sprintf("kernel_id %.64q does not have the form of a UUID", body.KernelID))
		return
	}
	spec, err := s.kernelFor(strings.ToLower(body.Name))
	if err != nil {
		reason := err.Error()
		if missing, ok := errors.AsType[errNoKernel](err); ok {
			reason = fmt.Sprintf("No such kernel named %.64s", missing.name)
		}
		writeJSON(w, http.StatusInternalServerError, map[string]any{"message": "Unhandled error", "reason": reason, "traceback": ""})
		return
	}
	k, err := s.addKernel(&runningKernel{id: body.KernelID, spec: spec, cwd: s.directory(body.Path)})
	if err != nil {
		refuseKernel(w, err)
		return
	}
	s.background(k.startQuietly)
	w.Header().Set("Location", "/api/kernels/"+k.id)
	writeJSON(w, http.StatusCreated, s.kernelModel(k))
}

const maxKernelID = 128

// kernelID matches the kernel ids that the URL paths of Jupyter's API accept.
var kernelID = lazyregexp.New(`^\w+-\w+-\w+-\w+-\w+$`)

// refuseKernel answers a request that needs a new kernel, if the kernel cannot be created.
func refuseKernel(w http.ResponseWriter, err error) {
	status := http.StatusConflict
	if errors.Is(err, kernel.ErrClosed) {
		status = http.StatusServiceUnavailable
	}
	jupyterError(w, status, err.Error())
}

// directory returns the directory for a path below the root of Jupyter's paths. If this directory
// does not exist, directory returns the nearest existing parent.
func (s *Server) directory(relative string) string {
	for p := path.Clean("/" + relative); p != "/"; p = path.Dir(p) {
		full := filepath.Join(s.options.Dir, p)
		if isDirectory(full) {
			return full
		}
	}
	return s.options.Dir
}

// startQuietly starts the kernel's process before the process is needed. It drops an error of the
// start, because the first request to the kernel returns the error.
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
