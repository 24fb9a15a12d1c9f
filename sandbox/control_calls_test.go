package sandbox

import (
	"context"
	"errors"
	"io"
	"iter"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
)

// newControl returns a service whose API answers each request in this way, once a sandbox was created, and a function that
// returns the requests so far: method, path with query, and content.
func newControl(t *testing.T, answer func(request string) (status int, text string)) (sb *Sandbox, requests func() []string) {
	t.Helper()
	s := newService(t)
	sb = s.sandbox()
	var mu sync.Mutex
	var all []string
	s.control = func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		request := strings.TrimSuffix(r.Method+" "+r.URL.RequestURI()+" "+string(body), " ")
		mu.Lock()
		all = append(all, request)
		mu.Unlock()
		status, text := answer(request)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
	t.Cleanup(func() { s.control = nil })
	return sb, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

// listed returns all items of a list, and its error.
func listed[T any](list iter.Seq2[T, error]) ([]T, error) {
	var all []T
	for one, err := range list {
		if err != nil {
			return all, err
		}
		all = append(all, one)
	}
	return all, nil
}

// controlCall is a call that makes one request to the API.
type controlCall struct {
	do      func(ctx context.Context, c *Client, sb *Sandbox) (any, error)
	request string
	status  int // of the answer; 0: 200
	answer  string
	result  any
	fails   string // how the text of its errors begins
	missing error  // of status 404
}

var (
	testTime    = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	testMode    = uint32(0o640)
	testOwner   = uint32(7)
	testGroup   = uint32(8)
	aboutEntry  = `{"name":"f","type":"symlink","path":"/d/f","size":1,"mode":2,"uid":3,"gid":4,"atime":"2026-01-02T03:04:05Z","mtime":"2026-01-02T03:04:06Z","ctime":"2026-01-02T03:04:07Z","target":"t"}`
	testEntry   = VolumeEntry{"f", VolumeSymlink, "/d/f", 1, 2, 3, 4, testTime, testTime.Add(time.Second), testTime.Add(2 * time.Second), "t"}
	aboutSecret = `{"secretID":"s1","name":"n","currentVersion":2,"metadata":{"a":"b"},"createdAt":"2026-01-02T03:04:05Z","updatedAt":"2026-01-02T03:04:06Z"}`
	testSecret  = Secret{"s1", "n", 2, map[string]string{"a": "b"}, testTime, testTime.Add(time.Second)}
	aboutUsage  = `[{"timestamp":"2026-01-02T03:04:05Z","cpuCount":1,"cpuUsedPct":2.5,"memUsed":3,"memTotal":4,"memCache":5,"diskUsed":6,"diskTotal":7}]`
	testUsage   = []Usage{{testTime, 1, 2.5, 3, 4, 5, 6, 7}}
)

// controlCalls returns the calls of clients about secrets, snapshots and lists.
func controlCalls() map[string]controlCall {
	type client = *Client
	secret := &SecretParams{Value: "v", Metadata: map[string]string{"a": "b"}}
	off := false
	return map[string]controlCall{
		"create secret": {
			do: func(ctx context.Context, c client, _ *Sandbox) (any, error) {
				return c.Secrets.Create(ctx, "n", secret)
			},
			request: `POST /secrets {"name":"n","value":"v","metadata":{"a":"b"}}`, status: 201, answer: aboutSecret, result: &testSecret, fails: "sandbox: create secret: ", missing: ErrNotFound,
		},
		"update secret": {
			do: func(ctx context.Context, c client, _ *Sandbox) (any, error) {
				return c.Secrets.Update(ctx, "n", secret)
			},
			request: `POST /secrets/n {"value":"v","metadata":{"a":"b"}}`, answer: aboutSecret, result: &testSecret, fails: "sandbox: update secret: ", missing: ErrNotFound,
		},
		"get secret": {
			do:      func(ctx context.Context, c client, _ *Sandbox) (any, error) { return c.Secrets.Get(ctx, "n") },
			request: `GET /secrets/n`, answer: aboutSecret, result: &testSecret, fails: "sandbox: get secret: ", missing: ErrNotFound,
		},
		"list secrets": {
			do: func(ctx context.Context, c client, _ *Sandbox) (any, error) {
				return listed(c.Secrets.List(ctx, &SecretListParams{3, "x"}))
			},
			request: `GET /secrets?limit=3&nextToken=x`, answer: "[" + aboutSecret + "]", result: []Secret{testSecret}, fails: "api: GET /secrets: ", missing: ErrNotFound,
		},
		"delete secret": {
			do:      func(ctx context.Context, c client, _ *Sandbox) (any, error) { return nil, c.Secrets.Delete(ctx, "n") },
			request: `DELETE /secrets/n`, status: 204, fails: "sandbox: delete secret: ", missing: ErrNotFound,
		},
		"list snapshots": {
			do: func(ctx context.Context, c client, _ *Sandbox) (any, error) {
				return listed(c.Snapshots.List(ctx, &SnapshotListParams{"i1", "n", 3, "x"}))
			},
			request: `GET /snapshots?limit=3&name=n&nextToken=x&sandboxID=i1`, answer: `[{"snapshotID":"n:1","names":["t/n"],"memory":false}]`,
			result: []Snapshot{{"n:1", []string{"t/n"}, &off}}, fails: "api: GET /snapshots: ", missing: ErrNotFound,
		},
		"delete snapshot": {
			do:      func(ctx context.Context, c client, _ *Sandbox) (any, error) { return nil, c.Snapshots.Delete(ctx, "n") },
			request: `DELETE /templates/n`, status: 204, fails: "sandbox: delete snapshot: ", missing: ErrNotFound,
		},
		"list sandboxes": {
			do: func(ctx context.Context, c client, _ *Sandbox) (any, error) {
				return listed(c.List(ctx, &ListParams{map[string]string{"a": "b"}, []SandboxState{StatePaused, StateRunning}, "t", 3, "x"}))
			},
			request: `GET /v2/sandboxes?limit=3&metadata=a%3Db&nextToken=x&state=paused%2Crunning&template=t`, answer: `[{"sandboxID":"i1","alias":"a"}]`,
			result: []Info{{ID: "i1", Alias: "a"}}, fails: "api: GET /v2/sandboxes: ", missing: ErrNotFound,
		},
	}
}

// sandboxCalls returns the calls of clients and sandboxes about one sandbox.
func sandboxCalls() map[string]controlCall {
	type client = *Client
	metrics := &MetricsParams{From: time.Unix(1, 0), Until: time.Unix(2, 0)}
	return map[string]controlCall{
		"info": {
			do:      func(ctx context.Context, c client, _ *Sandbox) (any, error) { return c.Info(ctx, "i1") },
			request: `GET /sandboxes/i1`, answer: `{"sandboxID":"i1"}`, result: &Info{ID: "i1"}, fails: "sandbox: info: ", missing: ErrGone,
		},
		"kill": {
			do:      func(ctx context.Context, c client, _ *Sandbox) (any, error) { return nil, c.Kill(ctx, "i1") },
			request: `DELETE /sandboxes/i1`, status: 204, fails: "sandbox: kill: ", missing: ErrGone,
		},
		"pause": {
			do: func(ctx context.Context, c client, _ *Sandbox) (any, error) {
				return nil, c.Pause(ctx, "i1", &PauseParams{PauseFilesystem, true})
			},
			request: `POST /sandboxes/i1/pause {"memory":false,"requireHealthyGuest":true}`, status: 204, fails: "sandbox: pause: ", missing: ErrGone,
		},
		"metrics": {
			do:      func(ctx context.Context, c client, _ *Sandbox) (any, error) { return c.Metrics(ctx, "i1", metrics) },
			request: `GET /sandboxes/i1/metrics?end=2&start=1`, answer: aboutUsage, result: testUsage, fails: "sandbox: metrics: ", missing: ErrGone,
		},
		"metrics of a handle": {
			do:      func(ctx context.Context, _ client, sb *Sandbox) (any, error) { return sb.Metrics(ctx, metrics) },
			request: "GET /sandboxes/" + testID + "/metrics?end=2&start=1", answer: aboutUsage, result: testUsage, fails: "sandbox: metrics ", missing: ErrGone,
		},
		"snapshot": {
			do: func(ctx context.Context, c client, _ *Sandbox) (any, error) {
				return c.Snapshot(ctx, "i1", &SnapshotParams{"n", SnapshotFilesystem})
			},
			request: `POST /sandboxes/i1/snapshots {"name":"n","memory":false}`, status: 201, answer: `{"snapshotID":"n:1"}`, result: &Snapshot{ID: "n:1"}, fails: "sandbox: snapshot: ", missing: ErrGone,
		},
	}
}

// TestControlCalls checks the request of each call, with each of its parameters, its result and its errors.
func TestControlCalls(t *testing.T) {
	t.Parallel()
	calls := controlCalls()
	maps.Copy(calls, sandboxCalls())
	for name, tt := range calls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, text := max(tt.status, 200), tt.answer
			sb, requests := newControl(t, func(string) (int, string) { return status, text })
			got, err := tt.do(t.Context(), sb.client, sb)
			if diff := cmp.Diff(tt.result, got); diff != "" || err != nil {
				t.Errorf("got error %v, result (-want +got):\n%s", err, diff)
			}
			if diff := cmp.Diff([]string{tt.request}, requests()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			for refusal, want := range map[int]error{404: tt.missing, 403: api.ErrForbidden, 500: nil} {
				status, text = refusal, `{"code":1,"message":"refused"}`
				_, err := tt.do(t.Context(), sb.client, sb)
				if err == nil || !strings.HasPrefix(err.Error(), tt.fails) {
					t.Errorf("status %d: got error %v, want one that begins with %q", refusal, err, tt.fails)
				}
				if want != nil && !errors.Is(err, want) || errors.Is(err, ErrGone) != errors.Is(want, ErrGone) {
					t.Errorf("status %d: got error %v, want %v", refusal, err, want)
				}
			}
		})
	}
}

// TestLogsOfSandboxes checks the requests for a log, with each parameter, and the errors of a log, with a handle and without one.
func TestLogsOfSandboxes(t *testing.T) {
	t.Parallel()
	const about = `{"logs":[{"timestamp":"2026-01-02T03:04:05Z","level":"warn","message":"m","fields":{"a":"b"}},{"timestamp":"2026-01-02T03:04:06Z","level":"error","message":"n"}]}`
	want := []LogEntry{{testTime, LogWarn, "m", map[string]string{"a": "b"}}, {testTime.Add(time.Second), LogError, "n", nil}}
	for name, tt := range map[string]struct {
		p       *LogParams
		request string
	}{
		"all":  {&LogParams{From: testTime, Level: LogWarn, Search: "x"}, "/logs?cursor=1767323045000&direction=forward&level=warn&search=x"},
		"tail": {&LogParams{Tail: 2, Level: LogWarn, Search: "x"}, "/logs?direction=backward&level=warn&limit=2&search=x"},
	} {
		status, answer := 200, about
		if tt.p.Tail > 0 { // newest first
			answer = `{"logs":[{"timestamp":"2026-01-02T03:04:06Z","level":"error","message":"n"},{"timestamp":"2026-01-02T03:04:05Z","level":"warn","message":"m","fields":{"a":"b"}}]}`
		}
		sb, requests := newControl(t, func(string) (int, string) { return status, answer })
		for fails, logs := range map[string]func() iter.Seq2[LogEntry, error]{
			"sandbox: logs: ": func() iter.Seq2[LogEntry, error] { return sb.client.Logs(t.Context(), testID, tt.p) },
			"sandbox: logs ":  func() iter.Seq2[LogEntry, error] { return sb.Logs(t.Context(), tt.p) },
		} {
			before := len(requests())
			n := 0
			for e, err := range logs() {
				if n++; err != nil || !cmp.Equal(e, want[n-1]) {
					t.Errorf("%s: got %+v and error %v, want %+v", name, e, err, want[n-1])
				}
				if n == len(want) {
					break
				}
			}
			if got := requests()[before:]; n != len(want) || len(got) != 1 || got[0] != "GET /v2/sandboxes/"+testID+tt.request {
				t.Errorf("%s: got %d entries after the requests %q, want %s", name, n, got, tt.request)
			}
			whole := answer
			for refusal, want := range map[int]error{404: ErrGone, 403: api.ErrForbidden} {
				status, answer = refusal, `{"code":1,"message":"refused"}`
				got, err := listed(logs())
				if len(got) != 0 || !errors.Is(err, want) || !strings.HasPrefix(err.Error(), fails) {
					t.Errorf("%s: got %v and error %v, want %v", name, got, err, want)
				}
			}
			status, answer = 200, whole
		}
		must.Do(t, sb.Close())
		if _, err := listed(sb.Logs(t.Context(), tt.p)); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: got error %v of a closed handle", name, err)
		}
	}
}
