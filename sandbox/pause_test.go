package sandbox

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
)

// last returns the last call of the API.
func (s *service) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[len(s.calls)-1]
}

func TestLifecycleOptions(t *testing.T) {
	t.Parallel()
	s := newService(t)
	plain := s.client()
	pausing := s.client(WithDefaults(WithExpiry(Expiry{Then: ThenPause, Resume: true})))
	const resumed = `,"autoPause":true,"autoResume":{"enabled":true}`
	for name, test := range map[string]struct {
		client *Client
		opts   []CreateOption
		want   string // in the request
		err    string
	}{
		"nothing":                 {plain, nil, ``, ""},
		"kill":                    {plain, []CreateOption{WithExpiry(Expiry{Then: ThenKill})}, `,"autoPause":false`, ""},
		"pause":                   {plain, []CreateOption{WithExpiry(Expiry{Then: ThenPause})}, `,"autoPause":true`, ""},
		"files only":              {plain, []CreateOption{WithExpiry(Expiry{Then: ThenPauseFilesystem})}, `,"autoPause":true,"autoPauseMemory":false`, ""},
		"everything":              {plain, []CreateOption{WithExpiry(Expiry{Then: ThenPause, Resume: true})}, resumed, ""},
		"the client's":            {pausing, nil, resumed, ""},
		"a lease":                 {pausing, []CreateOption{WithExpiry(Expiry{Renew: true})}, ``, ""},
		"instead of the client's": {pausing, []CreateOption{WithExpiry(Expiry{Then: ThenKill})}, `,"autoPause":false`, ""},
		"resume without pause":    {plain, []CreateOption{WithExpiry(Expiry{Resume: true})}, "", "only a sandbox that ends by ThenPause"},
		"resume after a kill":     {plain, []CreateOption{WithExpiry(Expiry{Then: ThenKill, Resume: true})}, "", "only a sandbox that ends by ThenPause"},
		"resume from files":       {plain, []CreateOption{WithExpiry(Expiry{Then: ThenPauseFilesystem, Resume: true})}, "", "only a sandbox that ends by ThenPause"},
		"unknown action":          {plain, []CreateOption{WithExpiry(Expiry{Then: "sleep"})}, "", `"sleep"`},
	} {
		t.Run(name, func(t *testing.T) {
			before := s.seen("POST")
			sb, err := test.client.Create(t.Context(), test.opts...)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) || s.seen("POST") != before {
					t.Errorf("got %v, want an error with %q before anything is sent", err, test.err)
				}
				return
			}
			must.Do(t, err)
			defer sb.Detach()
			if want := `POST /v2/sandboxes {"templateID":"code-interpreter-v1","timeout":300` + test.want + `}`; s.last() != want {
				t.Errorf("got %s, want %s", s.last(), want)
			}
		})
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	s := newService(t)
	sb := s.sandbox(WithExpiry(Expiry{After: time.Minute}))
	for _, test := range []struct {
		do   func() error
		want string
	}{
		{func() error { return sb.Pause(t.Context(), nil) }, `/sandboxes/i1234567890/pause {}`},
		{func() error { return sb.Resume(t.Context(), nil) }, `/v2/sandboxes/i1234567890/connect {"timeout":60}`},
		{func() error { return s.client().Pause(t.Context(), testID, &PauseParams{Mode: PauseFilesystem}) }, `/sandboxes/i1234567890/pause {"memory":false}`},
		{func() error { return sb.Resume(t.Context(), &ResumeParams{Lifetime: time.Hour, Reboot: true}) }, `/v2/sandboxes/i1234567890/connect {"timeout":3600,"memory":false}`},
		{func() error {
			other, err := s.client().Connect(t.Context(), testID, WithReboot(), WithExpiry(Expiry{After: time.Minute}))
			if err != nil {
				return err
			}
			return other.Close()
		}, `/v2/sandboxes/i1234567890/connect {"timeout":60,"memory":false}`},
	} {
		must.Do(t, test.do())
		if got := s.last(); got != "POST "+test.want {
			t.Errorf("got %s, want POST %s", got, test.want)
		}
	}
	if err := sb.Pause(t.Context(), &PauseParams{Mode: "disk"}); !errors.Is(err, api.ErrInvalidArgument) {
		t.Errorf("got %v, want api.ErrInvalidArgument", err)
	}
}

func TestPauseThatIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status int
		code   string
		want   error
		text   string
	}{
		"paused already": {409, "", api.ErrConflict, ""},
		"busy":           {503, "", api.ErrUnavailable, ""},
		"gone":           {404, "", ErrGone, ""},
		"unresponsive":   {409, api.CodeGuestUnresponsive, api.ErrConflict, "Reboot"},
	} {
		s := newService(t)
		sb := s.sandbox()
		s.control = func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				w.WriteHeader(test.status)
				fmt.Fprintf(w, `{"code":%d,"message":"told so","error_code":%q}`, test.status, test.code)
			}
		}
		_, connected := s.client().Connect(t.Context(), testID)
		for what, err := range map[string]error{
			"Pause": sb.Pause(t.Context(), nil), "Client.Pause": s.client().Pause(t.Context(), testID, nil),
			"Resume": sb.Resume(t.Context(), nil), "Connect": connected,
		} {
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), "told so") {
				t.Errorf("%s, %s: got %v, want %v with the service's message", name, what, err, test.want)
			}
			if isResume := what == "Resume" || what == "Connect"; isResume && !strings.Contains(err.Error(), test.text) {
				t.Errorf("%s, %s: got %v, want %q in it", name, what, err, test.text)
			}
		}
	}
}

func TestPauseOfAClosedHandle(t *testing.T) {
	t.Parallel()
	s := newService(t)
	sb := s.sandbox()
	must.Do(t, sb.Close())
	for what, err := range map[string]error{"Pause": sb.Pause(t.Context(), nil), "Resume": sb.Resume(t.Context(), nil)} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: got %v, want ErrClosed", what, err)
		}
	}
}

// The service says why a sandbox is gone, whether the handle asks for the sandbox
// itself or finds out in the middle of something else.
func TestWhyItIsGone(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 13, 30, 0, 0, time.UTC)
	for reason, want := range map[string]GoneState{
		"expired": GoneExpired, "killed": GoneKilled, "out_of_memory": GoneOutOfMemory, "died": GoneDied, "server_gone": GoneServerGone,
		"abducted": GoneKilled, "": GoneKilled,
	} {
		s := newService(t)
		sb := s.sandbox()
		s.mu.Lock()
		s.gone = true
		s.mu.Unlock()
		s.control = func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(404)
			fmt.Fprintf(w, `{"code":404,"message":"no sandbox: told so","reason":%q,"endedAt":"2026-11-22T13:30:00Z"}`, reason)
		}
		_, asked := sb.Info(t.Context())
		_, found := sb.Commands.Run(t.Context(), "true", nil)
		_, other := s.client().Connect(t.Context(), testID)
		for what, err := range map[string]error{"Info": asked, "Run": found, "Connect": other} {
			gone, ok := errors.AsType[*GoneError](err)
			if !ok || gone.State != want {
				t.Errorf("%q, %s: got %v, want the state %s", reason, what, err, want)
				continue
			}
			if known := want != GoneKilled || reason == "killed"; known && !gone.At.Equal(at) {
				t.Errorf("%q, %s: got %v, want %v", reason, what, gone.At, at)
			}
			advice := map[bool]string{true: "SetLifetime", false: "told so"}[want == GoneExpired]
			if known := want != GoneKilled || reason == "killed"; known && !strings.Contains(err.Error(), advice) {
				t.Errorf("%q, %s: got %v, want %q in it", reason, what, err, advice)
			}
		}
	}
}

// A sandbox that is paused when its lifetime is over would never be if its handle
// kept it alive.
func TestLeaseOfASandboxThatPauses(t *testing.T) {
	t.Parallel()
	create := func(t *testing.T, c *Client, life Expiry) (*Sandbox, error) {
		t.Helper()
		life.Then = ThenPause
		return c.Create(t.Context(), WithExpiry(life))
	}
	attach := func(t *testing.T, c *Client, life Expiry) (*Sandbox, error) {
		t.Helper()
		return c.Connect(t.Context(), "i1", WithExpiry(life))
	}
	usual := Expiry{}
	for name, test := range map[string]struct {
		open      func(*testing.T, *Client, Expiry) (*Sandbox, error)
		life      Expiry
		onTimeout OnTimeout // as the service says
		renewals  int       // in ten minutes
		asks      int       // the handle's questions about onTimeout
	}{
		"created":                    {create, usual, OnTimeoutPause, 0, 0},
		"created, with a lease":      {create, Expiry{Renew: true}, OnTimeoutPause, 3, 0},
		"connected":                  {attach, usual, OnTimeoutPause, 0, 1},
		"connected, with a lease":    {attach, Expiry{Renew: true}, OnTimeoutPause, 3, 0},
		"connected to another":       {attach, usual, OnTimeoutKill, 3, 1},
		"connected, unknown":         {attach, usual, "", 3, 1},
		"connected, with a lifetime": {attach, Expiry{After: time.Minute}, OnTimeoutKill, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				got := map[string]int{}
				c, err := NewClient(WithAPIKey(testKey), WithEnvFile(""), WithMaxRetries(0), WithTransport(memory(func(r *http.Request) (int, string) {
					mu.Lock()
					defer mu.Unlock()
					switch {
					case strings.HasSuffix(r.URL.Path, "/refreshes"):
						got["renewals"]++
						return 204, ""
					case r.Method == http.MethodGet && test.onTimeout == "":
						got["asks"]++
						return 200, `{"sandboxID":"i1","state":"running"}`
					case r.Method == http.MethodGet:
						got["asks"]++
						return 200, `{"sandboxID":"i1","state":"running","lifecycle":{"onTimeout":"` + string(test.onTimeout) + `","autoResume":false}}`
					case r.Method == http.MethodDelete:
						return 204, ""
					}
					return 201, `{"sandboxID":"i1"}`
				})))
				must.Do(t, err)
				defer c.Close()
				sb, err := test.open(t, c, test.life)
				must.Do(t, err)
				<-time.After(10*time.Minute - time.Second)
				sb.Close()
				want := map[string]int{}
				for what, n := range map[string]int{"renewals": test.renewals, "asks": test.asks} {
					if n > 0 {
						want[what] = n
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// The lease of a handle stands still with its sandbox and continues with it.
func TestLeaseAfterResume(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var paused bool
		var renewed int
		c, err := NewClient(WithAPIKey(testKey), WithEnvFile(""), WithMaxRetries(0), WithTransport(memory(func(r *http.Request) (int, string) {
			mu.Lock()
			defer mu.Unlock()
			_, verb, _ := strings.Cut(r.URL.Path, "i1/")
			switch verb {
			case "pause":
				paused = true
			case "connect":
				paused = false
				return 201, `{"sandboxID":"i1"}`
			case "refreshes":
				if paused {
					return 404, `{"code":404,"message":"sandbox i1 is paused"}`
				}
				renewed++
			}
			if r.Method == http.MethodGet {
				return 200, `{"sandboxID":"i1","state":"paused"}`
			}
			if strings.HasSuffix(r.URL.Path, "/sandboxes") {
				return 201, `{"sandboxID":"i1"}`
			}
			return 204, ""
		})))
		must.Do(t, err)
		defer c.Close()
		sb, err := c.Create(t.Context())
		must.Do(t, err)
		defer sb.Close()
		must.Do(t, sb.Pause(t.Context(), nil))
		<-time.After(time.Hour)
		must.Do(t, sb.Resume(t.Context(), nil))
		<-time.After(10*time.Minute - time.Second)
		mu.Lock()
		defer mu.Unlock()
		if renewed != 3 {
			t.Errorf("renewed %d times in ten minutes after Resume, want 3", renewed)
		}
	})
}

// Close does not resume a sandbox to kill it, and Detach leaves it paused.
func TestCloseOfAPausedSandbox(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end  func(*Sandbox) error
		want string
	}{
		"closed":   {(*Sandbox).Close, "DELETE /sandboxes/" + testID + " "},
		"detached": {(*Sandbox).Detach, "POST /sandboxes/" + testID + "/pause {}"},
	} {
		s := newService(t)
		sb := s.sandbox()
		must.Do(t, sb.Pause(t.Context(), nil))
		if err := test.end(sb); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := s.last(); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}

func TestInfoOfAPausedSandbox(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.control = func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.WriteHeader(200)
			_, _ = io.WriteString(w, `{"sandboxID":"i1","state":"paused","pauseMode":"full","lifecycle":{"onTimeout":"pause","autoResume":true}}`)
		}
	}
	info, err := s.client().Info(t.Context(), testID)
	must.Do(t, err)
	want := &Info{ID: "i1", State: api.StatePaused, PauseMode: PauseFull, Lifecycle: &Lifecycle{OnTimeout: OnTimeoutPause, AutoResume: true}}
	if diff := cmp.Diff(want, info); diff != "" {
		t.Error(diff)
	}
}
