//go:build linux

package interpreter

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// session is a Jupyter session: it gives a kernel a name, as notebooks do. Server.mu guards the
// session.
type session struct {
	id, path, name, kind string
	kernel               *runningKernel
	// gone means that the kernel was removed. The session is kept so that the removal can be reported
	// once.
	gone bool
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

// liveSessions removes sessions whose kernels were removed, and returns the other sessions.
func (s *Server) liveSessions() []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions = slices.DeleteFunc(s.sessions, func(o *session) bool { return o.gone })
	return slices.Clone(s.sessions)
}

func (s *Server) getSessions(w http.ResponseWriter, _ *http.Request) {
	list := []any{}
	for _, o := range s.liveSessions() {
		list = append(list, s.sessionModel(o))
	}
	writeJSON(w, http.StatusOK, list)
}

// sessionBody is the body of POST and PATCH requests.
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
	s.creating.Lock()
	defer s.creating.Unlock()
	sessions := s.liveSessions()
	if i := slices.IndexFunc(sessions, func(o *session) bool { return s.pathOf(o) == *body.Path }); i >= 0 {
		writeJSON(w, http.StatusCreated, s.sessionModel(sessions[i]))
		return
	}
	if len(sessions) >= maxSessions {
		jupyterError(w, http.StatusConflict, fmt.Sprintf("too many sessions: the limit of a sandbox is %d", maxSessions))
		return
	}
	k := s.sessionKernel(w, &body)
	if k == nil {
		return
	}
	o := &session{id: jupyter.NewID(), path: *body.Path, kind: *body.Type, kernel: k}
	if body.Name != nil {
		o.name = *body.Name
	}
	s.mu.Lock()
	s.sessions = append(s.sessions, o)
	s.mu.Unlock()
	w.Header().Set("Location", "/api/sessions/"+o.id)
	writeJSON(w, http.StatusCreated, s.sessionModel(o))
}

func (s *Server) pathOf(o *session) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return o.path
}

// sessionKernel returns the kernel for a session. If necessary, it creates the kernel. If
// sessionKernel cannot return a kernel, it answers the request with the error and returns nil.
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
		refuseKernel(w, err)
		return nil
	}
	s.background(k.startQuietly)
	return k
}

// patchSession changes a session. If the session gets another kernel, the previous kernel is
// removed, as in Jupyter.
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
	before := o.kernel
	if k != nil {
		o.kernel = k
	}
	s.mu.Unlock()
	if k != nil && k != before {
		s.removeKernel(before)
	}
	writeJSON(w, http.StatusOK, s.sessionModel(o))
}

func (s *Server) deleteSession(w http.ResponseWriter, _ *http.Request, o *session) {
	s.forgetSession(o)
	s.mu.Lock()
	k := o.kernel
	s.mu.Unlock()
	s.removeKernel(k)
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) forgetSession(o *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions = slices.DeleteFunc(s.sessions, func(other *session) bool { return other == o })
}

func (s *Server) withSession(do func(http.ResponseWriter, *http.Request, *session)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		s.mu.Lock()
		var o *session
		gone := false
		if i := slices.IndexFunc(s.sessions, func(o *session) bool { return o.id == id }); i >= 0 {
			o, gone = s.sessions[i], s.sessions[i].gone
		}
		s.mu.Unlock()
		switch {
		case o == nil:
			jupyterError(w, http.StatusNotFound, fmt.Sprintf("Session not found: session_id=%.64q", id))
		case gone:
			s.forgetSession(o)
			jupyterError(w, http.StatusGone, "Kernel deleted before session")
		default:
			do(w, r, o)
		}
	}
}
