package control

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/connlimit"
	"github.com/e2bctl/e2bctl/internal/cloud/volumes"
)

const (
	pathVolumeContent = "/volumecontent/"
	// contentIdle is the longest time without progress in the transfer of a file.
	contentIdle = time.Minute
	// contentPart is the number of bytes of each write. The client must accept each part within
	// contentIdle.
	contentPart = 1 << 20
)

// contentError is the error body of the content API. Its code is a word.
type contentError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	status  int
}

func (e *contentError) Error() string { return e.Message }

// contentEntry describes a file or directory in a volume, for clients.
type contentEntry struct {
	Name   string       `json:"name"`
	Type   volumes.Kind `json:"type"`
	Path   string       `json:"path"`
	Size   int64        `json:"size"`
	Mode   uint32       `json:"mode"`
	UID    uint32       `json:"uid"`
	GID    uint32       `json:"gid"`
	ATime  time.Time    `json:"atime"`
	MTime  time.Time    `json:"mtime"`
	CTime  time.Time    `json:"ctime"`
	Target string       `json:"target,omitempty"`
}

func contentAnswer(e volumes.Entry) contentEntry {
	return contentEntry{
		Name: e.Name(), Type: e.Kind, Path: e.Path, Size: e.Size, Mode: e.Mode, UID: e.Owner.UID, GID: e.Owner.GID,
		ATime: e.Accessed, MTime: e.Modified, CTime: e.Changed, Target: e.Target,
	}
}

// contentCall is a request about the contents of a volume.
type contentCall struct {
	*volumes.Content
	w     http.ResponseWriter
	r     *http.Request
	query *query
	path  string
}

// contentCalls lists the calls of the content API.
var contentCalls = []struct {
	operation, pattern string
	do                 func(*contentCall) error
}{
	{"StatVolumeFile", "GET /volumecontent/{id}/path", (*contentCall).stat},
	{"SetVolumeFileAttributes", "PATCH /volumecontent/{id}/path", (*contentCall).setAttributes},
	{"RemoveVolumeFile", "DELETE /volumecontent/{id}/path", (*contentCall).remove},
	{"ListVolumeDir", "GET /volumecontent/{id}/dir", (*contentCall).list},
	{"MakeVolumeDir", "POST /volumecontent/{id}/dir", (*contentCall).makeDir},
	{"ReadVolumeFile", "GET /volumecontent/{id}/file", (*contentCall).read},
	{"WriteVolumeFile", "PUT /volumecontent/{id}/file", (*contentCall).write},
}

// contentRoutes returns the handler of the content API.
func (s *Service) contentRoutes() *http.ServeMux {
	mux := http.NewServeMux()
	for _, call := range contentCalls {
		mux.HandleFunc(call.pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := s.content(w, r, call.do); err != nil {
				s.failContent(w, r, err)
			}
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.failContent(w, r, &contentError{"not_found", "no such call of the volume content API: " + bounded(r.Method+" "+r.URL.Path), http.StatusNotFound})
	})
	return mux
}

// content answers one request by calling do. A call closes the content before the last byte of its
// answer, so that a client which then deletes the volume is not told that it is in use.
func (s *Service) content(w http.ResponseWriter, r *http.Request, do func(*contentCall) error) error {
	id := r.PathValue("id")
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return &contentError{"unauthorized", "the token of the volume is missing: send it as Authorization: Bearer", http.StatusUnauthorized}
	}
	if err := s.volumes.Check(id, token); err != nil {
		return err
	}
	connlimit.Admit(r.Context())
	content, err := s.volumes.Open(id)
	if err != nil {
		return err
	}
	defer content.Close()
	q := &query{values: r.URL.Query()}
	if err := do(&contentCall{content, w, r, q, q.Get("path")}); err != nil {
		return err
	}
	q.logIgnored(r.Context())
	return nil
}

// failContent writes the error answer of the content API.
func (s *Service) failContent(w http.ResponseWriter, r *http.Request, err error) {
	e := contentErrorFor(err)
	if e.status == http.StatusInternalServerError {
		s.options.Logger.ErrorContext(r.Context(), "volume content", "method", r.Method, "path", bounded(r.URL.Path), "error", err)
	}
	writeJSON(w, e.status, e)
}

// contentErrors maps errors of package volumes to answers. The first match counts.
var contentErrors = []struct {
	err     error
	status  int
	code    string
	message string
}{
	{volumes.ErrToken, http.StatusUnauthorized, "unauthorized", "the token is not valid for this volume, or no longer: get the volume again, which has a new one"},
	{volumes.ErrNotFound, http.StatusNotFound, "volume_not_found", "there is no such volume"},
	{volumes.ErrPath, http.StatusBadRequest, "invalid_path", "the path is empty or too long, or a link on it leads out of the volume"},
	{volumes.ErrAttributes, http.StatusBadRequest, "invalid_attributes", "mode must be at most 4095 (0o7777), and uid and gid at most 65535"},
	{volumes.ErrTooLong, http.StatusBadRequest, "too_many_entries", "the list has too many entries: ask for directories in it, with depth 1"},
	{volumes.ErrNotDir, http.StatusBadRequest, "not_a_directory", "the path is not that of a directory"},
	{volumes.ErrNotFile, http.StatusBadRequest, "not_a_file", "the path is neither that of a file nor of a directory"},
	{volumes.ErrIsDir, http.StatusConflict, "is_a_directory", "the path is that of a directory"},
	{fs.ErrExist, http.StatusConflict, "already_exists", "the path exists; force replaces a file"},
	{fs.ErrNotExist, http.StatusNotFound, "path_not_found", "the path, or the directory that it is in, does not exist"},
	{fs.ErrPermission, http.StatusForbidden, "forbidden", "the mode of the file, or of a directory on the path, does not let the local cloud use it"},
	{syscall.ENOSPC, http.StatusInsufficientStorage, "no_space", "the volume, or the disk that has it, is full"},
	{syscall.EDQUOT, http.StatusInsufficientStorage, "no_space", "the quota of the disk with the volume is used up"},
	{context.DeadlineExceeded, http.StatusGatewayTimeout, "timeout", "not done in time"},
	{os.ErrDeadlineExceeded, http.StatusRequestTimeout, "timeout", "the body of the request did not come"},
}

func contentErrorFor(err error) *contentError {
	if e, ok := errors.AsType[*contentError](err); ok {
		return e
	}
	if e, ok := errors.AsType[*apiError](err); ok {
		return &contentError{"invalid_request", e.Message, e.Code}
	}
	for _, known := range contentErrors {
		if errors.Is(err, known.err) {
			return &contentError{known.code, known.message, known.status}
		}
	}
	return &contentError{"internal", reason(err), http.StatusInternalServerError}
}

func (c *contentCall) stat() error {
	e, err := c.Stat(c.path)
	return c.answer(http.StatusOK, e, err)
}

func (c *contentCall) setAttributes() error {
	var q struct {
		UID  *uint32 `json:"uid"`
		GID  *uint32 `json:"gid"`
		Mode *uint32 `json:"mode"`
	}
	if err := decode(c.w, c.r, &q, false); err != nil {
		return err
	}
	e, err := c.SetAttributes(c.path, volumes.Attributes{Mode: q.Mode, UID: q.UID, GID: q.GID})
	return c.answer(http.StatusOK, e, err)
}

func (c *contentCall) remove() error {
	ctx, cancel := context.WithTimeout(c.r.Context(), requestDeadline)
	defer cancel()
	if err := c.Remove(ctx, c.path); err != nil {
		return err
	}
	c.Close()
	noContent(c.w)
	return nil
}

func (c *contentCall) list() error {
	depth, err := c.number("depth")
	switch {
	case err != nil:
		return err
	case depth == nil:
		depth = new(uint32(1))
	case *depth == 0:
		return invalid("depth must be at least 1")
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), requestDeadline)
	defer cancel()
	entries, err := c.List(ctx, c.path, int(min(*depth, maxDepth)))
	if err != nil {
		return err
	}
	answer := make([]contentEntry, len(entries))
	for i, e := range entries {
		answer[i] = contentAnswer(e)
	}
	c.Close()
	writeJSON(c.w, http.StatusOK, answer)
	return nil
}

// maxDepth exceeds the depth of every possible path.
const maxDepth = 1 << 16

func (c *contentCall) makeDir() error {
	attributes, force, err := c.attributes()
	if err != nil {
		return err
	}
	e, err := c.MakeDir(c.path, attributes, force)
	return c.answer(http.StatusCreated, e, err)
}

func (c *contentCall) read() error {
	file, e, err := c.Read(c.path)
	if err != nil {
		return err
	}
	defer file.Close()
	header := c.w.Header()
	header.Set("Content-Type", "application/octet-stream")
	header.Set("Content-Length", strconv.FormatInt(e.Size, 10))
	header.Set("X-Content-Type-Options", "nosniff")
	c.w.WriteHeader(http.StatusOK)
	if c.r.Method == http.MethodHead {
		return nil
	}
	rc := http.NewResponseController(c.w)
	for left := e.Size; left > 0; {
		if left <= contentPart {
			c.Close() // the file remains open
		}
		_ = rc.SetWriteDeadline(time.Now().Add(contentIdle)) // the recorders of tests have no deadlines
		n, err := io.CopyN(c.w, file, min(left, contentPart))
		if err != nil {
			panic(http.ErrAbortHandler) // the client has gone, or the file was shortened
		}
		left -= n
	}
	_ = rc.SetWriteDeadline(time.Time{})
	return nil
}

func (c *contentCall) write() error {
	attributes, force, err := c.attributes()
	if err != nil {
		return err
	}
	body := &patientReader{c.r.Body, http.NewResponseController(c.w)}
	defer body.end()
	e, err := c.Write(c.path, body, attributes, force)
	return c.answer(http.StatusCreated, e, err)
}

// patientReader reads the body of a request. There is no deadline for the whole body, but each
// read must make progress within contentIdle.
type patientReader struct {
	io.Reader
	rc *http.ResponseController
}

func (p *patientReader) Read(b []byte) (int, error) {
	_ = p.rc.SetReadDeadline(time.Now().Add(contentIdle))
	return p.Reader.Read(b)
}

// end removes the deadline of the connection. Otherwise the server would take the expired deadline
// for a client that closed the connection.
func (p *patientReader) end() { _ = p.rc.SetReadDeadline(time.Time{}) }

// answer answers with e, or returns err if it is not nil.
func (c *contentCall) answer(status int, e volumes.Entry, err error) error {
	if err == nil {
		c.Close()
		writeJSON(c.w, status, contentAnswer(e))
	}
	return err
}

// attributes reads the parameters of a call that creates a file or directory.
func (c *contentCall) attributes() (a volumes.Attributes, force bool, err error) {
	for name, to := range map[string]**uint32{"uid": &a.UID, "gid": &a.GID, "mode": &a.Mode} {
		if *to, err = c.number(name); err != nil {
			return a, false, err
		}
	}
	if text := c.query.Get("force"); text != "" {
		if force, err = strconv.ParseBool(text); err != nil {
			return a, false, invalid("force must be true or false")
		}
	}
	return a, force, nil
}

// number reads a numeric parameter. It returns nil if the parameter is absent.
func (c *contentCall) number(name string) (*uint32, error) {
	text := c.query.Get(name)
	if text == "" {
		return nil, nil
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return nil, invalid("%s must be a number from 0 to %d", name, uint32(1<<32-1))
	}
	return new(uint32(n)), nil
}
