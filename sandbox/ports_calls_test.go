package sandbox

import (
	stdcmp "cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// refusePort answers as the service's router does if nothing listens on port 3000 or, without a port, if there is no sandbox.
func refusePort(w http.ResponseWriter, port string) {
	w.WriteHeader(http.StatusBadGateway)
	fmt.Fprintf(w, `{"sandboxId":%q,"message":"m","code":502%s}`, testID, port)
}

const port3000 = `,"port":3000`

// cut breaks the connection of a request.
func cut(w http.ResponseWriter) { panic(http.ErrAbortHandler) }

// TestWaitPort checks when the port is asked for, and the error of each end of the wait.
func TestWaitPort(t *testing.T) {
	t.Parallel()
	const forever = 1 << 30
	opens := func(http.ResponseWriter) {}
	gone := func(w http.ResponseWriter) { refusePort(w, "") }
	for name, tt := range map[string]struct {
		closed int // answers that the port is closed, before then
		then   func(http.ResponseWriter)
		port   int
		limit  time.Duration
		took   time.Duration
		want   []error
		closes bool // the error names the closed port, too
	}{
		"open":                  {then: opens},
		"opens soon":            {closed: 1, then: opens, took: 5 * time.Millisecond},
		"opens later":           {closed: 8, then: opens, took: (5 + 10 + 20 + 40 + 80 + 160 + 250 + 250) * time.Millisecond},
		"its own 502":           {then: func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) }},
		"the context ends":      {closed: forever, limit: 7 * time.Millisecond, took: 7 * time.Millisecond, want: []error{context.DeadlineExceeded}, closes: true},
		"the context has ended": {then: opens, limit: -1, want: []error{context.DeadlineExceeded}},
		"gone":                  {then: gone, want: []error{ErrGone}},
		"gone later":            {closed: 2, then: gone, took: 15 * time.Millisecond, want: []error{ErrGone}, closes: true},
		"no port":               {then: opens, port: -1, want: []error{nil}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newPipedService(t)
				asked := 0
				s.other = func(w http.ResponseWriter, r *http.Request) {
					if asked++; r.Method != http.MethodGet || r.URL.Path != "/" {
						t.Errorf("got a request %s %s", r.Method, r.URL)
					}
					if asked <= tt.closed {
						refusePort(w, port3000)
						return
					}
					tt.then(w)
				}
				sb := s.sandbox()
				ctx := t.Context()
				if tt.limit != 0 {
					limited, cancel := context.WithTimeout(ctx, tt.limit)
					defer cancel()
					ctx = limited
				}
				begun := time.Now()
				err := sb.WaitPort(ctx, stdcmp.Or(tt.port, 3000))
				if took := time.Since(begun); took != tt.took || (err == nil) != (tt.want == nil) {
					t.Errorf("got error %v after %v, want %v after %v", err, took, tt.want, tt.took)
				}
				for _, want := range tt.want {
					if want != nil && !errors.Is(err, want) {
						t.Errorf("got error %v, want %v", err, want)
					}
				}
				if errors.Is(err, ErrPortClosed) != tt.closes || tt.closes && !strings.Contains(err.Error(), "sandbox: wait for a port: ") {
					t.Errorf("got error %v, want it to name the closed port: %v", err, tt.closes)
				}
			})
		})
	}
}

// TestAddressesOfPorts checks which addresses a transport sends requests to, and where.
func TestAddressesOfPorts(t *testing.T) {
	t.Parallel()
	s := newService(t)
	through := s.sandbox() // with a sandbox URL
	direct := &Sandbox{client: &Client{api: newAPI(t, api.WithDomain("test.invalid"))}, remote: &api.Sandbox{ID: testID}}
	hosted := &Sandbox{client: direct.client, remote: &api.Sandbox{ID: testID, Domain: "e2b.app"}}
	host := "3000-" + testID + ".test.invalid"
	for _, tt := range []struct {
		sb       *Sandbox
		to, want string // no want: refused
	}{
		{through, "http://localhost:3000/p?q=1&r", s.url + "/p?q=1&r"},
		{through, "https://LOCALHOST:3000/", s.url + "/"},
		{through, "http://user:password@127.0.0.1:3000/p", s.url + "/p"},
		{through, "http://[::1]:3000/p", s.url + "/p"},
		{through, through.URL(3000) + "/p", s.url + "/p"},
		{through, strings.ToUpper(s.url) + "/p", s.url + "/p"},
		{through, "http://localhost:3001/", ""},
		{through, "http://localhost/", ""},
		{through, "http://192.0.2.1:3000/", ""},
		{through, "http://other.test:3000/", ""},
		{through, "http://" + host + ":3000/", ""},
		{through, "http://3001-" + testID + ".test.invalid/", ""},
		{direct, "http://localhost:3000/p", "https://" + host + "/p"},
		{direct, "http://" + strings.ToUpper(host) + "/p", "https://" + host + "/p"},
		{direct, s.url + "/p", ""},
		{hosted, "http://localhost:3000/p", "https://sandbox.e2b.app/p"},
		{hosted, "http://3000-" + testID + ".e2b.app/p", "https://sandbox.e2b.app/p"},
		{hosted, "http://" + host + "/p", ""},
	} {
		u, err := url.Parse(tt.to)
		must.Do(t, err)
		before := u.String()
		got, err := (&portTransport{tt.sb, 3000}).address(u)
		if (err == nil) != (tt.want != "") || err == nil && got.String() != tt.want {
			t.Errorf("%s: got %v and error %v, want %q", tt.to, got, err, tt.want)
		}
		if err != nil && !strings.Contains(err.Error(), "use http://localhost:3000") {
			t.Errorf("%s: got error %v, want one that names the right address", tt.to, err)
		}
		if u.String() != before {
			t.Errorf("%s: the caller's address was changed to %s", tt.to, u)
		}
	}
}

// newAPI returns a client of package api.
func newAPI(t *testing.T, opts ...api.Option) *api.Client {
	t.Helper()
	c, err := api.NewClient(append(opts, api.WithAPIKey(testKey))...)
	must.Do(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// isError reports whether err is want, unless want is nil, and has a text.
func isError(err, want error, text string) bool {
	return err != nil && (want == nil || errors.Is(err, want)) && strings.Contains(err.Error(), text)
}

// TestRequestsToPorts checks the errors of requests, and that the body is closed with each of them.
func TestRequestsToPorts(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer func(http.ResponseWriter)
		to     string
		closed bool // the handle
		want   error
		text   string
	}{
		"another address": {to: "http://other.test/", text: "does not carry requests to other.test"},
		"a closed handle": {closed: true, want: ErrClosed, text: testID},
		"a closed port":   {answer: func(w http.ResponseWriter) { refusePort(w, port3000) }, want: ErrPortClosed, text: "sandbox: POST /p on port 3000 in " + testID},
		"gone":            {answer: func(w http.ResponseWriter) { refusePort(w, "") }, want: ErrGone, text: "sandbox: POST /p on port 3000 in " + testID},
		"broken":          {answer: cut, want: api.ErrRetryable, text: "sandbox: POST /p on port 3000 in " + testID + ": api: POST /p: "},
	} {
		s := newService(t)
		s.other = func(w http.ResponseWriter, _ *http.Request) { tt.answer(w) }
		sb := s.sandbox()
		if tt.closed {
			must.Do(t, sb.Close())
		}
		body := &closing{Reader: strings.NewReader("text")}
		to := tt.to
		if to == "" {
			to = "http://localhost:3000/p?secret"
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, to, body)
		must.Do(t, err)
		response, err := sb.Transport(3000).RoundTrip(r)
		if response != nil || !isError(err, tt.want, tt.text) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v and error %v, want %v with %q", name, response, err, tt.want, tt.text)
		}
		if body.n == 0 {
			t.Errorf("%s: the body was not closed", name)
		}
	}
}

// TestHeadersToPorts checks the headers of requests to a port: its tokens, and the caller's own headers.
func TestHeadersToPorts(t *testing.T) {
	t.Parallel()
	s := newService(t)
	got := make(chan *http.Request, 1)
	s.other = func(_ http.ResponseWriter, r *http.Request) { got <- r }
	sb := s.sandbox()
	for name, tt := range map[string]struct {
		host, agent string
		wantHost    string
		wantAgent   string
	}{
		"usual":          {wantHost: strings.TrimPrefix(s.url, "http://"), wantAgent: sb.client.api.UserAgent()},
		"the caller's":   {host: "name.test", agent: "mine/1", wantHost: "name.test", wantAgent: "mine/1"},
		"the same twice": {host: "localhost:3000", wantHost: strings.TrimPrefix(s.url, "http://"), wantAgent: sb.client.api.UserAgent()},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost:3000/", nil)
		must.Do(t, err)
		if tt.host != "" {
			r.Host = tt.host
		}
		if tt.agent != "" {
			r.Header.Set("User-Agent", tt.agent)
		}
		response, err := sb.Transport(3000).RoundTrip(r)
		must.Do(t, err)
		must.Do(t, response.Body.Close())
		sent := patience.Receive(t, "the request", got)
		want := http.Header{
			"Accept-Encoding": {"gzip"}, "User-Agent": {tt.wantAgent}, "E2b-Sandbox-Id": {testID}, "E2b-Sandbox-Port": {"3000"},
			"E2b-Traffic-Access-Token": {"traffictoken"},
		}
		if diff := cmp.Diff(want, sent.Header); diff != "" || sent.Host != tt.wantHost {
			t.Errorf("%s: got the host %s, want %s; headers (-want +got):\n%s", name, sent.Host, tt.wantHost, diff)
		}
		if len(r.Header) > 1 {
			t.Errorf("%s: the caller's request was changed: %v", name, r.Header)
		}
	}
}
