package envdclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/e2bctl/e2bctl/internal/clip"
)

// Placement describes where files of an archive are placed. An owner is "user" or "user:group".
// Both parts are names or numbers.
type Placement struct {
	Source string // path in the archive; "": all files at the top level
	Target string // absolute path; with "/" at the end: a directory
	Owner  string // owner of the copies; "": the owner in the archive
	Mode   string // octal mode of copied files; "": the mode in the archive
	User   string // owner of missing parent directories
}

// Place copies files of a tar archive. The archive may be compressed with gzip. size is the length
// of the archive, or -1 if the length is unknown.
func (c *Client) Place(ctx context.Context, archive io.Reader, size int64, p Placement) error {
	query := url.Values{"source": {p.Source}, "target": {p.Target}, "owner": {p.Owner}, "mode": {p.Mode}, "user": {p.User}}
	return c.ask(ctx, http.MethodPost, "/local/place", query, archive, size, func(io.Reader) error { return nil })
}

// Pack packs the files that a path or a pattern selects. It passes the archive to take, and
// returns the error of take.
func (c *Client) Pack(ctx context.Context, source string, take func(archive io.Reader) error) error {
	return c.ask(ctx, http.MethodGet, "/local/pack", url.Values{"source": {source}}, nil, 0, take)
}

// MakeDir creates a directory and its missing parents for a user. changed is false if the
// directory existed.
func (c *Client) MakeDir(ctx context.Context, path, user string) (changed bool, err error) {
	var answer struct{ Changed bool }
	err = c.ask(ctx, http.MethodPost, "/local/directory", url.Values{"path": {path}, "user": {user}}, nil, 0, into(&answer))
	return answer.Changed, err
}

// Account returns the home of an account, and creates the account if it is missing. With sudo,
// the account may become root without a password. changed reports whether Account created or
// changed anything.
func (c *Client) Account(ctx context.Context, name string, sudo bool) (home string, changed bool, err error) {
	var answer struct {
		Home    string
		Changed bool
	}
	err = c.ask(ctx, http.MethodPost, "/local/account", url.Values{"name": {name}, "sudo": {fmt.Sprint(sudo)}}, nil, 0, into(&answer))
	return answer.Home, answer.Changed, err
}

// Busy reports whether code runs in a kernel of the sandbox, or a client follows a command without a
// terminal.
func (c *Client) Busy(ctx context.Context) (bool, error) {
	var answer struct{ Busy bool }
	err := c.ask(ctx, http.MethodGet, "/local/busy", nil, nil, 0, into(&answer))
	return answer.Busy, err
}

// Resize changes the memory limit and the number of processors that envd reports.
func (c *Client) Resize(ctx context.Context, memory uint64, cpus int) error {
	query := url.Values{"memory": {fmt.Sprint(memory)}, "cpus": {fmt.Sprint(cpus)}}
	return c.ask(ctx, http.MethodPost, "/local/resources", query, nil, 0, func(io.Reader) error { return nil })
}

// into returns a function that decodes an answer.
func into(answer any) func(io.Reader) error {
	return func(body io.Reader) error { return json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(answer) }
}

// ask calls a route for builds, and passes the body of the answer to take.
func (c *Client) ask(ctx context.Context, method, path string, query url.Values, body io.Reader, size int64, take func(io.Reader) error) error {
	if body != nil {
		body = io.NopCloser(body)
	}
	request, err := http.NewRequestWithContext(ctx, method, base+path+"?"+query.Encode(), body)
	if err != nil {
		return err
	}
	request.ContentLength = size
	c.identify(request.Header, "")
	answer, err := c.http.Do(request)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err
		}
		return failure(ctx, err, "")
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusOK {
		return take(answer.Body)
	}
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	var refused struct{ Message string }
	if json.Unmarshal(text, &refused) != nil || refused.Message == "" {
		refused.Message = answer.Status
	}
	return errors.New(clip.Text(refused.Message, maxRepeated))
}
