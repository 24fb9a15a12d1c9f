package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/e2bctl/e2bctl/internal/httpwait"
	"github.com/e2bctl/e2bctl/internal/must"
)

// slowError is an error of a network that is a timeout or not.
type slowError bool

func (slowError) Error() string   { return "slow" }
func (s slowError) Timeout() bool { return bool(s) }
func (slowError) Temporary() bool { return false }

// TestClassesOfErrors checks to which classes an error belongs, for each part of the error that decides.
func TestClassesOfErrors(t *testing.T) {
	t.Parallel()
	refused := func(addr net.Addr, cause error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Addr: addr, Err: os.NewSyscallError("connect", cause)}
	}
	here, there := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}
	for name, tt := range map[string]struct {
		e     *Error
		class error
		want  bool
	}{
		"refused here":          {&Error{cause: refused(here, syscall.ECONNREFUSED)}, ErrNothingListens, true},
		"refused elsewhere":     {&Error{cause: refused(there, syscall.ECONNREFUSED)}, ErrNothingListens, false},
		"refused by a socket":   {&Error{cause: refused(&net.UnixAddr{Name: "a"}, syscall.ECONNREFUSED)}, ErrNothingListens, false},
		"reset here":            {&Error{cause: refused(here, syscall.ECONNRESET)}, ErrNothingListens, false},
		"refused, and answered": {&Error{StatusCode: 502, cause: refused(here, syscall.ECONNREFUSED)}, ErrNothingListens, false},
		"another cause":         {&Error{cause: syscall.ECONNREFUSED}, ErrNothingListens, false},
		"deadline":              {&Error{cause: context.DeadlineExceeded}, ErrTimeout, true},
		"a slow network":        {&Error{cause: slowError(true)}, ErrTimeout, true},
		"another network error": {&Error{cause: slowError(false)}, ErrTimeout, false},
		"cancelled":             {&Error{cause: context.Canceled}, ErrTimeout, false},
		"status 408":            {&Error{StatusCode: 408}, ErrTimeout, true},
		"status 504":            {&Error{StatusCode: 504}, ErrTimeout, true},
		"status 503":            {&Error{StatusCode: 503}, ErrTimeout, false},
		"a gateway":             {&Error{StatusCode: 502}, ErrUnavailable, true},
		"unavailable":           {&Error{StatusCode: 503}, ErrUnavailable, true},
		"no answer":             {&Error{cause: io.ErrUnexpectedEOF}, ErrUnavailable, true},
		"given up":              {&Error{cause: context.Canceled}, ErrUnavailable, false},
		"too slow":              {&Error{cause: context.DeadlineExceeded}, ErrUnavailable, false},
		"a refusal":             {&Error{StatusCode: 400}, ErrUnavailable, false},
		"missing":               {&Error{StatusCode: 404}, ErrNotFound, true},
		"conflict":              {&Error{StatusCode: 409}, ErrConflict, true},
		"no class":              {&Error{StatusCode: 418}, nil, false},
	} {
		if got := tt.e.Is(tt.class); got != tt.want {
			t.Errorf("%s: is %v: %v, want %v", name, tt.class, got, tt.want)
		}
	}
	for status, want := range map[int]bool{400: true, 401: false, 500: false} {
		for _, mark := range []struct {
			as    func(error) error
			class error
		}{{missingOf, ErrNotFound}, {conflictOf, ErrConflict}} {
			if err := mark.as(fmt.Errorf("a call: %w", &Error{StatusCode: status})); errors.Is(err, mark.class) != want {
				t.Errorf("status %d marked as %v: got %v", status, mark.class, err)
			}
			plain := errors.New("plain")
			must.Is(t, mark.as(plain), plain)
		}
	}
	for err, want := range map[error]bool{
		&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}: true, &net.OpError{Op: "read", Err: syscall.ECONNRESET}: false, io.ErrUnexpectedEOF: false,
	} {
		if got := notSent(err); got != want {
			t.Errorf("%v: nothing was sent: %v, want %v", err, got, want)
		}
	}
}

// TestNamesAndAddresses checks which ids, names and addresses are accepted.
func TestNamesAndAddresses(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{"a-Z_09": true, "zA": true, "": false, "a/b": false, "a.b": false, "[": false, "@": false, "`": false, "{": false, ":": false, strings.Repeat("a", 128): true, strings.Repeat("a", 129): false} {
		wanted := ""
		if want {
			wanted = "/x/" + id + "/y"
		}
		if path, err := objectPath("/x/", "thing", id, "/y"); path != wanted || errors.Is(err, ErrInvalidArgument) == want {
			t.Errorf("the id %q: got %q and error %v", id, path, err)
		}
		if got := isName(id); got != (want || len(id) == 129 || id == "a.b") {
			t.Errorf("the name %q: got %v", id, got)
		}
	}
	for address, want := range map[string]bool{"http://h": true, "https://h:1/p/": true, "%zz": false, "http://[::1": false, "ftp://h": false, "http:///p": false, "http://u@h": false, "http://h?a": false, "http://h#a": false} {
		if u, err := parseURL("it", address); (err == nil) != want || want && strings.HasSuffix(u.Path, "/") {
			t.Errorf("the address %q: got %v and error %v", address, u, err)
		}
	}
	for domain, want := range map[string]bool{"a.test": true, "a.test:1": true, "%zz": false, "a:b": false, "a.test:": false, "a/b": false, "u@h": false, "[": false} {
		if err := validateDomain(domain); (err == nil) != want {
			t.Errorf("the domain %q: got error %v", domain, err)
		}
	}
}

// statusTransport is a transport that answers with a status and no body.
type statusTransport struct {
	status int
	asked  *[]string
}

func (a statusTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	*a.asked = append(*a.asked, r.Method+" "+r.URL.Scheme+"://"+r.URL.Host)
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	return &http.Response{StatusCode: a.status, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// TestStatusOfAnswers checks which status each kind of call takes for success, and that a call which
// cannot be sent is not sent.
func TestStatusOfAnswers(t *testing.T) {
	t.Parallel()
	for status, ok := range map[int]bool{199: false, 200: true, 299: true, 300: false} {
		var asked []string
		c, err := NewClient(WithAPIKey(secret), WithBaseURL("http://api.test"), WithTransport(statusTransport{status, &asked}), WithMaxRetries(0))
		must.Do(t, err)
		content := &VolumeContent{client: c, volume: &Volume{ID: "vol1", Token: "t"}}
		for name, call := range map[string]func() error{
			"a call": func() error { _, err := c.do(t.Context(), call{method: "GET", path: "/x"}, nil); return err },
			"an upload": func() error {
				return c.Templates.Upload(t.Context(), &FileUpload{URL: "https://up.test/x"}, strings.NewReader("a"), 1)
			},
			"plainly": func() error {
				return c.Templates.Upload(t.Context(), &FileUpload{URL: "http://up.test/x"}, strings.NewReader("a"), 1)
			},
			"content": func() error {
				response, err := content.send(t.Context(), "GET", "/file", "/a", nil, nil, httpwait.Limits{})
				if err == nil {
					err = response.Body.Close()
				}
				return err
			},
		} {
			if err := call(); (err == nil) != ok {
				t.Errorf("%s answered with %d: got error %v", name, status, err)
			} else if e, is := errors.AsType[*Error](err); !ok && (!is || e.StatusCode != status) {
				t.Errorf("%s answered with %d: got error %v, want the status", name, status, err)
			}
		}
		sent := len(asked)
		for name, call := range map[string]func() error{
			"a body that is no JSON": func() error {
				_, err := c.do(t.Context(), call{method: "POST", path: "/x", body: math.NaN()}, nil)
				return err
			},
			"an upload to a file": func() error {
				return c.Templates.Upload(t.Context(), &FileUpload{URL: "file://h/x"}, strings.NewReader("a"), 1)
			},
			"an upload to no host": func() error {
				return c.Templates.Upload(t.Context(), &FileUpload{URL: "/x"}, strings.NewReader("a"), 1)
			},
			"an upload to no address": func() error {
				return c.Templates.Upload(t.Context(), &FileUpload{URL: "http://h/%zz"}, strings.NewReader("a"), 1)
			},
			"content of no path": func() error {
				_, err := content.send(t.Context(), "GET", "/file", "", nil, nil, httpwait.Limits{})
				return err
			},
			"content by no method": func() error {
				_, err := content.send(t.Context(), "a b", "/file", "/a", nil, nil, httpwait.Limits{})
				return err
			},
			"content of another domain": func() error {
				_, err := elsewhere(t).send(t.Context(), "GET", "/file", "/a", nil, nil, httpwait.Limits{})
				return err
			},
		} {
			if err := call(); err == nil || len(asked) != sent {
				t.Errorf("%s: got error %v and the requests %q", name, err, asked[sent:])
			}
		}
		must.Do(t, c.Close())
	}
}

// elsewhere returns the content of a volume whose domain is none.
func elsewhere(t *testing.T) *VolumeContent {
	t.Helper()
	var asked []string
	c, err := NewClient(WithAPIKey(secret), WithDomain("d.test"), WithTransport(statusTransport{200, &asked}))
	must.Do(t, err)
	return &VolumeContent{client: c, volume: &Volume{ID: "vol1", Token: "t", Domain: "a/b"}}
}

// TestContentErrors checks that the code of an error of a volume's content is the word in the answer.
func TestContentErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{`{"code":"gone","message":"m"}`: "gone", `{"code":"","message":"m"}`: "", `{"code":404,"message":"m"}`: ""} {
		e := contentError("GET", "/x", &http.Response{StatusCode: 404, Header: http.Header{}}, []byte(text))
		if e.Code != want || e.Message != "m" || want != "" && e.RouteMissing() {
			t.Errorf("%s: got %+v", text, e)
		}
	}
}

// TestEventsWithoutIDs checks that no event of a service that reports no ids is lost, and that of the
// others only the one that was already delivered is left out.
func TestEventsWithoutIDs(t *testing.T) {
	t.Parallel()
	var got []string
	r := &eventReader{yield: func(e Event) bool { got = append(got, e.SandboxID); return len(got) < 5 }}
	must.Do(t, r.emit([]Event{{SandboxID: "a"}, {SandboxID: "b"}, {ID: "1", SandboxID: "c"}, {ID: "1", SandboxID: "d"}}))
	r.missed = 3
	must.Is(t, r.emit([]Event{{ID: "1", SandboxID: "d"}, {ID: "2", SandboxID: "e"}, {ID: "3", SandboxID: "f"}, {ID: "4"}}), errEnough)
	if strings.Join(got, "") != "abcef" || r.newest != "3" || r.missed != 0 {
		t.Errorf("got the events %q, the newest %q and %d missed", got, r.newest, r.missed)
	}
}

// TestNamedEnvFiles checks that a file that is named must exist and be a file, even if every setting has a
// value.
func TestNamedEnvFiles(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{EnvAPIKey, EnvAPIURL, EnvDomain, EnvSandboxURL, EnvVolumeURL} {
		t.Setenv(name, map[bool]string{true: secret, false: "http://h.test"}[name == EnvAPIKey])
	}
	t.Setenv(EnvDomain, "d.test")
	must.Do(t, os.Mkdir(".env", 0o700)) // a virtual environment of Python
	c, err := NewClient(FromEnv())
	must.Do(t, err)
	must.Do(t, c.Close())
	for _, name := range []string{"none", ".env"} {
		if _, err := NewClient(FromEnv(), WithEnvFile(filepath.Join(dir, name))); err == nil || !strings.HasPrefix(err.Error(), "api: read settings: ") {
			t.Errorf("%s: got error %v", name, err)
		}
	}
	t.Setenv(EnvAPIKey, "")
	if _, err := NewClient(FromEnv()); !errors.Is(err, ErrNoAPIKey) {
		t.Errorf("got error %v, want that there is no key", err)
	}
}
