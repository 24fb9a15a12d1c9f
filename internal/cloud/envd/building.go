//go:build linux

package envd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strconv"

	"github.com/e2bctl/e2bctl/internal/cloud/treecopy"
)

// The routes in this file serve builds of templates of the local cloud. E2B's envd does not
// have them. They act as root of the sandbox and run none of its programs.

// serveBuilding adds the routes for builds.
func (s *Server) serveBuilding(r *router) {
	r.handle(http.MethodPost, "/local/place", building(s.place))
	r.handle(http.MethodGet, "/local/pack", s.pack)
	r.handle(http.MethodPost, "/local/directory", building(s.directory))
	r.handle(http.MethodPost, "/local/account", building(s.account))
}

// building returns a handler that answers with the result of a function.
func building(do func(r *http.Request, query url.Values) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer, err := do(r, r.URL.Query())
		if err != nil {
			_, _ = io.Copy(io.Discard, r.Body) // clients send the whole body before they read the answer
			writeError(w, http.StatusUnprocessableEntity, bounded(err.Error()))
			return
		}
		writeAnswer(w, answer)
	}
}

// place copies files from an archive, with [treecopy.Place].
func (s *Server) place(r *http.Request, query url.Values) (any, error) {
	p := treecopy.Placement{Source: query.Get("source"), Target: query.Get("target")}
	if !path.IsAbs(p.Target) {
		return nil, errors.New("the target is not absolute")
	}
	parents, err := s.ownerNamed(query.Get("user"))
	if err != nil {
		return nil, err
	}
	if parents == nil {
		return nil, errors.New("the user is missing")
	}
	p.Parents = *parents
	if p.Owner, err = s.ownerNamed(query.Get("owner")); err != nil {
		return nil, err
	}
	if mode := query.Get("mode"); mode != "" {
		bits, err := strconv.ParseUint(mode, 8, 32)
		if err != nil {
			return nil, fmt.Errorf("the mode '%s' is not octal", mode)
		}
		p.Mode = new(uint32(bits))
	}
	return struct{}{}, treecopy.Place(r.Body, p)
}

// ownerNamed returns the ids for "user" or "user:group". Both parts are names or numbers. It
// returns nil for an empty text.
func (s *Server) ownerNamed(text string) (*treecopy.Owner, error) {
	if text == "" {
		return nil, nil
	}
	user, err := s.users.named(text)
	if errors.Is(err, ErrNoID) && s.anyOwner {
		user, err = s.users.find(text), nil
	}
	if err != nil {
		return nil, err
	}
	return &treecopy.Owner{UID: user.UID, GID: user.GID}, nil
}

// pack answers with an archive of files, from [treecopy.Pack].
func (s *Server) pack(w http.ResponseWriter, r *http.Request) {
	found, err := treecopy.Find(r.URL.Query().Get("source"))
	if err != nil {
		writeError(w, http.StatusUnprocessableEntity, bounded(err.Error()))
		return
	}
	w.Header().Set("Content-Type", "application/x-tar")
	if err := treecopy.Pack(w, found); err != nil {
		panic(http.ErrAbortHandler) // shows the client that the archive is not complete
	}
}

// directory creates a directory that belongs to a user.
func (s *Server) directory(_ *http.Request, query url.Values) (any, error) {
	dir := query.Get("path")
	if !path.IsAbs(dir) {
		return nil, errors.New("the path is not absolute")
	}
	owner, err := s.ownerNamed(cmp.Or(query.Get("user"), s.users.fallback.Name))
	if err != nil {
		return nil, err
	}
	made, err := treecopy.MakeDirs(path.Clean(dir), *owner)
	return map[string]bool{"changed": made}, err
}
