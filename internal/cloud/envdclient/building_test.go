package envdclient

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// asked is a request for a build.
type asked struct {
	Method, Path, Token, Body string
	Query                     url.Values
	Size                      int64
}

// TestBuildRequests checks every part of the requests for builds, and that their answers are decoded.
func TestBuildRequests(t *testing.T) {
	t.Parallel()
	var got asked
	c, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got = asked{r.Method, r.URL.Path, r.Header.Get(protocol.HeaderAccess), string(text), r.URL.Query(), r.ContentLength}
		_, _ = io.WriteString(w, `{"home":"/home/me","changed":true,"busy":true}`)
	}))
	archive := &closing{Reader: strings.NewReader("text")}
	placement := Placement{Source: "s", Target: "t", Owner: "o", Mode: "m", User: "u"}
	query := url.Values{"source": {"s"}, "target": {"t"}, "owner": {"o"}, "mode": {"m"}, "user": {"u"}}
	for name, tt := range map[string]struct {
		call   func(context.Context) (any, error)
		want   asked
		answer any
	}{
		"place": {
			func(ctx context.Context) (any, error) { return nil, c.Place(ctx, archive, 4, placement) },
			asked{http.MethodPost, "/local/place", "secret", "text", query, 4}, nil,
		},
		"place of unknown size": {
			func(ctx context.Context) (any, error) {
				return nil, c.Place(ctx, strings.NewReader("long"), -1, placement)
			},
			asked{http.MethodPost, "/local/place", "secret", "long", query, -1}, nil,
		},
		"make a directory": {
			func(ctx context.Context) (any, error) { return c.MakeDir(ctx, "/a b", "me") },
			asked{http.MethodPost, "/local/directory", "secret", "", url.Values{"path": {"/a b"}, "user": {"me"}}, 0}, true,
		},
		"account": {
			func(ctx context.Context) (any, error) {
				home, changed, err := c.Account(ctx, "me", true)
				return []any{home, changed}, err
			},
			asked{http.MethodPost, "/local/account", "secret", "", url.Values{"name": {"me"}, "sudo": {"true"}}, 0}, []any{"/home/me", true},
		},
		"busy": {
			func(ctx context.Context) (any, error) { return c.Busy(ctx) },
			asked{http.MethodGet, "/local/busy", "secret", "", url.Values{}, 0}, true,
		},
		"resize": {
			func(ctx context.Context) (any, error) { return nil, c.Resize(ctx, 1<<40, 3) },
			asked{http.MethodPost, "/local/resources", "secret", "", url.Values{"memory": {"1099511627776"}, "cpus": {"3"}}, 0}, nil,
		},
	} {
		answer, err := tt.call(t.Context())
		must.Do(t, err)
		if diff := cmp.Diff(tt.want, got) + cmp.Diff(tt.answer, answer); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if archive.closed {
		t.Error("the caller's archive is closed")
	}
}

// closing is a reader that can be closed.
type closing struct {
	io.Reader

	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

// TestBuildRefusals checks the errors of calls for builds that envd refuses, and that all answers
// are closed.
func TestBuildRefusals(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status       int
		answer, want string
	}{
		"success":                       {http.StatusOK, strings.Repeat("x", 1<<16), ""},
		"another success":               {http.StatusAccepted, "", "202 Accepted"},
		"a redirect":                    {http.StatusFound, "", "302 Found"},
		"a message":                     {http.StatusBadRequest, `{"message":"bad mode"}`, "bad mode"},
		"no message":                    {http.StatusBadRequest, `{"message":""}`, "400 Bad Request"},
		"text":                          {http.StatusNotFound, "text", "404 Not Found"},
		"an invalid message after text": {http.StatusNotFound, `{"message":"text","Message":1}`, "404 Not Found"},
	} {
		c, h := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "/another")
			if r.URL.Path != "/another" {
				w.WriteHeader(tt.status)
			}
			_, _ = io.WriteString(w, tt.answer)
		}))
		said := ""
		if err := c.Place(t.Context(), http.NoBody, 0, Placement{}); err != nil {
			said = err.Error()
		}
		if said != tt.want {
			t.Errorf("%s: got %q, want %q", name, said, tt.want)
		}
		if n := h.answers.Load(); n != 0 {
			t.Errorf("%s: %d answers are still open, want none", name, n)
		}
	}
}

// TestPackTakes checks that the error of the function that takes an archive is returned, and that the
// rest of the archive is not read.
func TestPackTakes(t *testing.T) {
	t.Parallel()
	c, h := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "archive")
	}))
	err := c.Pack(t.Context(), "/a", func(archive io.Reader) error {
		text := make([]byte, 3)
		if _, err := io.ReadFull(archive, text); err != nil || string(text) != "arc" {
			t.Errorf("got %q, %v; want arc", text, err)
		}
		return io.ErrNoProgress
	})
	must.Is(t, err, io.ErrNoProgress)
	if n := h.answers.Load(); n != 0 {
		t.Errorf("%d answers are still open, want none", n)
	}
}
