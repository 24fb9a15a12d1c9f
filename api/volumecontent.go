package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/e2bctl/e2bctl/internal/boundjson"
	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/httpwait"
)

// VolumeEntryType is the type of a volume's entry. A service may use values other than the
// constants here.
type VolumeEntryType string

// These are the types of entries.
const (
	VolumeFile      VolumeEntryType = "file"
	VolumeDirectory VolumeEntryType = "directory"
	VolumeSymlink   VolumeEntryType = "symlink"
	VolumeOther     VolumeEntryType = "unknown"
)

// VolumeEntry describes a file, a directory or something else in a volume.
type VolumeEntry struct {
	Name string          `json:"name"`
	Type VolumeEntryType `json:"type"`
	// Path is the absolute path in the volume. The volume's root is "/".
	Path string `json:"path"`
	Size int64  `json:"size"`
	// Mode has the permission bits and, in the same positions as on Unix, the setuid, setgid
	// and sticky bits.
	Mode uint32 `json:"mode"`
	// UID and GID are the ids of the owning user and group, as sandboxes see them.
	UID        uint32    `json:"uid"`
	GID        uint32    `json:"gid"`
	AccessedAt time.Time `json:"atime"`
	ModifiedAt time.Time `json:"mtime"`
	// ChangedAt is the time of the last change to the entry's attributes.
	ChangedAt time.Time `json:"ctime"`
	// Target is the target of a symlink; empty for other entries.
	Target string `json:"target"`
}

// VolumeContent makes the calls about the files of one volume. Paths are relative to the volume's
// root, with or without a leading slash. VolumeContent is safe for concurrent use.
type VolumeContent struct {
	client *Client
	volume *Volume
}

// Content returns the object that makes the calls about the files of a volume. v.Token must be set.
func (s *VolumeService) Content(v *Volume) *VolumeContent { return &VolumeContent{s.client, v} }

// VolumeListParams sets the depth of a list. The zero value lists one level.
type VolumeListParams struct {
	// MaxDepth limits the levels of directories to list. Zero means 1.
	MaxDepth int
}

// List returns the entries of a directory.
func (c *VolumeContent) List(ctx context.Context, path string, p *VolumeListParams) ([]VolumeEntry, error) {
	query := url.Values{}
	switch depth := cmp.Or(p, &VolumeListParams{}).MaxDepth; {
	case depth < 0:
		return nil, fmt.Errorf("api: depth %d: want at least 1: %w", depth, ErrInvalidArgument)
	case depth > 0:
		query.Set("depth", strconv.Itoa(depth))
	}
	var entries []*VolumeEntry
	if err := c.call(ctx, http.MethodGet, "/dir", path, query, nil, &entries); err != nil {
		return nil, err
	}
	return values("an entry of a volume", entries)
}

// Stat describes the file at a path. It does not follow a symlink at the end of the path.
func (c *VolumeContent) Stat(ctx context.Context, path string) (*VolumeEntry, error) {
	return c.entry(ctx, http.MethodGet, "/path", path, nil, nil)
}

// VolumeAttributesParams contains the changes to a file's attributes; a nil field changes
// nothing.
type VolumeAttributesParams struct {
	Mode *uint32 `json:"mode,omitempty"`
	UID  *uint32 `json:"uid,omitempty"`
	GID  *uint32 `json:"gid,omitempty"`
}

// SetAttributes changes the mode and the owner of a file or directory, and returns its new
// description.
func (c *VolumeContent) SetAttributes(ctx context.Context, path string, p *VolumeAttributesParams) (*VolumeEntry, error) {
	body, err := json.Marshal(cmp.Or(p, &VolumeAttributesParams{}))
	if err != nil {
		return nil, err
	}
	return c.entry(ctx, http.MethodPatch, "/path", path, nil, bytes.NewReader(body))
}

// Remove removes a file, or a directory with everything in it.
func (c *VolumeContent) Remove(ctx context.Context, path string) error {
	return c.call(ctx, http.MethodDelete, "/path", path, nil, nil, nil)
}

// VolumeWriteParams sets how to create a file or directory in a volume. The zero value uses the
// service's default mode and owner, requires that the parent directory exists, and replaces
// nothing.
type VolumeWriteParams struct {
	// Mode, UID and GID are the mode, the owner and the group; nil means the service's default.
	Mode, UID, GID *uint32
	// Force creates missing parent directories, replaces an existing file, and accepts an existing
	// directory. Without Force, a missing parent directory is [ErrNotFound], and an existing file or
	// directory is [ErrConflict].
	Force bool
}

func (p *VolumeWriteParams) query() url.Values {
	query := url.Values{}
	if p == nil {
		return query
	}
	for name, value := range map[string]*uint32{"mode": p.Mode, "uid": p.UID, "gid": p.GID} {
		if value != nil {
			query.Set(name, strconv.FormatUint(uint64(*value), 10))
		}
	}
	if p.Force {
		query.Set("force", "true")
	}
	return query
}

// MakeDir makes a directory.
func (c *VolumeContent) MakeDir(ctx context.Context, path string, p *VolumeWriteParams) (*VolumeEntry, error) {
	return c.entry(ctx, http.MethodPost, "/dir", path, p.query(), nil)
}

// Write creates a file with the bytes of r. It sends them while it reads r. It does not close r. A
// nil r creates an empty file. ctx limits the whole call: Write returns when ctx ends, even while a
// Read of r blocks. That Read then continues, and Write does not call Read again.
func (c *VolumeContent) Write(ctx context.Context, path string, r io.Reader, p *VolumeWriteParams) (*VolumeEntry, error) {
	switch body := r.(type) {
	case nil:
		r = http.NoBody
	case io.ReadCloser:
		r = io.NopCloser(body)
	}
	return c.entry(ctx, http.MethodPut, "/file", path, p.query(), r)
}

// Open opens a file for reading. The caller must close it. ctx limits the call and also the reading
// from the result.
func (c *VolumeContent) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	response, err := c.send(ctx, http.MethodGet, "/file", path, nil, nil, httpwait.Limits{Head: headTimeout, Stream: true})
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

func (c *VolumeContent) entry(ctx context.Context, method, route, path string, query url.Values, body io.Reader) (*VolumeEntry, error) {
	e := &VolumeEntry{}
	if err := c.call(ctx, method, route, path, query, body, e); err != nil {
		return nil, err
	}
	return e, nil
}

// call makes a call with a short answer, and decodes the answer into out. A nil out ignores the
// body. call never repeats a request, because the body of the first attempt may already be
// read.
func (c *VolumeContent) call(ctx context.Context, method, route, path string, query url.Values, body io.Reader, out any) error {
	limits := httpwait.Limits{Head: headTimeout}
	if method == http.MethodPut {
		limits.Head = 0 // sending has no time limit
	}
	response, err := c.send(ctx, method, route, path, query, body, limits)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBody+1))
	switch {
	case err != nil:
		return NewError(method, volumeContentPath, fmt.Errorf("read the answer: %w", err))
	case out == nil:
		return nil
	case len(text) > maxAnswerBody:
		return fmt.Errorf("api: %s %s: the answer is longer than %d bytes", method, volumeContentPath, maxAnswerBody)
	}
	if err := boundjson.Unmarshal(text, out, maxContentValues, math.MaxInt); err != nil {
		return fmt.Errorf("api: %s %s: the answer is not the expected JSON: %w", method, volumeContentPath, err)
	}
	return nil
}

const (
	volumeContentPath = "/volumecontent"
	// maxContentValues limits the JSON values of an answer. A list of 50,000 entries has fewer.
	maxContentValues = 1_000_000
)

// send sends a request. It returns an error for any status but 2xx.
func (c *VolumeContent) send(ctx context.Context, method, route, path string, query url.Values, body io.Reader, limits httpwait.Limits) (*http.Response, error) {
	at, err := volumePath(volumeContentPath, c.volume.ID, route)
	if err != nil {
		return nil, err
	}
	if path == "" {
		return nil, fmt.Errorf("api: the path in a volume is empty: %w", ErrInvalidArgument)
	}
	if query == nil {
		query = url.Values{}
	}
	query.Set("path", path)
	base, err := c.client.contentURL(c.volume)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, base+at+"?"+query.Encode(), body)
	if err != nil {
		return nil, fmt.Errorf("api: %s %s: %w", method, at, err)
	}
	c.client.headers(ctx, request.Header)
	request.Header.Set("Authorization", "Bearer "+string(c.volume.Token))
	request.Header.Set("User-Agent", c.client.agent)
	switch method {
	case http.MethodPatch:
		request.Header.Set("Content-Type", "application/json")
	case http.MethodPut:
		request.Header.Set("Content-Type", "application/octet-stream")
	}
	start := time.Now()
	// Use the transport itself, which follows no redirects: a redirect would send the token to
	// another host.
	response, err := httpwait.Do(c.client.transport.RoundTrip, request, limits)
	if err != nil {
		return nil, NewError(method, at, withoutURL(err))
	}
	c.client.logger.DebugContext(ctx, "api call", "method", method, "path", at, "duration", time.Since(start), "status", response.StatusCode)
	if response.StatusCode >= 200 && response.StatusCode <= 299 {
		return response, nil
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxErrorBody))
	return nil, contentError(method, at, response, text)
}

// contentError returns the error for an answer. The field code in an error answer of the volume API
// is a word, not a number.
func contentError(method, path string, response *http.Response, text []byte) *Error {
	e := ResponseError(method, path, response.StatusCode, response.Header, text)
	var code string
	if json.Unmarshal(errorBody(text).Code, &code) == nil && code != "" {
		e.Code, e.routeMissing = clip.Line(code, 64), false
	}
	return e
}

// contentURL returns the address of a volume's files. That is the client's volume URL if one was
// set. Otherwise it is the API's address if that address was set explicitly or v.Domain is empty.
// Otherwise it is https://api. followed by v.Domain, as in E2B's own SDKs.
func (c *Client) contentURL(v *Volume) (string, error) {
	switch {
	case c.volumeURL != "":
		return c.volumeURL, nil
	case c.baseURL.String() != "https://api."+c.domain, v.Domain == "":
		return c.baseURL.String(), nil
	}
	if err := validateDomain(v.Domain); err != nil {
		return "", err
	}
	return "https://api." + v.Domain, nil
}
