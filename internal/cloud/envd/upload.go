//go:build linux

package envd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// written describes an uploaded file in the answer.
type written struct {
	Name     string            `json:"name"`
	Path     string            `json:"path"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// uploadError is the answer to an upload that failed.
type uploadError struct {
	status int
	err    error
}

func (e *uploadError) Error() string { return e.err.Error() }
func (e *uploadError) Unwrap() error { return e.err }

func refuse(status int, format string, args ...any) error {
	return &uploadError{status, fmt.Errorf(format, args...)}
}

// upload answers POST /files.
func (s *Server) upload(w http.ResponseWriter, r *http.Request) {
	target, ok := s.fileTarget(w, r, signedWrite)
	if !ok {
		return
	}
	files, err := s.receive(r, target)
	if err != nil {
		status := http.StatusInternalServerError
		message := err.Error()
		if refusal := (*uploadError)(nil); errors.As(err, &refusal) {
			status = refusal.status
		}
		if isFull(err) {
			status, message = http.StatusInsufficientStorage, "not enough disk space available"
			if r.ContentLength > 0 {
				message = fmt.Sprintf("attempted to write %d bytes: %s", r.ContentLength, message)
			}
		}
		writeError(w, status, message)
		return
	}
	// The answer has no JSON content type, as in envd, because clients rely on text/plain.
	answer, err := json.Marshal(files)
	if err != nil {
		writeError(w, http.StatusInternalServerError, err.Error())
		return
	}
	_, _ = w.Write(answer)
}

func (s *Server) receive(r *http.Request, target *fileTarget) ([]written, error) {
	metadata, err := parseMetadata(r.Header)
	if err != nil {
		return nil, &uploadError{http.StatusBadRequest, err}
	}
	body, err := decode(r.Body, r.Header.Get("Content-Encoding"))
	if err != nil {
		return nil, &uploadError{http.StatusBadRequest, err}
	}
	if body == r.Body {
		target.length = r.ContentLength
	}
	contentType := r.Header.Get("Content-Type")
	kind, parameters, err := mime.ParseMediaType(contentType)
	switch {
	case err == nil && strings.HasPrefix(kind, "multipart/"):
		return s.receiveForm(body, parameters["boundary"], target, metadata)
	case err == nil && kind == "application/octet-stream":
		if target.query.Get("path") == "" {
			return nil, refuse(http.StatusBadRequest, "path query parameter is required for application/octet-stream uploads")
		}
		file, err := s.receiveFile(body, target, target.query.Get("path"), metadata)
		if err != nil {
			return nil, err
		}
		return []written{file}, nil
	}
	return nil, refuse(http.StatusBadRequest,
		"unsupported content type: %s, expected multipart/form-data or application/octet-stream", bounded(contentType))
}

func (s *Server) receiveForm(body io.Reader, boundary string, target *fileTarget, metadata map[string]string) ([]written, error) {
	if boundary == "" {
		return nil, fmt.Errorf("error parsing multipart form: %w", http.ErrMissingBoundary)
	}
	files := []written{}
	form := multipart.NewReader(body, boundary)
	for {
		part, err := form.NextRawPart()
		// Only the end after a closing boundary is io.EOF itself. A body without that boundary,
		// for example an empty body, ends with an error that wraps io.EOF.
		if err == io.EOF { //nolint:errorlint // see above
			return files, nil
		}
		if err != nil {
			return nil, fmt.Errorf("error reading form: %w", err)
		}
		if part.FormName() != "file" {
			continue
		}
		name := target.query.Get("path")
		if name == "" {
			if name = wholeFileName(part); name == "" {
				return nil, refuse(http.StatusBadRequest, "no filename in the multipart part and no path query parameter")
			}
		} else if len(files) > 0 {
			return nil, refuse(http.StatusBadRequest,
				"you cannot upload multiple files to the same path '%s', only the first upload was successful", bounded(files[0].Path))
		}
		file, err := s.receiveFile(part, target, name, metadata)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
}

// roomFor returns an error if the disk does not have enough room for an upload. It is called before
// the upload is read, so that an upload that is too large does not fill the disk. It allows one
// block more than is free, because length may include a form around the file. If this block is
// needed after all, the write itself fails.
func (s *Server) roomFor(path string, length int64) error {
	if length <= block {
		return nil
	}
	dir := filepath.Dir(path)
	if info, err := os.Stat(path); err == nil {
		if !info.Mode().IsRegular() {
			return nil // a device stores nothing, and other files are refused later
		}
		dir = s.scratch
	}
	var disk unix.Statfs_t
	for isMissing(unix.Statfs(dir, &disk)) && dir != "/" {
		dir = filepath.Dir(dir) // the upload will create the missing directory
	}
	if free := disk.Bavail * uint64(disk.Bsize); disk.Blocks > 0 && uint64(length-block) > free {
		return unix.ENOSPC
	}
	return nil
}

// wholeFileName returns the file name of a part, including its directories. The library's FileName
// removes the directories.
func wholeFileName(part *multipart.Part) string {
	_, parameters, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	if err != nil {
		return ""
	}
	return parameters["filename"]
}

func (s *Server) receiveFile(body io.Reader, target *fileTarget, path string, metadata map[string]string) (written, error) {
	resolved, err := s.paths.resolve(path, target.user)
	if err != nil {
		return written{}, &uploadError{http.StatusBadRequest, err}
	}
	// The first file of a form may be as long as the form.
	length := target.length
	target.length = 0
	if err := s.roomFor(resolved, length); err != nil {
		return written{}, err
	}
	kept, err := s.storeFile(resolved, body, target.user, metadata)
	if err != nil {
		return written{}, err
	}
	return written{Name: filepath.Base(resolved), Path: resolved, Type: "file", Metadata: kept}, nil
}
