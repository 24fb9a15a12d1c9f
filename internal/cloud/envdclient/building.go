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

// Placement describes the placement of an archive's files. Owners are "user" or "user:group",
// of names or numbers.
type Placement struct {
	Source string // path in the archive; "": every file at its top
	Target string // absolute; one that ends in "/" is a directory
	Owner  string // of copies; "": that of the archive
	Mode   string // of copied files, octal; "": that of the archive
	User   string // owner of missing parent directories
}

// Place copies files of a tar archive, gzip or not. size is its length, or -1 if unknown.
func (c *Client) Place(ctx context.Context, archive io.Reader, size int64, p Placement) error {
	query := url.Values{"source": {p.Source}, "target": {p.Target}, "owner": {p.Owner}, "mode": {p.Mode}, "user": {p.User}}
	return c.ask(ctx, http.MethodPost, "/local/place", query, archive, size, func(io.Reader) error { return nil })
}

// Pack passes an archive of the files that a path or a pattern names to take, and returns its
// error.
func (c *Client) Pack(ctx context.Context, source string, take func(archive io.Reader) error) error {
	return c.ask(ctx, http.MethodGet, "/local/pack", url.Values{"source": {source}}, nil, 0, take)
}

// MakeDir makes a directory and its missing parents for a user. It reports whether it made
// any.
func (c *Client) MakeDir(ctx context.Context, path, user string) (changed bool, err error) {
	var answer struct{ Changed bool }
	err = c.ask(ctx, http.MethodPost, "/local/directory", url.Values{"path": {path}, "user": {user}}, nil, 0, into(&answer))
	return answer.Changed, err
}

// Account returns the home of an account. If the account is missing, Account makes it and
// reports changed. With sudo the account may become root without a password from then on.
func (c *Client) Account(ctx context.Context, name string, sudo bool) (home string, changed bool, err error) {
	var answer struct {
		Home    string
		Changed bool
	}
	err = c.ask(ctx, http.MethodPost, "/local/account", url.Values{"name": {name}, "sudo": {fmt.Sprint(sudo)}}, nil, 0, into(&answer))
	return answer.Home, answer.Changed, err
}

// into reads an answer.
func into(answer any) func(io.Reader) error {
	return func(body io.Reader) error { return json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(answer) }
}

// ask calls one of the routes for builds, and passes the body of the answer to take.
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
