package template

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a service that builds nothing. It is a transport, so that time may be faked, too.
type fake struct {
	states       []api.BuildState // one after another; the last one stays
	lines        int              // of the log
	stages       bool             // it builds some
	architecture string           // that it says
	has          map[string]bool  // hashes
	fail         map[string]int   // statuses of calls, by the method and the route
	away         map[string]int   // calls that are answered with 503 before they are served
	lost         bool             // the start of a build is served, and its answer does not arrive

	mu       sync.Mutex
	requests int // of all kinds
	asked    []string
	uploaded map[string]int
	created  map[string]any
	started  map[string]any
	state    int
}

func (f *fake) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	routes := http.NewServeMux()
	if f.stages {
		routes.HandleFunc("GET /local/features", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"stages":true,"architecture":%q}`, f.architecture)
		})
	}
	for route, serve := range map[string]http.HandlerFunc{
		"POST /v3/templates":                   f.create,
		"GET /templates/t/files/{hash}":        f.fileUpload,
		"PUT /upload/{hash}":                   f.upload,
		"POST /v2/templates/t/builds/b":        f.start,
		"GET /templates/t/builds/b/status":     f.status,
		"GET /templates/other/builds/b/status": f.status,
	} {
		routes.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) {
			f.asked = append(f.asked, strings.Split(route, "/{")[0])
			if f.away[route] > 0 {
				f.away[route]--
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			if status := f.fail[route]; status != 0 {
				w.WriteHeader(status)
				_, _ = io.WriteString(w, `{"code":400,"message":"no"}`)
				return
			}
			serve(w, r)
		})
	}
	routes.ServeHTTP(w, r)
	if r.Body != nil {
		_ = r.Body.Close()
	}
	if f.lost && strings.HasPrefix(r.URL.Path, "/v2/") {
		return nil, io.ErrUnexpectedEOF
	}
	return w.Result(), nil
}

func (f *fake) create(w http.ResponseWriter, r *http.Request) {
	if err := json.NewDecoder(r.Body).Decode(&f.created); err != nil {
		panic(err)
	}
	w.WriteHeader(http.StatusAccepted)
	_, _ = io.WriteString(w, `{"templateID":"t","buildID":"b","names":["team/a"],"tags":["default"]}`)
}

func (f *fake) fileUpload(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusCreated)
	hash := r.PathValue("hash")
	_, _ = fmt.Fprintf(w, `{"present":%t,"url":"http://files/upload/%s"}`, f.has[hash], hash)
}

func (f *fake) upload(_ http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil || n != r.ContentLength {
		panic(fmt.Sprintf("%d bytes of %d: %v", n, r.ContentLength, err))
	}
	if f.uploaded == nil {
		f.uploaded = map[string]int{}
	}
	f.uploaded[r.PathValue("hash")]++
}

func (f *fake) start(w http.ResponseWriter, r *http.Request) {
	if err := json.NewDecoder(r.Body).Decode(&f.started); err != nil {
		panic(err)
	}
	w.WriteHeader(http.StatusAccepted)
}

// status returns at most three lines of the log at once.
func (f *fake) status(w http.ResponseWriter, r *http.Request) {
	state := f.states[min(f.state, len(f.states)-1)]
	f.state++
	var offset int
	_, _ = fmt.Sscan(r.URL.Query().Get("logsOffset"), &offset)
	for i := offset; i < min(offset+3, f.lines); i++ {
		state.Logs = append(state.Logs, api.BuildLogEntry{Level: api.BuildLogInfo, Message: fmt.Sprintf("\x1b[1mline\x1b[0m %d\x07", i)})
	}
	if err := json.NewEncoder(w).Encode(state); err != nil {
		panic(err)
	}
}

func (f *fake) templates(t *testing.T) *api.TemplateService { return templatesBy(t, f) }

func templatesBy(t *testing.T, transport http.RoundTripper) *api.TemplateService {
	t.Helper()
	client, err := api.NewClient(api.WithAPIKey("e2b_key"), api.WithBaseURL("http://service"), api.WithTransport(transport), api.WithMaxRetries(0))
	must.Do(t, err)
	return client.Templates
}

// around is a transport that calls a function for each request. The function may call the fake.
type around struct {
	*fake

	do func(*http.Request) (*http.Response, error)
}

func (a around) RoundTrip(r *http.Request) (*http.Response, error) { return a.do(r) }

func TestBuild(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"a": "a", "b": "b", "c": "c"})
	d := FromBase().Copy("a", "/app/", nil).Run("true", nil).Copy("a", "/app/", nil).Copy("b", "/b", nil).Copy("c", "/c", &CopyParams{Upload: true})
	hashes := make([]string, 3)
	for i, name := range []string{"a", "b", "c"} {
		s := open(t, dir)
		files, err := s.find(name)
		must.Do(t, err)
		hashes[i], err = s.digest(t.Context(), stepOf(name, []string{"/app/", "/b", "/c"}[i]), files)
		must.Do(t, err)
	}
	synctest.Test(t, func(t *testing.T) {
		f := &fake{
			states: []api.BuildState{{Status: api.BuildWaiting}, {Status: api.BuildBuilding}, {Status: api.BuildBuilding}, {Status: api.BuildReady}},
			lines:  20, has: map[string]bool{hashes[1]: true, hashes[2]: true},
		}
		var log []string
		built, err := Build(t.Context(), f.templates(t), "a:v1", d, &BuildParams{Dir: dir, NoCache: true, Log: func(e api.BuildLogEntry) { log = append(log, e.Message) }})
		must.Do(t, err)
		built.steps = nil
		if diff := cmp.Diff(&Built{TemplateID: "t", BuildID: "b", Name: "a:v1", Names: []string{"team/a"}, Tags: []string{"default"}}, built, cmp.AllowUnexported(Built{}, step{})); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(map[string]int{hashes[0]: 1, hashes[2]: 1}, f.uploaded); diff != "" {
			t.Errorf("uploads (-want +got):\n%s", diff)
		}
		slices.Sort(log[1:4])
		want := []string{"template t, build b", `"b" is there already`, `uploaded "a"`, `uploaded "c"`}
		for i := range 20 {
			want = append(want, fmt.Sprintf("line %d", i))
		}
		if diff := cmp.Diff(want, log); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
		if f.started["force"] != true || f.started["fromImage"] != baseImage || len(f.started["steps"].([]any)) != 5 {
			t.Errorf("started %v", f.started)
		}
	})
}

// TestBuildRefuses checks that mistakes that this machine can find are errors before any request.
func TestBuildRefuses(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"a": "a"})
	for name, test := range map[string]struct {
		d    Definition
		name string
		want string
	}{
		"name":       {FromBase(), "", `template: build "": the name is empty`},
		"template":   {FromTemplate(""), "x", "FromTemplate: the name is empty"},
		"image":      {FromImage("", nil), "x", "FromImage: the image is empty"},
		"command":    {FromBase().Run(" ", nil), "x", "the command is empty"},
		"first":      {FromBase().Apt(nil, nil).Run("", nil), "x", "Apt: no packages"},
		"absolute":   {FromBase().Copy("/etc", "/x", nil), "x", "absolute path"},
		"missing":    {FromBase().Copy("missing", "/x", nil), "x", `copy "missing": file does not exist`},
		"dockerfile": {FromDockerfile(strings.NewReader("RUN x"), nil), "x", "Dockerfile: there is no FROM"},
	} {
		f := &fake{}
		built, err := Build(t.Context(), f.templates(t), test.name, test.d, &BuildParams{Dir: dir})
		if built != nil || err == nil || !strings.Contains(err.Error(), test.want) || len(f.asked) != 0 {
			t.Errorf("%s: got %v, error %v and calls %v, want an error with %q and no calls", name, built, err, f.asked, test.want)
		}
	}
}

func TestBuildStopsWhereTheServiceDoes(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"a": "a"})
	calls := []string{"POST /v3/templates", "GET /templates/t/files", "PUT /upload", "POST /v2/templates/t/builds/b"}
	for i, route := range []string{"POST /v3/templates", "GET /templates/t/files/{hash}", "PUT /upload/{hash}", "POST /v2/templates/t/builds/b"} {
		f := &fake{fail: map[string]int{route: http.StatusConflict}}
		built, err := Build(t.Context(), f.templates(t), "a", FromBase().Copy("a", "/a", nil), &BuildParams{Dir: dir})
		if built != nil || !errors.Is(err, api.ErrConflict) {
			t.Errorf("%s fails: got %v and %v, want ErrConflict", route, built, err)
		}
		if diff := cmp.Diff(calls[:i+1], f.asked); diff != "" {
			t.Errorf("%s fails (-want +got):\n%s", route, diff)
		}
	}
}

func TestBuildFails(t *testing.T) {
	t.Parallel()
	d := FromBase().Run("true", nil).Env(map[string]string{"TOKEN": "secret"}).Run("make all", &RunParams{User: "root"})
	for _, test := range []struct {
		step, instruction, want string
	}{
		{"3", "RUN make all", `template: build b of "a" failed, step 3 (RUN make all): it broke`},
		{"2", "ENV TOKEN", `template: build b of "a" failed, step 2 (ENV TOKEN): it broke`},
		{"base", "", `template: build b of "a" failed, step base: it broke`},
		{"9", "", `template: build b of "a" failed, step 9: it broke`},
		{"", "", `template: build b of "a" failed: it broke`},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{lines: 30, states: []api.BuildState{
				{Status: api.BuildBuilding}, {Status: api.BuildError, Failure: &api.BuildFailure{Message: "\x1b[31mit\x1b[0m\nbroke", Step: test.step}},
			}}
			built, err := Build(t.Context(), f.templates(t), "a", d, nil)
			failed, ok := errors.AsType[*BuildError](err)
			if built == nil || !ok {
				t.Fatalf("got %v and %v, want a result and a *BuildError", built, err)
			}
			if failed.Error() != test.want || failed.Instruction != test.instruction {
				t.Errorf("got %q with instruction %q, want %q with %q", failed, failed.Instruction, test.want, test.instruction)
			}
			if n := len(failed.Logs); n != keptLines || failed.Logs[n-1].Message != "line 29" {
				t.Errorf("got %d lines, the last %q, want %d lines to line 29", n, failed.Logs[n-1].Message, keptLines)
			}
		})
	}
}

func TestWaitOfAnotherProgram(t *testing.T) {
	t.Parallel()
	f := &fake{states: []api.BuildState{{Status: "cancelled"}}}
	err := Wait(t.Context(), f.templates(t), &Built{TemplateID: "other", BuildID: "b"}, nil)
	if want := `template: build b of "other" failed: its status is "cancelled"`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A storage and a service that are away for a while do not end a build.
func TestBuildSurvivesAnOutage(t *testing.T) {
	t.Parallel()
	const status, upload = "GET /templates/t/builds/b/status", "PUT /upload/{hash}"
	dir := tree(t, map[string]string{"a": "a"})
	d := FromBase().Copy("a", "/a", nil)
	for _, test := range []struct {
		away map[string]int
		want error
	}{
		{map[string]int{upload: 2, status: 20}, nil},
		{map[string]int{upload: 3}, api.ErrUnavailable},
		{map[string]int{status: 1000}, api.ErrUnavailable},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{states: []api.BuildState{{Status: api.BuildReady}}, away: test.away}
			began := time.Now()
			if _, err := Build(t.Context(), f.templates(t), "a", d, &BuildParams{Dir: dir}); !errors.Is(err, test.want) {
				t.Errorf("away %v: got %v, want %v", test.away, err, test.want)
			}
			if passed := time.Since(began); passed > 2*time.Minute {
				t.Errorf("away %v: it took %v, want two minutes at most", test.away, passed)
			}
		})
	}
}

// TestUploadsAreRepeated checks how often, and with which pauses, an upload is tried.
func TestUploadsAreRepeated(t *testing.T) {
	t.Parallel()
	const upload = "PUT /upload/{hash}"
	dir := tree(t, map[string]string{"a": "a"})
	for _, tt := range []struct {
		away, fail, tries int
		want              error
		took              time.Duration
	}{
		{0, 0, 1, nil, 0}, {1, 0, 2, nil, time.Second}, {2, 0, 3, nil, 3 * time.Second}, {3, 0, 3, api.ErrUnavailable, 3 * time.Second}, {0, 409, 1, api.ErrConflict, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{away: map[string]int{upload: tt.away}, fail: map[string]int{upload: tt.fail}}
			began := time.Now()
			_, err := Start(t.Context(), f.templates(t), "x", FromBase().Copy("a", "/a", nil), &BuildParams{Dir: dir})
			if !errors.Is(err, tt.want) || err != nil && !strings.Contains(err.Error(), `template: build "x": upload "a": `) {
				t.Errorf("%+v: got error %v", tt, err)
			}
			tries := len(slices.DeleteFunc(f.asked, func(call string) bool { return call != "PUT /upload" }))
			if took := time.Since(began); took != tt.took || tries != tt.tries {
				t.Errorf("%+v: got %d tries in %v", tt, tries, took)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
			defer cancel()
			f = &fake{away: map[string]int{upload: 2}}
			if _, err := Start(ctx, f.templates(t), "x", FromBase().Copy("a", "/a", nil), &BuildParams{Dir: dir}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("without a caller: got error %v", err)
			}
		})
	}
}

// TestLostStart checks that a build that may run is returned although the start had no answer, so
// that the caller can look for it.
func TestLostStart(t *testing.T) {
	t.Parallel()
	f := &fake{states: []api.BuildState{{Status: api.BuildReady}}, lost: true}
	built, err := Build(t.Context(), f.templates(t), "a", FromBase(), nil)
	must.Is(t, err, io.ErrUnexpectedEOF)
	if built == nil || built.BuildID != "b" || built.TemplateID != "t" || !strings.Contains(err.Error(), "build b of template t may run") {
		t.Fatalf("got %v and %v, want build b of t, and an error that says that it may run", built, err)
	}
	if len(f.started) == 0 {
		t.Error("the service did not get the request")
	}
	must.Do(t, Wait(t.Context(), f.templates(t), built, nil))

	f = &fake{fail: map[string]int{"POST /v2/templates/t/builds/b": http.StatusBadRequest}}
	if built, err := Build(t.Context(), f.templates(t), "a", FromBase(), nil); built != nil || err == nil {
		t.Errorf("a start that was refused: got %v and %v, want an error alone", built, err)
	}
}

// TestBuildIsGivenUp checks that the error of a cancelled wait says that the build, which cannot
// be stopped, continues, and that the caller may wait again.
func TestBuildIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{states: []api.BuildState{{Status: api.BuildBuilding}}}
		cause := errors.New("the user has gone")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, cause)
		defer cancel()
		began := time.Now()
		built, err := Build(ctx, f.templates(t), "a", FromBase(), nil)
		if built == nil || built.BuildID != "b" || !errors.Is(err, cause) || !strings.Contains(fmt.Sprint(err), "which goes on") {
			t.Errorf("got %v and %v, want a result, and an error with the cause that says that it goes on", built, err)
		}
		if passed := time.Since(began); passed != time.Minute {
			t.Errorf("it took %v, want a minute", passed)
		}
		if asked := len(f.asked); asked < 30 || asked > 60 {
			t.Errorf("it asked %d times in a minute without news, want 30 to 60", asked)
		}
		f.states, f.state = []api.BuildState{{Status: api.BuildReady}}, 0
		if err := Wait(t.Context(), f.templates(t), built, nil); err != nil {
			t.Error(err)
		}
	})
}

// One definition is the beginning of several, and none changes another.
func TestDefinitionsAreValues(t *testing.T) {
	t.Parallel()
	base := FromBase().Run("one", nil).Run("two", nil)
	var group sync.WaitGroup
	made := make([]Definition, 8)
	for i := range made {
		group.Go(func() { made[i] = base.Run(fmt.Sprint(i), nil).SkipCache().Run("last", nil) })
	}
	group.Wait()
	for i, d := range made {
		if got := d.steps[2].Args[0]; got != fmt.Sprint(i) || len(d.steps) != 4 || d.steps[2].Force || !d.steps[3].Force {
			t.Errorf("definition %d has %+v", i, d.steps)
		}
	}
	if len(base.steps) != 2 {
		t.Errorf("the base has %+v", base.steps)
	}
}

// TestCreatedTemplate checks every field of the request that creates a template, and that warnings
// of the Dockerfile begin the log.
func TestCreatedTemplate(t *testing.T) {
	t.Parallel()
	f, free := &fake{}, int64(3<<20)
	var log []string
	d := FromDockerfile(strings.NewReader("FROM x"), &DockerfileParams{Args: map[string]string{"A": "1"}})
	_, err := Start(t.Context(), f.templates(t), "name", d, &BuildParams{
		Tags: []string{"a", "b"}, CPUs: 3, MemoryBytes: 512 << 20, MinFreeDiskBytes: &free, Log: func(e api.BuildLogEntry) {
			if log = append(log, string(e.Level)+" "+e.Message); e.Time.IsZero() {
				t.Errorf("%s: got no time", e.Message)
			}
		},
	})
	must.Do(t, err)
	want := map[string]any{"name": "name", "tags": []any{"a", "b"}, "cpuCount": 3.0, "memoryMB": 512.0, "minFreeDiskMb": 3.0}
	if diff := cmp.Diff(want, f.created); diff != "" || f.requests != 2 {
		t.Errorf("got %d requests, want 2 (-want +got):\n%s", f.requests, diff)
	}
	if diff := cmp.Diff([]string{"warn Dockerfile: no ARG declares the build argument A", "info template t, build b"}, log); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	if _, err := Start(t.Context(), f.templates(t), "name", d, &BuildParams{Engine: "gvisor"}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("an engine: got error %v, want errors.ErrUnsupported", err)
	}
}

// TestParallelUploads checks how many archives are sent at once, and that none is left on the disk.
func TestParallelUploads(t *testing.T) {
	dir, temporary := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temporary)
	d := FromBase()
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
		d = d.Copy(name, "/", nil)
	}
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		var now, most atomic.Int32
		by := around{f, func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPut {
				most.Store(max(most.Load(), now.Add(1)))
				defer now.Add(-1)
				<-time.After(time.Second)
			}
			return f.RoundTrip(r)
		}}
		began := time.Now()
		_, err := Start(t.Context(), templatesBy(t, by), "x", d, &BuildParams{Dir: dir})
		must.Do(t, err)
		if took := time.Since(began); took != 2*time.Second || most.Load() != parallelUploads || len(f.uploaded) != 6 {
			t.Errorf("got %d uploads in %v, %d at once, want 6 in two seconds, %d at once", len(f.uploaded), took, most.Load(), parallelUploads)
		}
	})
	f := &fake{fail: map[string]int{"PUT /upload/{hash}": http.StatusConflict}}
	if _, err := Start(t.Context(), f.templates(t), "x", d, &BuildParams{Dir: dir}); !errors.Is(err, api.ErrConflict) {
		t.Errorf("got error %v, want ErrConflict", err)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("%v are left, error %v", left, err)
	}
}

// TestPrepareFails checks the errors of a build whose files cannot be read, in its own steps and in a stage.
func TestPrepareFails(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"a": "a"})
	ended, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the user has gone")
	cancel(cause)
	for text, want := range map[string]error{
		"FROM go AS one\nCOPY none .\nFROM x\nCOPY --from=one /a /b": fs.ErrNotExist, "FROM x\nCOPY a none ./": fs.ErrNotExist, "FROM x\nCOPY a /": cause,
	} {
		ctx := t.Context()
		if errors.Is(want, cause) {
			ctx = ended
		}
		if _, err := Check(ctx, FromDockerfile(strings.NewReader(text), nil), &BuildParams{Dir: dir}); !errors.Is(err, want) {
			t.Errorf("a check of %q: got error %v, want %v", text, err, want)
		}
		f := &fake{stages: true}
		built, err := Start(ctx, f.templates(t), "x", FromDockerfile(strings.NewReader(text), nil), &BuildParams{Dir: dir})
		if built != nil || !errors.Is(err, want) || len(f.asked) > 0 {
			t.Errorf("%q: got %v, error %v and calls %v, want error %v alone", text, built, err, f.asked, want)
		}
	}
	f := &fake{stages: true, architecture: "amd64"}
	if _, err := Start(ended, f.templates(t), "x", FromDockerfile(strings.NewReader("FROM --platform=linux/amd64 x"), nil), nil); !errors.Is(err, cause) && !errors.Is(err, context.Canceled) {
		t.Errorf("without a caller: got error %v", err)
	}
}
