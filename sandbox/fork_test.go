package sandbox

import (
	"context"
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

// forking makes the service answer forks like that.
func (s *service) forking(answer string) {
	s.control = func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/fork"):
			w.WriteHeader(201)
			_, _ = io.WriteString(w, answer)
		case r.Method == http.MethodDelete:
			w.WriteHeader(204)
		}
	}
}

func TestForkHandles(t *testing.T) {
	t.Parallel()
	s := newService(t)
	sb := s.sandbox()
	s.forking(`[{"sandbox":{"sandboxID":"i2","trafficAccessToken":"of-i2"},"memory":false},
		{"error":{"code":429,"message":"no more sandboxes"}},
		{"sandbox":{"sandboxID":"i3"},"memory":true}, {"sandbox":{"sandboxID":"i4"}}]`)
	forks, err := sb.Fork(t.Context(), &ForkParams{Count: 4})
	must.Do(t, err)
	if want := `POST /sandboxes/i1234567890/fork {"timeout":300,"count":4}`; s.last() != want {
		t.Errorf("got %s, want %s", s.last(), want)
	}
	var got []string
	for _, f := range forks {
		memory := "unknown"
		if f.Memory != nil {
			memory = fmt.Sprint(*f.Memory)
		}
		switch {
		case f.Err == nil:
			got = append(got, f.Sandbox.ID()+" "+memory)
		case f.Sandbox == nil && errors.Is(f.Err, api.ErrRateLimited) && strings.Contains(f.Err.Error(), "no more sandboxes"):
			got = append(got, "limited")
		default:
			got = append(got, f.Err.Error())
		}
	}
	if diff := cmp.Diff([]string{"i2 false", "limited", "i3 true", "i4 unknown"}, got); diff != "" {
		t.Error(diff)
	}

	// Each handle owns its copy and nothing else.
	if err := forks[2].Sandbox.Detach(); err != nil {
		t.Error(err)
	}
	for _, f := range forks {
		if err := f.Sandbox.Close(); err != nil {
			t.Error(err)
		}
	}
	for id, want := range map[string]int{"i2": 1, "i3": 0, "i4": 1, testID: 0} {
		if n := s.seen("DELETE /sandboxes/" + id + " "); n != want {
			t.Errorf("%s was killed %d times, want %d", id, n, want)
		}
	}
}

// The copies live as long as the handle says, unless the params say otherwise.
func TestForkLifetimes(t *testing.T) {
	t.Parallel()
	s := newService(t)
	minute, leased, client := s.sandbox(WithExpiry(Expiry{After: time.Minute})), s.sandbox(WithExpiry(Expiry{After: 20 * time.Second, Renew: true})), s.client(WithDefaults(WithExpiry(Expiry{After: time.Hour})))
	s.forking(`[{"sandbox":{"sandboxID":"i2"}}]`)
	for name, test := range map[string]struct {
		fork  func(*ForkParams) ([]ForkResult, error)
		p     *ForkParams
		want  string
		lease time.Duration
	}{
		"a lifetime":              {func(p *ForkParams) ([]ForkResult, error) { return minute.Fork(t.Context(), p) }, nil, `{"timeout":60}`, 0},
		"a lease":                 {func(p *ForkParams) ([]ForkResult, error) { return leased.Fork(t.Context(), p) }, nil, `{"timeout":20}`, 20 * time.Second},
		"one of its own":          {func(p *ForkParams) ([]ForkResult, error) { return leased.Fork(t.Context(), p) }, &ForkParams{Expiry: Expiry{After: time.Hour}}, `{"timeout":3600}`, 0},
		"a lease of its own":      {func(p *ForkParams) ([]ForkResult, error) { return minute.Fork(t.Context(), p) }, &ForkParams{Expiry: Expiry{Renew: true}}, `{"timeout":300}`, DefaultLifetime},
		"the client's":            {func(p *ForkParams) ([]ForkResult, error) { return client.Fork(t.Context(), testID, p) }, nil, `{"timeout":3600}`, 0},
		"not the client's either": {func(p *ForkParams) ([]ForkResult, error) { return client.Fork(t.Context(), testID, p) }, &ForkParams{Expiry: Expiry{After: time.Second}}, `{"timeout":1}`, 0},
	} {
		forks, err := test.fork(test.p)
		must.Do(t, err)
		if want := "POST /sandboxes/i1234567890/fork " + test.want; s.last() != want {
			t.Errorf("%s: got %s, want %s", name, s.last(), want)
		}
		if got := forks[0].Sandbox.lease.length; got != test.lease {
			t.Errorf("%s: the copy has a lease of %v, want %v", name, got, test.lease)
		}
		if err := forks[0].Sandbox.Close(); err != nil {
			t.Error(err)
		}
	}
	calls := s.seen("POST")
	for _, p := range []*ForkParams{{Count: -1}, {Expiry: Expiry{After: -time.Second}}, {Expiry: Expiry{Then: ThenPause}}, {Expiry: Expiry{After: time.Hour, Then: ThenPause, Resume: true}}} {
		if _, err := minute.Fork(t.Context(), p); !errors.Is(err, api.ErrInvalidArgument) {
			t.Errorf("%+v: got %v, want api.ErrInvalidArgument", p, err)
		}
	}
	if s.seen("POST") != calls {
		t.Error("bad arguments were sent")
	}
}

// TestLeaseOfACopy checks that a copy ends its lifetime as the original does: a copy
// that is paused then is not kept alive.
func TestLeaseOfACopy(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		onTimeout OnTimeout
		renewals  int // in ten minutes
	}{{OnTimeoutKill, 3}, {OnTimeoutPause, 0}} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			renewed := map[string]int{}
			c, err := NewClient(WithAPIKey(testKey), WithEnvFile(""), WithMaxRetries(0), WithTransport(memory(func(r *http.Request) (int, string) {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case strings.HasSuffix(r.URL.Path, "/refreshes"):
					renewed[r.URL.Path]++
					return 204, ""
				case strings.HasSuffix(r.URL.Path, "/fork"):
					return 201, `[{"sandbox":{"sandboxID":"i2"}}]`
				case r.Method == http.MethodGet:
					return 200, `{"sandboxID":"i2","state":"running","lifecycle":{"onTimeout":"` + string(test.onTimeout) + `"}}`
				}
				return 204, ""
			})))
			must.Do(t, err)
			defer c.Close()
			forks, err := c.Fork(t.Context(), "i1", nil)
			must.Do(t, err)
			<-time.After(10*time.Minute - time.Second)
			forks[0].Sandbox.Close()
			if n := renewed["/sandboxes/i2/refreshes"]; n != test.renewals || len(renewed) > 1 {
				t.Errorf("%s: got renewals %v, want %d of i2", test.onTimeout, renewed, test.renewals)
			}
		})
	}
}

func TestForkThatIsGivenUpLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newService(t)
	sb := s.sandbox()
	release, asked := make(chan struct{}), make(chan struct{})
	s.control = func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/fork"):
			close(asked)
			<-release
			w.WriteHeader(201)
			_, _ = io.WriteString(w, `[{"sandbox":{"sandboxID":"i2"}},{"error":{"code":429,"message":"no more"}},{"sandbox":{"sandboxID":"i3"}}]`)
		case r.Method == http.MethodDelete:
			w.WriteHeader(204)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if _, err := sb.Fork(ctx, &ForkParams{Count: 3}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	close(release)
	if err := sb.client.Close(); err != nil {
		t.Error(err)
	}
	for id, want := range map[string]int{"i2": 1, "i3": 1, testID: 0} {
		if n := s.seen("DELETE /sandboxes/" + id + " "); n != want {
			t.Errorf("%s was killed %d times, want %d", id, n, want)
		}
	}
	if _, err := sb.Fork(t.Context(), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed from a closed client", err)
	}
}

// A fork or snapshot may take as long as the context of the call says, and a creation without
// a deadline as long as the API waits for an answer.
func TestMakingWaitsForTheContext(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(context.Context, *Client, *Sandbox) error{
		"Client.Fork":  func(ctx context.Context, c *Client, _ *Sandbox) error { _, err := c.Fork(ctx, "i1", nil); return err },
		"Sandbox.Fork": func(ctx context.Context, _ *Client, sb *Sandbox) error { _, err := sb.Fork(ctx, nil); return err },
		"Client.Snapshot": func(ctx context.Context, c *Client, _ *Sandbox) error {
			_, err := c.Snapshot(ctx, "i1", nil)
			return err
		},
		"Sandbox.Snapshot": func(ctx context.Context, _ *Client, sb *Sandbox) error { _, err := sb.Snapshot(ctx, nil); return err },
		"Create":           func(ctx context.Context, c *Client, _ *Sandbox) error { _, err := c.Create(ctx); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, err := NewClient(WithAPIKey(testKey), WithEnvFile(""), WithTransport(hanging{}))
				must.Do(t, err)
				defer c.Close()
				cfg, err := configure(c, "Connect", []ConnectOption{WithExpiry(Expiry{After: time.Hour})})
				must.Do(t, err)
				sb := newSandbox(c, &api.Sandbox{ID: "i1"}, cfg, false)
				defer sb.Close()
				long, without := 2*time.Hour, 15*time.Minute
				if name == "Create" {
					long, without = time.Minute, 75*time.Second
				}
				ctx, cancel := context.WithTimeout(t.Context(), long)
				defer cancel()
				start := time.Now()
				if err := call(ctx, c, sb); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != long {
					t.Errorf("got %v after %v, want the deadline after %v", err, time.Since(start), long)
				}
				start = time.Now()
				err = call(t.Context(), c, sb)
				// The call of a handle asks what became of the sandbox.
				if took := time.Since(start); !errors.Is(err, api.ErrTimeout) || took < without || took > without+stateTimeout {
					t.Errorf("without a deadline: got %v after %v, want api.ErrTimeout after %v", err, took, without)
				}
			})
		})
	}
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	s := newService(t)
	sb := s.sandbox()
	s.control = func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/snapshots") && r.Method == http.MethodPost:
			w.WriteHeader(201)
			_, _ = io.WriteString(w, `{"snapshotID":"local/s:v1","names":["local/s"],"memory":false}`)
		case strings.HasSuffix(r.URL.Path, "/snapshots"):
			w.WriteHeader(200)
			_, _ = io.WriteString(w, `[{"snapshotID":"local/s:v1","names":["local/s"]}]`)
		case r.Method == http.MethodDelete:
			w.WriteHeader(204)
		}
	}
	want := &Snapshot{ID: "local/s:v1", Names: []string{"local/s"}, Memory: new(bool)}
	for what, take := range map[string]func(*SnapshotParams) (*Snapshot, error){
		"Sandbox": func(p *SnapshotParams) (*Snapshot, error) { return sb.Snapshot(t.Context(), p) },
		"Client":  func(p *SnapshotParams) (*Snapshot, error) { return sb.client.Snapshot(t.Context(), testID, p) },
	} {
		got, err := take(&SnapshotParams{Name: "s:v1", Mode: SnapshotFilesystem})
		must.Do(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
		if want := `POST /sandboxes/i1234567890/snapshots {"name":"s:v1","memory":false}`; s.last() != want {
			t.Errorf("%s: got %s, want %s", what, s.last(), want)
		}
		if _, err := take(&SnapshotParams{Mode: "disk"}); !errors.Is(err, api.ErrInvalidArgument) {
			t.Errorf("%s: got %v, want api.ErrInvalidArgument", what, err)
		}
	}
	for snapshot, err := range sb.client.Snapshots.List(t.Context(), &SnapshotListParams{SandboxID: testID}) {
		if err != nil || snapshot.ID != want.ID {
			t.Errorf("got %+v, %v, want %s", snapshot, err, want.ID)
		}
	}
	if err := sb.client.Snapshots.Delete(t.Context(), want.ID); err != nil {
		t.Error(err)
	}
	if want := "DELETE /templates/local/s:v1 "; s.last() != want {
		t.Errorf("got %s, want %s", s.last(), want)
	}
}

// A sandbox that is paused is neither resumed for that nor taken for gone.
func TestSnapshotAndForkThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status   int
		state    string // that the service then says
		snapshot error
		gone     GoneState
	}{
		"paused":      {404, "paused", ErrGone, GonePaused},
		"gone":        {404, "", ErrGone, GoneKilled},
		"busy":        {409, "running", api.ErrConflict, ""},
		"unavailable": {503, "running", api.ErrUnavailable, ""},
		"mode":        {400, "running", api.ErrInvalidArgument, ""},
	} {
		s := newService(t)
		sb := s.sandbox()
		s.control = func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodPost:
				w.WriteHeader(test.status)
				fmt.Fprintf(w, `{"code":%d,"message":"told so"}`, test.status)
			case test.state == "":
				w.WriteHeader(404)
				_, _ = io.WriteString(w, `{"code":404,"message":"told so"}`)
			default:
				w.WriteHeader(200)
				fmt.Fprintf(w, `{"sandboxID":"i1","state":%q}`, test.state)
			}
		}
		_, ofHandle := sb.Snapshot(t.Context(), nil)
		_, ofClient := s.client().Snapshot(t.Context(), testID, nil)
		_, forked := sb.Fork(t.Context(), nil)
		_, forkedByID := s.client().Fork(t.Context(), testID, nil)
		for what, err := range map[string]error{"Sandbox.Snapshot": ofHandle, "Client.Snapshot": ofClient, "Sandbox.Fork": forked, "Client.Fork": forkedByID} {
			if !errors.Is(err, test.snapshot) {
				t.Errorf("%s, %s: got %v, want %v", name, what, err, test.snapshot)
			}
			gone, _ := errors.AsType[*GoneError](err)
			if byHandle := what != "Client.Fork"; test.gone != "" && byHandle && (gone == nil || gone.State != test.gone) {
				t.Errorf("%s, %s: got %v, want the state %s", name, what, err, test.gone)
			}
		}
	}
}
