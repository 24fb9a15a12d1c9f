package sandbox

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"strings"
	"sync"
	"syscall"
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

// controlCalls returns the calls of clients and sandboxes.
func controlCalls() map[string]controlCall {
	type client = *Client
	secret := &SecretParams{Value: "v", Metadata: map[string]string{"a": "b"}}
	metrics := &MetricsParams{From: time.Unix(1, 0), Until: time.Unix(2, 0)}
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

// volumeCalls returns the calls of a volume.
func volumeCalls() map[string]func(ctx context.Context, v *Volume) (any, error) {
	all := &VolumeFileParams{&testMode, &testOwner, &testGroup, true}
	return map[string]func(ctx context.Context, v *Volume) (any, error){
		"open GET /volumecontent/v1/file?path=f": func(ctx context.Context, v *Volume) (any, error) { return v.Read(ctx, "f") },
		"write PUT /volumecontent/v1/file?force=true&path=f x": func(ctx context.Context, v *Volume) (any, error) {
			return nil, v.Write(ctx, "f", []byte("x"), nil)
		},
		"write PUT /volumecontent/v1/file?gid=8&mode=416&path=f&uid=7 x": func(ctx context.Context, v *Volume) (any, error) {
			return nil, v.Write(ctx, "f", []byte("x"), all)
		},
		"mkdir POST /volumecontent/v1/dir?gid=8&mode=416&path=f&uid=7": func(ctx context.Context, v *Volume) (any, error) {
			return nil, v.MakeDir(ctx, "f", all)
		},
		"list GET /volumecontent/v1/dir?depth=2&path=f": func(ctx context.Context, v *Volume) (any, error) {
			return v.List(ctx, "f", &VolumeListParams{2})
		},
		"stat GET /volumecontent/v1/path?path=f": func(ctx context.Context, v *Volume) (any, error) { return v.Stat(ctx, "f") },
		`chmod PATCH /volumecontent/v1/path?path=f {"mode":416,"uid":7,"gid":8}`: func(ctx context.Context, v *Volume) (any, error) {
			return nil, v.SetAttributes(ctx, "f", &VolumeAttributesParams{&testMode, &testOwner, &testGroup})
		},
		"remove DELETE /volumecontent/v1/path?path=f": func(ctx context.Context, v *Volume) (any, error) { return nil, v.Remove(ctx, "f") },
	}
}

// TestControlCalls checks the request of each call, with each of its parameters, its result and its errors.
func TestControlCalls(t *testing.T) {
	t.Parallel()
	for name, tt := range controlCalls() {
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
				if err == nil || !strings.HasPrefix(err.Error(), tt.fails) || want != nil && !errors.Is(err, want) || errors.Is(err, ErrGone) != (want == ErrGone) {
					t.Errorf("status %d: got error %v, want %v", refusal, err, want)
				}
			}
		})
	}
}

// TestVolumeCalls checks the request of each call of a volume, with each of its parameters, its result and its errors.
func TestVolumeCalls(t *testing.T) {
	t.Parallel()
	for name, do := range volumeCalls() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			op, want, _ := strings.Cut(name, " ")
			answer, result := aboutEntry, any(nil)
			switch op {
			case "open":
				answer, result = "x", []byte("x")
			case "list":
				answer, result = "["+aboutEntry+"]", []VolumeEntry{testEntry}
			case "stat":
				result = &testEntry
			}
			status := 200
			sb, requests := newControl(t, func(string) (int, string) { return status, answer })
			v := sb.client.Volumes.volume(&api.Volume{ID: "v1", Name: "n", Token: "k"})
			got, err := do(t.Context(), v)
			if diff := cmp.Diff(result, got); diff != "" || err != nil {
				t.Errorf("got error %v, result (-want +got):\n%s", err, diff)
			}
			if diff := cmp.Diff([]string{want}, requests()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			for _, tt := range []struct {
				status int
				code   string
				want   error
			}{
				{404, "not_found", fs.ErrNotExist}, {409, "path_exists", fs.ErrExist}, {400, "is_a_directory", syscall.EISDIR}, {409, "not_a_directory", syscall.ENOTDIR},
				{403, "forbidden", fs.ErrPermission}, {507, "full", syscall.ENOSPC},
			} {
				status, answer = tt.status, `{"code":"`+tt.code+`","message":"refused"}`
				_, err := do(t.Context(), v)
				failed, ok := errors.AsType[*fs.PathError](err)
				if !ok || failed.Op != op || failed.Path != "n:f" || !errors.Is(err, tt.want) || errors.Is(err, fs.ErrExist) != (tt.want == fs.ErrExist) {
					t.Errorf("%d %s: got error %v, want %v", tt.status, tt.code, err, tt.want)
				}
			}
		})
	}
}

// TestVolumes checks how volumes are found by their ids and names, and the errors of volumes that do not exist.
func TestVolumes(t *testing.T) {
	t.Parallel()
	const about = `{"volumeID":"v1","name":"n","token":"k","domain":"d.test"}`
	refused := "" // a request that is refused
	sb, requests := newControl(t, func(request string) (int, string) {
		switch {
		case refused != "" && strings.HasPrefix(request, refused):
			return 403, `{"code":403,"message":"refused"}`
		case request == "GET /volumes":
			return 200, `[{"volumeID":"v0","name":"v2"},` + about + `]`
		case strings.HasPrefix(request, "DELETE"):
			return 204, ""
		}
		return 200, about
	})
	volumes, ctx := sb.client.Volumes, t.Context()
	create := func() error {
		v, err := volumes.Create(ctx, "n")
		if err == nil && (v.ID() != "v1" || v.Name() != "n") {
			t.Errorf("created is %s named %s", v.ID(), v.Name())
		}
		return err
	}
	open := func(name string) func() error {
		return func() error {
			v, err := volumes.Open(ctx, name)
			if err == nil && (v.ID() != "v1" || v.Name() != "n") {
				t.Errorf("opened is %s named %s", v.ID(), v.Name())
			}
			return err
		}
	}
	remove := func(name string) func() error { return func() error { return volumes.Delete(ctx, name) } }
	list := func() error {
		all, err := volumes.List(ctx)
		if diff := cmp.Diff([]VolumeInfo{{ID: "v0", Name: "v2"}, {"v1", "n", "k", "d.test"}}, all); err == nil && diff != "" {
			t.Errorf("list (-want +got):\n%s", diff)
		}
		return err
	}
	for _, tt := range []struct {
		name  string
		do    func() error
		want  []string
		fails string
	}{
		{"create", create, []string{`POST /volumes {"name":"n"}`}, "sandbox: create volume n: "},
		{"open by id", open("v1"), []string{"GET /volumes", "GET /volumes/v1"}, "sandbox: open volume: "},
		{"open by name", open("n"), []string{"GET /volumes", "GET /volumes/v1"}, "sandbox: open volume: "},
		{"delete", remove("v2"), []string{"GET /volumes", "DELETE /volumes/v0"}, "sandbox: delete volume: "},
		{"list", list, []string{"GET /volumes"}, "sandbox: list volumes: "},
	} {
		before := len(requests())
		must.Do(t, tt.do())
		if diff := cmp.Diff(tt.want, requests()[before:]); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", tt.name, diff)
		}
		for _, refused = range tt.want {
			if err := tt.do(); !errors.Is(err, api.ErrForbidden) || !strings.HasPrefix(err.Error(), tt.fails) {
				t.Errorf("%s without %s: got error %v", tt.name, refused, err)
			}
		}
		refused = ""
	}
	before := len(requests())
	for _, err := range []error{open("none")(), remove("none")()} {
		none, ok := errors.AsType[*NoVolumeError](err)
		if !ok || none.Name != "none" || !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "there is no volume none") {
			t.Errorf("got error %v, want a *NoVolumeError", err)
		}
	}
	if diff := cmp.Diff([]string{"GET /volumes", "GET /volumes"}, requests()[before:]); diff != "" {
		t.Errorf("requests for a volume that does not exist (-want +got):\n%s", diff)
	}
}

// TestVolumeExists checks that only a missing file is none, and that another failure is an error.
func TestVolumeExists(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]struct{ exists, fails bool }{200: {true, false}, 404: {}, 403: {fails: true}} {
		sb, _ := newControl(t, func(string) (int, string) { return status, aboutEntry })
		exists, err := sb.client.Volumes.volume(&api.Volume{ID: "v1", Token: "k"}).Exists(t.Context(), "f")
		if exists != want.exists || (err != nil) != want.fails {
			t.Errorf("status %d: got %v and error %v", status, exists, err)
		}
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
