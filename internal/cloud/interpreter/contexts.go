//go:build linux

package interpreter

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
)

// Interpreter returns the handler of port 49999.
func (s *Server) Interpreter() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, "OK") })
	mux.HandleFunc("POST /execute", s.execute)
	mux.HandleFunc("GET /contexts", s.listContexts)
	mux.HandleFunc("POST /contexts", s.createContext)
	mux.HandleFunc("POST /contexts/{id}/restart", s.restartContext)
	mux.HandleFunc("DELETE /contexts/{id}", s.removeContext)
	return allowOrigins(mux)
}

// allowOrigins allows browser requests from every origin, as the service does. This port is
// protected by the sandbox's id, which is known only to the owner of the sandbox.
func allowOrigins(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Origin") != "" {
			w.Header().Set("Access-Control-Allow-Origin", "*")
			if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
				w.Header().Set("Access-Control-Allow-Methods", "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT")
				w.Header().Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
				w.Header().Set("Access-Control-Max-Age", "600")
				w.WriteHeader(http.StatusOK)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

type contextModel struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	CWD      string `json:"cwd"`
}

func (k *runningKernel) contextModel() contextModel {
	return contextModel{ID: k.id, Language: k.language, CWD: k.cwd}
}

func (s *Server) listContexts(w http.ResponseWriter, _ *http.Request) {
	list := []contextModel{}
	for _, k := range s.listKernels() {
		if !k.isContext {
			continue
		}
		list = append(list, k.contextModel())
		if k.isDefault && k.spec == nil {
			// A client that lists contexts will soon use one, so start it now.
			s.background(k.startQuietly)
		}
	}
	writeJSON(w, http.StatusOK, list)
}

func (s *Server) createContext(w http.ResponseWriter, r *http.Request) {
	var language, cwd string
	if !readBody(w, r, field{name: "language", take: stringInto(&language)}, field{name: "cwd", take: stringInto(&cwd)}) {
		return
	}
	k, err := s.newContext(normalLanguage(language), cmp.Or(cwd, s.options.Dir), false)
	if err != nil {
		writeError(w, http.StatusInternalServerError, err.Error())
		return
	}
	if k.spec == nil {
		s.background(k.startQuietly)
	} else if _, err := k.Start(r.Context()); err != nil {
		s.removeKernel(k)
		writeError(w, http.StatusInternalServerError, "Failed to create context: "+err.Error())
		return
	}
	writeJSON(w, http.StatusOK, k.contextModel())
}

// absolute returns the absolute path of a directory that a client names. A relative path is below
// the directory of the kernels.
func (s *Server) absolute(cwd string) string {
	if filepath.IsAbs(cwd) {
		return cwd
	}
	return filepath.Join(s.options.Dir, cwd)
}

// newContext creates a context. The error has the same text as that of the service.
func (s *Server) newContext(language, cwd string, isDefault bool) (*runningKernel, error) {
	spec, err := s.kernelFor(language)
	if err != nil {
		return nil, fmt.Errorf("Failed to create context: %w", err) //nolint:staticcheck // the service's words
	}
	if spec != nil && !isDirectory(s.absolute(cwd)) { // otherwise, Python runs in its own directory
		return nil, errors.New("Failed to set working directory") //nolint:staticcheck // the service's words
	}
	k, err := s.addKernel(&runningKernel{spec: spec, isContext: true, isDefault: isDefault, language: language, cwd: cwd})
	if err != nil {
		return nil, fmt.Errorf(`Failed to create context: %w`, err) //nolint:staticcheck // the service's words
	}
	return k, nil
}

// defaultContext returns the context for code in a language when the request names no context.
func (s *Server) defaultContext(language string) (*runningKernel, error) {
	s.creating.Lock()
	defer s.creating.Unlock()
	k := s.find(func(k *runningKernel) bool { return k.isDefault && k.language == language })
	if k != nil {
		return k, nil
	}
	return s.newContext(language, s.options.Dir, true)
}

func (s *Server) restartContext(w http.ResponseWriter, r *http.Request) {
	k := s.contextByID(w, r.PathValue("id"))
	if k == nil {
		return
	}
	if err := k.Restart(r.Context()); err != nil {
		s.options.Logger.WarnContext(r.Context(), "restart a context", "error", err)
		writeError(w, http.StatusInternalServerError, "Failed to restart context "+k.id)
		return
	}
	writeJSON(w, http.StatusOK, nil)
}

func (s *Server) removeContext(w http.ResponseWriter, r *http.Request) {
	if k := s.contextByID(w, r.PathValue("id")); k != nil {
		s.removeKernel(k)
		writeJSON(w, http.StatusOK, nil)
	}
}

// contextByID returns the context with an id. If there is none, it answers 404 and returns nil. The
// id "default" stands for the default context of Python.
func (s *Server) contextByID(w http.ResponseWriter, id string) *runningKernel {
	k := s.find(func(k *runningKernel) bool {
		return k.isContext && (k.id == id || id == "default" && k.isDefault && k.language == "python")
	})
	if k == nil {
		writeError(w, http.StatusNotFound, fmt.Sprintf("Context %.64s not found", id))
	}
	return k
}

// writeError answers with a message as the service does. The body is the message without the
// newline that http.Error adds, because clients display or compare it.
func writeError(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, message)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		writeError(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data)
}
