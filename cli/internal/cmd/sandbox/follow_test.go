package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pipetest"
	"github.com/e2bctl/e2bctl/sandbox"
)

// opened returns a function that connects to a service in the bubble of a test.
func opened(t *testing.T, serve http.HandlerFunc) cmdutil.Opener {
	t.Helper()
	transport := pipetest.Serve(t, serve)
	return func(context.Context) (*cmdutil.Connection, error) {
		client, err := sandbox.NewClient(sandbox.WithAPIKey("e2b_00"), sandbox.WithAPIURL("http://service.invalid"), sandbox.WithSandboxURL("http://service.invalid"), sandbox.WithTransport(transport), sandbox.WithMaxRetries(0), sandbox.WithEnvFile(""))
		return &cmdutil.Connection{Client: client}, err
	}
}

// TestMetricsAreFollowed checks which samples metrics shows, each once, how often it asks for more, and its ends.
func TestMetricsAreFollowed(t *testing.T) {
	t.Parallel()
	sample := func(second int) string {
		return fmt.Sprintf(`{"timestamp":"2026-11-22T10:00:%02dZ","timestampUnix":%d,"cpuCount":2,"cpuUsedPct":12.5,"memUsed":1048576,"memTotal":2097152}`, second, 1795341600+second)
	}
	const line = "2026-11-22T10:00:%02dZ 12.5%% of 2 1 of 2 MiB not known"
	enough := errors.New("enough")
	for name, tt := range map[string]struct {
		opts   metricsOptions
		lists  []string // of samples; then the sandbox is gone
		broken int      // the list after which the service fails; 0: it does not
		limit  time.Duration
		want   []int // the seconds of the samples that are shown
		asked  int
		took   time.Duration
		is     error
	}{
		"the latest":       {lists: []string{sample(1) + "," + sample(2)}, want: []int{2}, asked: 1},
		"since then":       {opts: metricsOptions{Since: since(time.Unix(1, 0))}, lists: []string{sample(1) + "," + sample(2)}, want: []int{1, 2}, asked: 1},
		"none":             {lists: []string{""}, asked: 1},
		"until it is gone": {opts: metricsOptions{Follow: true}, lists: []string{sample(1), sample(1) + "," + sample(2), "", sample(3)}, want: []int{1, 2, 3}, asked: 5, took: 4 * sampleEvery},
		"until it breaks":  {opts: metricsOptions{Follow: true}, lists: []string{sample(1), sample(2)}, broken: 2, want: []int{1, 2}, asked: 3, took: 2 * sampleEvery, is: api.ErrForbidden},
		"until it is left": {opts: metricsOptions{Follow: true}, lists: []string{"", "", "", ""}, limit: sampleEvery * 5 / 2, asked: 3, took: sampleEvery * 5 / 2, is: enough},
		"one that is gone": {opts: metricsOptions{Follow: true}, asked: 1, is: sandbox.ErrGone},
	} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			tt.opts.ID = "i1"
			tt.opts.Open = opened(t, func(w http.ResponseWriter, _ *http.Request) {
				asked++
				switch {
				case tt.broken > 0 && asked > tt.broken:
					w.WriteHeader(http.StatusForbidden)
				case asked > len(tt.lists):
					w.WriteHeader(http.StatusNotFound)
				default:
					fmt.Fprintf(w, "[%s]", tt.lists[asked-1])
				}
			})
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if tt.limit > 0 {
				defer time.AfterFunc(tt.limit, func() { cancel(enough) }).Stop()
			}
			var out, errs strings.Builder
			tt.opts.IO = cmdutil.NewIOStreams(nil, &out, &errs)
			begun := time.Now()
			err := metricsRun(ctx, &tt.opts)
			if took := time.Since(begun); !errors.Is(err, tt.is) || (err == nil) != (tt.is == nil) || asked != tt.asked || took != tt.took {
				t.Errorf("%s: got error %v after %d questions and %v, want %v after %d and %v", name, err, asked, took, tt.is, tt.asked, tt.took)
			}
			var want []string
			for i, second := range tt.want {
				if i == 0 {
					want = append(want, "TIME CPU MEMORY DISK")
				}
				want = append(want, fmt.Sprintf(line, second))
			}
			var got []string
			for one := range strings.Lines(out.String()) {
				got = append(got, strings.Join(strings.Fields(one), " "))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
			if none := errs.String() == "No metrics of that time.\n"; none != (name == "none") || !none && errs.Len() > 0 {
				t.Errorf("%s: got the messages %q", name, errs.String())
			}
		})
	}
}

// TestEndOfAForwarding checks how often a command asks whether its sandbox has ended, that a broken connection makes it ask at
// once, and its message about the end.
func TestEndOfAForwarding(t *testing.T) {
	t.Parallel()
	enough := errors.New("enough")
	for name, tt := range map[string]struct {
		answers int           // before it is gone; those after the first are errors of the service
		breaks  time.Duration // when a connection breaks
		limit   time.Duration
		asked   int
		took    time.Duration
		is      error
	}{
		"it is gone":          {asked: 1, took: askEvery, is: sandbox.ErrGone},
		"it is gone later":    {answers: 3, asked: 4, took: 4 * askEvery, is: sandbox.ErrGone},
		"a connection breaks": {breaks: time.Second, asked: 1, took: time.Second, is: sandbox.ErrGone},
		"one that goes on":    {answers: 1, breaks: time.Second, asked: 2, took: askEvery, is: sandbox.ErrGone},
		"it is left":          {answers: 100, limit: askEvery * 5 / 2, asked: 2, took: askEvery * 5 / 2, is: enough},
	} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			conn, err := opened(t, func(w http.ResponseWriter, _ *http.Request) {
				switch asked++; {
				case asked > tt.answers:
					w.WriteHeader(http.StatusNotFound)
					_, _ = io.WriteString(w, `{"code":404,"message":"no such sandbox"}`)
				case asked > 1:
					w.WriteHeader(http.StatusInternalServerError)
				default:
					_, _ = io.WriteString(w, `{"sandboxID":"i1","state":"running"}`)
				}
			})(t.Context())
			must.Do(t, err)
			defer conn.Close()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			broke := make(chan struct{}, 1)
			if tt.breaks > 0 {
				defer time.AfterFunc(tt.breaks, func() { broke <- struct{}{} }).Stop()
			}
			if tt.limit > 0 {
				defer time.AfterFunc(tt.limit, func() { cancel(enough) }).Stop()
			}
			begun := time.Now()
			err = untilEnd(ctx, conn, "i1", broke)
			if took := time.Since(begun); !errors.Is(err, tt.is) || asked != tt.asked || took != tt.took {
				t.Errorf("%s: got error %v after %d questions and %v, want %v after %d and %v", name, err, asked, took, tt.is, tt.asked, tt.took)
			}
			if _, answer := errors.AsType[*api.Error](err); answer {
				t.Errorf("%s: the error has the answer of the service: %v", name, err)
			}
		})
	}
	if err := ended(enough); !errors.Is(err, enough) {
		t.Errorf("another error became %v", err)
	}
	gone := &sandbox.GoneError{ID: "i1", State: sandbox.GoneKilled, Reason: "r", At: time.Unix(1, 0)}
	got, _ := errors.AsType[*sandbox.GoneError](ended(fmt.Errorf("x: %w", gone)))
	if got == nil || got.ID != gone.ID || got.State != gone.State || got.Error() != gone.Error() {
		t.Fatalf("got %+v, want %+v", got, gone)
	}
	if !got.At.Equal(gone.At) {
		t.Errorf("got the time %v, want %v", got.At, gone.At)
	}
}

// TestPairsOfPorts checks the forms of ports, and the nearest numbers that are none.
func TestPairsOfPorts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]portPair{
		"1": {1, 1}, "65535": {65535, 65535}, "8080:3000": {8080, 3000}, ":3000": {0, 3000}, "0:3000": {0, 3000},
		"0": {}, "65536": {}, "": {}, ":": {}, "1:": {}, "x": {}, "x:1": {}, "-1:1": {}, "1:0": {}, "1:2:3": {}, "65536:1": {},
	} {
		got, err := parsePorts(text)
		if (err == nil) != (want.remote > 0) || err == nil && got != want {
			t.Errorf("%q: got %+v and error %v, want %+v", text, got, err, want)
		}
	}
}

// TestForwardedPortsAreShown checks what is printed of ports that are forwarded, and when others may reach them.
func TestForwardedPortsAreShown(t *testing.T) {
	t.Parallel()
	views := []forwardView{{"127.0.0.1:1", 3000}, {"[::1]:2", 5432}}
	const warned = "Whoever reaches 0.0.0.0 reaches these ports of the sandbox.\n"
	for name, tt := range map[string]struct {
		opts      portForwardOptions
		out, errs string
	}{
		"plainly":   {portForwardOptions{Address: "127.0.0.1"}, "127.0.0.1:1 leads to port 3000 of i1\n[::1]:2 leads to port 5432 of i1\n", ""},
		"by a name": {portForwardOptions{Address: "localhost"}, "127.0.0.1:1 leads to port 3000 of i1\n[::1]:2 leads to port 5432 of i1\n", ""},
		"to others": {portForwardOptions{Address: "0.0.0.0", Quiet: true}, "127.0.0.1:1\n[::1]:2\n", ""},
		"as JSON":   {portForwardOptions{Address: "0.0.0.0", JSON: true}, `[{"address":"127.0.0.1:1","port":3000},{"address":"[::1]:2","port":5432}]` + "\n", warned},
	} {
		var out, errs strings.Builder
		tt.opts.ID, tt.opts.IO = "i1", cmdutil.NewIOStreams(nil, &out, &errs)
		must.Do(t, tt.opts.ready(views))
		if out.String() != tt.out || errs.String() != tt.errs {
			t.Errorf("%s: got %q and %q, want %q and %q", name, out.String(), errs.String(), tt.out, tt.errs)
		}
		full := errors.New("the disk is full")
		tt.opts.IO = cmdutil.NewIOStreams(nil, failingOutput{full}, io.Discard)
		if err := tt.opts.ready(views); !errors.Is(err, full) {
			t.Errorf("%s: got error %v, want %v", name, err, full)
		}
	}
}

// TestAwaitedStates checks how long a command waits for a state of a sandbox, and with which answers it ends.
func TestAwaitedStates(t *testing.T) {
	t.Parallel()
	enough := errors.New("enough")
	for name, tt := range map[string]struct {
		state   sandbox.SandboxState
		answers []string // a state, or a status
		limit   time.Duration
		is      error
		took    time.Duration
	}{
		"at once":               {state: sandbox.StateRunning, answers: []string{"running"}},
		"later":                 {state: sandbox.StatePaused, answers: []string{"running", "running", "paused"}, took: 2 * waitEvery},
		"one that is gone":      {state: sandbox.StateRunning, answers: []string{"paused", "404"}, took: waitEvery, is: sandbox.ErrGone},
		"one that has to go":    {state: stateStopped, answers: []string{"running", "404"}, took: waitEvery},
		"one that is refused":   {state: stateStopped, answers: []string{"403"}, is: api.ErrForbidden},
		"no longer than wanted": {state: sandbox.StatePaused, answers: []string{"running", "running", "running", "running"}, limit: waitEvery * 5 / 2, took: waitEvery * 5 / 2, is: enough},
	} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			conn, err := opened(t, func(w http.ResponseWriter, _ *http.Request) {
				answer := tt.answers[min(asked, len(tt.answers)-1)]
				asked++
				if status := map[string]int{"404": http.StatusNotFound, "403": http.StatusForbidden}[answer]; status > 0 {
					w.WriteHeader(status)
					return
				}
				fmt.Fprintf(w, `{"sandboxID":"i1","state":%q}`, answer)
			})(t.Context())
			must.Do(t, err)
			defer conn.Close()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if tt.limit > 0 {
				defer time.AfterFunc(tt.limit, func() { cancel(enough) }).Stop()
			}
			begun := time.Now()
			err = awaitState(ctx, conn, "i1", tt.state)
			if took := time.Since(begun); !errors.Is(err, tt.is) || (err == nil) != (tt.is == nil) || took != tt.took {
				t.Errorf("%s: got error %v after %v, want %v after %v", name, err, took, tt.is, tt.took)
			}
			cancel(enough)
			if err := awaitState(ctx, conn, "i1", tt.state); !errors.Is(err, enough) {
				t.Errorf("%s, after the end: got error %v, want its cause", name, err)
			}
		})
	}
}

// TestPortForwardRuns checks that ports are forwarded until the command is interrupted, and no longer, and that the sandbox is
// kept.
func TestPortForwardRuns(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	killed := 0
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodDelete:
			killed++
		case http.MethodPost:
			w.WriteHeader(http.StatusCreated)
		}
		_, _ = io.WriteString(w, `{"sandboxID":"i1","templateID":"t","envdVersion":"0.6.13","state":"running"}`)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	interrupted := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	out := &cmdtest.Output{Seen: func() { cancel(interrupted) }}
	opts := &portForwardOptions{IO: cmdutil.NewIOStreams(nil, out, io.Discard), ID: "i1", JSON: true, Address: "127.0.0.1", Ports: []portPair{{0, 3000}, {0, 5432}}}
	opts.Open = func(context.Context) (*cmdutil.Connection, error) {
		client, err := sandbox.NewClient(sandbox.WithAPIKey("e2b_00"), sandbox.WithAPIURL(server.URL), sandbox.WithSandboxURL(server.URL), sandbox.WithMaxRetries(0), sandbox.WithEnvFile(""))
		return &cmdutil.Connection{Client: client}, err
	}
	must.Is(t, portForwardRun(ctx, opts), interrupted)
	var views []forwardView
	must.Do(t, json.Unmarshal([]byte(out.String()), &views))
	if len(views) != 2 || views[0].Port != 3000 || views[1].Port != 5432 || killed > 0 {
		t.Fatalf("got %+v and %d kills, want both ports and none", views, killed)
	}
	for _, view := range views {
		cmdtest.Refuses(t, "http://"+view.Address)
	}
	opts.Ports = []portPair{{0, 3000}, {-1, 1}}
	if err := portForwardRun(t.Context(), opts); err == nil {
		t.Error("a port that cannot be forwarded: got no error")
	}
}
