//go:build linux

package envd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
)

type composeRequest struct {
	SourcePaths []string `json:"source_paths"`
	Destination string   `json:"destination"`
	Username    string   `json:"username"`
}

// compose answers POST /files/compose. It joins the source files of the request into one file, and
// removes the source files.
func (s *Server) compose(w http.ResponseWriter, r *http.Request) {
	const maxRequest = 1 << 20
	var req composeRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(&req); err != nil {
		writeError(w, http.StatusBadRequest, fmt.Sprintf("error decoding request: %v", err))
		return
	}
	destination, err := s.composeFiles(&req)
	if err == nil {
		writeAnswer(w, written{Name: filepath.Base(destination), Path: destination, Type: "file"})
		return
	}
	status := http.StatusInternalServerError
	if refusal := (*uploadError)(nil); errors.As(err, &refusal) {
		status = refusal.status
	}
	if isFull(err) {
		status, err = http.StatusInsufficientStorage, errors.New("not enough disk space available")
	}
	writeError(w, status, err.Error())
}

func (s *Server) composeFiles(req *composeRequest) (string, error) {
	user, err := s.users.lookup(req.Username)
	if err != nil {
		return "", &uploadError{http.StatusUnauthorized, err}
	}
	if len(req.SourcePaths) == 0 {
		return "", refuse(http.StatusBadRequest, "source_paths must not be empty")
	}
	if req.Destination == "" {
		return "", refuse(http.StatusBadRequest, "destination is required")
	}
	destination, err := s.paths.resolve(req.Destination, user)
	if err != nil {
		return "", &uploadError{http.StatusBadRequest, err}
	}
	old, err := os.Stat(destination)
	switch {
	case err == nil && old.IsDir():
		return "", refuse(http.StatusBadRequest, "destination is a directory: %s", destination)
	case err != nil && !isMissing(err):
		return "", err
	}
	sources := make([]string, len(req.SourcePaths))
	for i, path := range req.SourcePaths {
		if sources[i], err = s.paths.resolve(path, user); err != nil {
			return "", &uploadError{http.StatusBadRequest, err}
		}
		info, err := os.Stat(sources[i])
		switch {
		// The files are compared and not their paths, because a file may have several paths. A
		// source that is the destination must not be removed.
		case err == nil && os.SameFile(info, old):
			return "", refuse(http.StatusBadRequest, "source path equals destination: %s", sources[i])
		case isMissing(err):
			return "", refuse(http.StatusNotFound, "source file not found: %s", sources[i])
		case err != nil:
			return "", err
		case !info.Mode().IsRegular():
			return "", refuse(http.StatusBadRequest, "source is not a regular file: %s", sources[i])
		}
	}
	if err := makeDirs(filepath.Dir(destination), user); err != nil {
		return "", fmt.Errorf("error ensuring directories: %w", err)
	}
	if err := concatenate(destination, sources, user); err != nil {
		return "", err
	}
	for _, path := range sources {
		if err := os.Remove(path); err != nil && !isMissing(err) { // a source may be named twice
			return "", fmt.Errorf("error removing a source: %w", err)
		}
	}
	return destination, nil
}

// concatenate joins the sources in a temporary file beside destination, and renames this file
// to destination.
func concatenate(destination string, sources []string, user *User) (err error) {
	f, err := os.CreateTemp(filepath.Dir(destination), ".compose-")
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err == nil {
			err = os.Rename(f.Name(), destination)
		}
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := owned(user, f.Chown(int(user.UID), int(user.GID))); err != nil {
		return err
	}
	for _, path := range sources {
		if err := appendFile(f, path); err != nil {
			return err
		}
	}
	return nil
}

func appendFile(to *os.File, path string) error {
	from, err := openRegular(path)
	if err != nil {
		return err
	}
	defer from.Close()
	_, err = io.Copy(to, from)
	return err
}
