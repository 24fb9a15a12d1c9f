package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
)

func TestCloseTearsDownWhatWasCreated(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		connect bool
		end     func(*Sandbox) error
		killed  int
	}{
		"created, closed":    {false, (*Sandbox).Close, 1},
		"created, detached":  {false, (*Sandbox).Detach, 0},
		"connected, closed":  {true, (*Sandbox).Close, 0},
		"connected, killed":  {true, func(sb *Sandbox) error { return sb.Kill(t.Context()) }, 1},
		"created and killed": {false, func(sb *Sandbox) error { return sb.Kill(t.Context()) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			c := s.client()
			var sb *Sandbox
			var err error
			if test.connect {
				sb, err = c.Connect(t.Context(), testID)
			} else {
				sb, err = c.Create(t.Context())
			}
			must.Do(t, err)
			must.Do(t, test.end(sb))
			if n := s.seen("DELETE"); n != test.killed {
				t.Errorf("killed %d times, want %d", n, test.killed)
			}
			var closing sync.WaitGroup
			for range 3 {
				closing.Go(func() {
					if err := sb.Close(); err != nil {
						t.Errorf("Close again: %v", err)
					}
				})
			}
			closing.Wait()
			if _, err := sb.Info(t.Context()); !errors.Is(err, ErrClosed) {
				t.Errorf("after Close: %v", err)
			}
			if err := sb.Detach(); !errors.Is(err, ErrClosed) {
				t.Errorf("Detach after Close: %v", err)
			}
		})
	}
	if err := (*Sandbox)(nil).Close(); err != nil {
		t.Error(err)
	}
}

func TestKillReportsWhatIsGoneCloseDoesNot(t *testing.T) {
	t.Parallel()
	s := newService(t)
	sb := s.sandbox()
	s.mu.Lock()
	s.gone = true
	s.mu.Unlock()
	err := sb.Kill(t.Context())
	gone, ok := errors.AsType[*GoneError](err)
	if !ok || !errors.Is(err, ErrGone) || !errors.Is(err, api.ErrNotFound) {
		t.Fatalf("Kill: %v, want a *GoneError that is ErrGone and api.ErrNotFound", err)
	}
	if gone.ID != testID || gone.State != GoneKilled || gone.At.IsZero() {
		t.Errorf("Kill: %+v, want %s, %s and a time", gone, testID, GoneKilled)
	}
	if _, err := sb.Commands.Run(t.Context(), "true", nil); !errors.Is(err, ErrGone) {
		t.Errorf("Run: %v", err)
	}
	if _, err := sb.Files.Read(t.Context(), "/x", nil); !errors.Is(err, ErrGone) {
		t.Errorf("Read: %v", err)
	}
	if _, err := sb.RunCode(t.Context(), "1", nil); !errors.Is(err, ErrGone) {
		t.Errorf("RunCode: %v", err)
	}
	if _, err := s.client().Connect(t.Context(), testID); !errors.Is(err, ErrGone) {
		t.Errorf("Connect: %v", err)
	}
	if err := sb.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestExpiredSandboxSaysSo(t *testing.T) {
	t.Parallel()
	s := newService(t)
	sb := s.sandbox(WithExpiry(Expiry{After: time.Nanosecond}))
	s.mu.Lock()
	s.gone = true
	s.mu.Unlock()
	_, err := sb.Commands.Run(t.Context(), "true", nil)
	if gone, ok := errors.AsType[*GoneError](err); !ok || gone.State != GoneExpired || !strings.Contains(err.Error(), "SetLifetime") {
		t.Errorf("%v", err)
	}
}

func TestPausedSandboxSaysSo(t *testing.T) {
	t.Parallel()
	s := newService(t)
	sb := s.sandbox()
	s.mu.Lock()
	s.gone = true
	s.mu.Unlock()
	s.control = func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.WriteHeader(200)
			_, _ = io.WriteString(w, `{"sandboxID":"i1","state":"paused"}`)
		}
	}
	_, err := sb.Commands.Run(t.Context(), "true", nil)
	if gone, ok := errors.AsType[*GoneError](err); !ok || gone.State != GonePaused {
		t.Errorf("%v", err)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	s := newService(t)
	c := s.client(WithDefaults(WithTemplate("mine"), WithExpiry(Expiry{After: time.Hour}), WithMetadata(map[string]string{"a": "1", "b": "1"})))
	for name, test := range map[string]struct {
		opts []CreateOption
		want map[string]any // in the request; nil: an error
	}{
		"defaults of the client": {nil, map[string]any{"templateID": "mine", "timeout": 3600.0, "metadata": map[string]any{"a": "1", "b": "1"}}},
		"no template":            {[]CreateOption{WithTemplate("")}, map[string]any{"templateID": "mine", "timeout": 3600.0, "metadata": map[string]any{"a": "1", "b": "1"}}},
		"own": {[]CreateOption{WithTemplate("x"), WithExpiry(Expiry{After: time.Minute, Renew: true}), WithMetadata(map[string]string{"b": "2"}), WithEnvs(map[string]string{"E": "f"}), WithInternet(false), WithPrivateTraffic(), WithHTTPSPorts(443, 8443), WithRequestHost("localhost:${PORT}")},
			map[string]any{
				"templateID": "x", "timeout": 60.0, "metadata": map[string]any{"a": "1", "b": "2"}, "envVars": map[string]any{"E": "f"},
				"allow_internet_access": false, "network": map[string]any{"allowPublicTraffic": false, "httpsPorts": []any{443.0, 8443.0}, "maskRequestHost": "localhost:${PORT}"},
			}},
		"negative life":    {[]CreateOption{WithExpiry(Expiry{After: -1})}, nil},
		"short lease":      {[]CreateOption{WithExpiry(Expiry{After: time.Second, Renew: true})}, nil},
		"client option":    {[]CreateOption{WithAPIKey("other")}, nil},
		"another":          {[]CreateOption{WithInterceptors()}, nil},
		"defaults":         {[]CreateOption{WithDefaults(WithTemplate("x"))}, nil},
		"unknown way":      {[]CreateOption{WithCodeTransport("pigeon")}, nil},
		"lease over hour":  {[]CreateOption{WithExpiry(Expiry{After: 2 * time.Hour, Renew: true})}, nil},
		"lifetime of ages": {[]CreateOption{WithExpiry(Expiry{After: 1 << 62})}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			before := s.seen("POST /v2/sandboxes ")
			sb, err := c.Create(t.Context(), test.opts...)
			if test.want == nil {
				if err == nil || s.seen("POST /v2/sandboxes ") != before {
					t.Errorf("no error, or sent: %v", err)
				}
				return
			}
			must.Do(t, err)
			defer sb.Detach()
			s.mu.Lock()
			_, body, _ := strings.Cut(s.calls[len(s.calls)-1], "sandboxes ")
			s.mu.Unlock()
			var got map[string]any
			must.Do(t, json.Unmarshal([]byte(body), &got))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestHeadersAndAddresses(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.files = func(http.ResponseWriter, *http.Request) {}
	sb := s.sandbox()
	must.Do(t, sb.Files.Write(t.Context(), "/x", nil, nil))
	for name, want := range map[string]string{
		"E2b-Sandbox-Id": testID, "E2b-Sandbox-Port": "49983", "X-Access-Token": "envdtoken", "E2b-Traffic-Access-Token": "", "X-Api-Key": "",
	} {
		if got := s.headers.Get(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	s.execute = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"type":"end_of_execution"}`) }
	if _, err := sb.RunCode(t.Context(), "1", nil); err != nil {
		t.Fatal(err)
	}
	if got := s.headers.Get("E2b-Traffic-Access-Token"); got != "traffictoken" {
		t.Errorf("traffic token = %q", got)
	}
	for name, test := range map[string]struct{ domain, sandboxURL, answer, base, host string }{
		"hosted":       {"e2b.app", "", "", "https://sandbox.e2b.app", "3000-i1.e2b.app"},
		"self-hosted":  {"e2b.test:8443", "", "", "https://3000-i1.e2b.test:8443", "3000-i1.e2b.test:8443"},
		"named by API": {"e2b.app", "", "customer.test", "https://3000-i1.customer.test", "3000-i1.customer.test"},
		"one address":  {"e2b.app", "http://127.0.0.1:3002/", "", "http://127.0.0.1:3002", "3000-i1.e2b.app"},
	} {
		control, err := api.NewClient(api.WithAPIKey("k"), api.WithDomain(test.domain), api.WithSandboxURL(test.sandboxURL))
		must.Do(t, err)
		sb := &Sandbox{client: &Client{api: control}, remote: &api.Sandbox{ID: "i1", Domain: test.answer}}
		if base, host := sb.baseURL(3000), sb.Host(3000); base != test.base || host != test.host {
			t.Errorf("%s: %s, %s", name, base, host)
		}
	}
}

// memory is a service without a network, for bubbles of synctest.
type memory func(*http.Request) (int, string)

func (m memory) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := m(r)
	w := httptest.NewRecorder()
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
	response := w.Result()
	response.Request = r
	return response, nil
}

// leases is a service that notes when leases are renewed, from its start on.
type leases struct {
	start time.Time

	mu      sync.Mutex
	status  int // with which it answers renewals
	renewed []time.Duration
}

// newLeases returns the service, which accepts renewals, and a client of it.
func newLeases(t *testing.T) (*leases, *Client) {
	t.Helper()
	l := &leases{start: time.Now(), status: http.StatusNoContent}
	c, err := NewClient(WithAPIKey(testKey), WithEnvFile(""), WithMaxRetries(0), WithTransport(memory(l.answer)))
	must.Do(t, err)
	return l, c
}

func (l *leases) answer(r *http.Request) (int, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case strings.HasSuffix(r.URL.Path, "/refreshes"):
		l.renewed = append(l.renewed, time.Since(l.start))
		return l.status, `{"code":404,"message":"gone"}`
	case r.Method == http.MethodDelete:
		return 204, ""
	default:
		return 201, `{"sandboxID":"i1"}`
	}
}

// answerWith has renewals answered with status from now on.
func (l *leases) answerWith(status int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status = status
}

// take returns when leases were renewed since the last call.
func (l *leases) take() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	renewed := l.renewed
	l.renewed = nil
	return renewed
}

// renewing is the option of a sandbox with a lease.
var renewing = WithExpiry(Expiry{After: time.Minute, Renew: true})

// TestLease checks when the lease of a sandbox is renewed, and that a renewal that fails is
// repeated until the sandbox is gone.
func TestLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, c := newLeases(t)
		defer c.Close()
		sb, err := c.Create(t.Context())
		must.Do(t, err)
		defer sb.Close()
		<-time.After(11 * time.Minute)
		if diff := cmp.Diff([]time.Duration{150 * time.Second, 300 * time.Second, 450 * time.Second, 600 * time.Second}, l.take()); diff != "" {
			t.Errorf("renewed at:\n%s", diff)
		}
		l.answerWith(503)
		<-time.After(4 * time.Minute)
		if n := len(l.take()); n < 8 {
			t.Errorf("a renewal that failed was repeated %d times only", n)
		}
		l.answerWith(404)
		<-time.After(time.Minute)
		l.take()
		<-time.After(time.Hour)
		if n := len(l.take()); n != 0 {
			t.Errorf("a sandbox that is gone is renewed %d times", n)
		}
	})
}

// TestLeaseEnds checks that no sandbox is renewed whose handle is closed, or whose life is fixed.
func TestLeaseEnds(t *testing.T) {
	t.Parallel()
	fixed := func(sb *Sandbox) error { return sb.SetLifetime(context.Background(), time.Hour) }
	for name, tt := range map[string]struct {
		option CreateOption
		end    func(*Sandbox) error
	}{
		"closed":           {renewing, (*Sandbox).Close},
		"detached":         {renewing, (*Sandbox).Detach},
		"fixed":            {renewing, fixed},
		"fixed from first": {WithExpiry(Expiry{After: time.Minute}), func(*Sandbox) error { return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l, c := newLeases(t)
				defer c.Close()
				sb, err := c.Create(t.Context(), tt.option)
				must.Do(t, err)
				defer sb.Close()
				must.Do(t, tt.end(sb))
				<-time.After(time.Hour)
				if n := len(l.take()); n != 0 {
					t.Errorf("renewed %d times", n)
				}
			})
		})
	}
}

// TestLeaseAfterFixing checks that a life that could not be fixed still has its lease, and that one
// that was fixed stays fixed.
func TestLeaseAfterFixing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, c := newLeases(t)
		defer c.Close()
		sb, err := c.Create(t.Context(), renewing)
		must.Do(t, err)
		defer sb.Close()
		if err := sb.SetLifetime(t.Context(), -1); err == nil {
			t.Error("a negative life was set")
		}
		<-time.After(time.Minute)
		if len(l.take()) == 0 {
			t.Error("the lease ended with a call that failed")
		}
		must.Do(t, sb.SetLifetime(t.Context(), time.Hour))
		_ = sb.SetLifetime(t.Context(), -1)
		l.take()
		<-time.After(time.Hour)
		if n := len(l.take()); n != 0 {
			t.Errorf("fixed, and renewed %d times after all", n)
		}
	})
}

func TestLeaseOfAServiceWithoutRefreshes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var paths []string
		c, err := NewClient(WithAPIKey(testKey), WithEnvFile(""), WithTransport(memory(func(r *http.Request) (int, string) {
			paths = append(paths, r.Method+" "+r.URL.Path)
			switch {
			case strings.HasSuffix(r.URL.Path, "/refreshes"):
				return 404, "404 page not found"
			case r.Method == http.MethodDelete, strings.HasSuffix(r.URL.Path, "/timeout"):
				return 204, ""
			}
			return 201, `{"sandboxID":"i1"}`
		})))
		must.Do(t, err)
		sb, err := c.Create(t.Context())
		must.Do(t, err)
		<-time.After(151 * time.Second)
		sb.Close()
		c.Close()
		want := []string{"POST /v2/sandboxes", "POST /sandboxes/i1/refreshes", "POST /sandboxes/i1/timeout", "DELETE /sandboxes/i1"}
		if diff := cmp.Diff(want, paths); diff != "" {
			t.Error(diff)
		}
	})
}

func TestCreateThatIsGivenUpLeavesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newPipedService(t)
		release := make(chan struct{})
		asked := make(chan struct{})
		s.control = func(_ http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				close(asked)
				<-release
			}
		}
		c := s.client()
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-asked; cancel() }()
		start := time.Now()
		_, err := c.Create(ctx)
		if !errors.Is(err, context.Canceled) || time.Since(start) != 0 {
			t.Errorf("got %v after %v, want that it was cancelled, and no wait", err, time.Since(start))
		}
		close(release)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if s.seen("DELETE /sandboxes/"+testID) != 1 {
			t.Error("the sandbox is left")
		}
		if _, err := c.Create(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("a closed client: %v", err)
		}
	})
}

// A service that does not answer does not hold up Close for long.
func TestCloseAfterACreationThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, err := NewClient(WithAPIKey(testKey), WithEnvFile(""), WithTransport(hanging{}))
		must.Do(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Create(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		start := time.Now()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > createGrace {
			t.Errorf("Close took %v", took)
		}
	})
}

// hanging never answers.
type hanging struct{}

func (hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestClientInfoAndKill(t *testing.T) {
	t.Parallel()
	s := newService(t)
	c := s.client()
	defer c.Close()
	if info, err := c.Info(t.Context(), testID); err != nil || info.ID != testID {
		t.Errorf("%+v, %v", info, err)
	}
	if err := c.Kill(t.Context(), testID); err != nil {
		t.Error(err)
	}
	s.control = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }
	if _, err := c.Info(t.Context(), testID); !errors.Is(err, ErrGone) || !errors.Is(err, api.ErrNotFound) {
		t.Error(err)
	}
	if err := c.Kill(t.Context(), testID); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
}

func TestUse(t *testing.T) {
	s := newService(t)
	t.Chdir(t.TempDir())
	t.Setenv("E2B_API_KEY", testKey)
	t.Setenv("E2B_API_URL", s.url)
	t.Setenv("E2B_SANDBOX_URL", s.url)
	t.Setenv("E2B_DOMAIN", "")
	mine := errors.New("mine")
	err := Use(t.Context(), func(ctx context.Context, sb *Sandbox) error {
		if _, err := sb.Info(ctx); err != nil {
			t.Error(err)
		}
		return mine
	})
	if !errors.Is(err, mine) || s.seen("DELETE") != 1 {
		t.Errorf("%v, killed %d times", err, s.seen("DELETE"))
	}
	s.mu.Lock()
	s.gone = false
	s.mu.Unlock()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is lost")
			}
		}()
		_ = Use(t.Context(), func(context.Context, *Sandbox) error { panic("x") })
	}()
	if s.seen("DELETE") != 2 {
		t.Error("a panic leaves the sandbox")
	}
	t.Setenv("E2B_API_KEY", "")
	if _, err := Create(t.Context()); !errors.Is(err, api.ErrNoAPIKey) {
		t.Errorf("without a key: %v", err)
	}
}

func TestReap(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.control = func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.WriteHeader(200)
			_, _ = io.WriteString(w, `[{"sandboxID":"iold","startedAt":"2020-01-01T00:00:00Z"},{"sandboxID":"inew","startedAt":"`+time.Now().UTC().Format(time.RFC3339)+`"}]`)
		}
	}
	c := s.client()
	killed, err := c.Reap(t.Context(), &ReapParams{Metadata: map[string]string{"ci": "1"}, OlderThan: time.Hour})
	if diff := cmp.Diff([]string{"iold"}, killed); diff != "" || err != nil {
		t.Errorf("%s %v", diff, err)
	}
	if _, err := c.Reap(t.Context(), nil); err == nil {
		t.Error("reaped everything")
	}
}

func TestCloseCutsCallsOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newPipedService(t)
		running := make(chan struct{})
		s.start = func(ctx context.Context, _ *process.StartRequest, stream *connect.ServerStream[process.StartResponse]) error {
			_ = started(stream, 1)
			close(running)
			<-ctx.Done()
			return ctx.Err()
		}
		sb := s.sandbox()
		failed := make(chan error, 1)
		go func() {
			_, err := sb.Commands.Run(context.WithoutCancel(t.Context()), "sleep 1000", nil)
			failed <- err
		}()
		<-running
		start := time.Now()
		if err := sb.Close(); err != nil || time.Since(start) != 0 {
			t.Errorf("Close: %v after %v, want no error and no wait", err, time.Since(start))
		}
		if err := <-failed; !errors.Is(err, ErrClosed) {
			t.Errorf("Run: %v", err)
		}
	})
}
