package sandbox

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem/filesystemconnect"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
)

// closing is a body that counts how often it is closed.
type closing struct {
	io.Reader
	n int
}

func (c *closing) Close() error { c.n++; return nil }

// TestAnswersOfTheEdgeAreClosed checks which answers of status 502 come from the edge and which from a server in
// the sandbox: the edge's are closed, and the others still have all of their content.
func TestAnswersOfTheEdgeAreClosed(t *testing.T) {
	t.Parallel()
	p := portClient{newService(t).sandbox(), 3000}
	for text, want := range map[string]error{
		`{"sandboxId":"` + testID + `","message":"not found"}`: ErrGone, `{"sandboxId":"` + testID + `","port":3000}`: ErrPortClosed,
		`{"sandboxId":"other"}`: nil, `{"port":3000}`: nil, "bad gateway": nil, "": nil,
	} {
		body := &closing{Reader: strings.NewReader(text)}
		response, err := p.answer(&http.Response{StatusCode: http.StatusBadGateway, Body: body}, nil)
		if !errors.Is(err, want) || (body.n > 0) != (want != nil) {
			t.Errorf("%s: got error %v, closed %d times, want %v", text, err, body.n, want)
		}
		if want == nil {
			got, err := io.ReadAll(response.Body)
			if must.Do(t, err); string(got) != text {
				t.Errorf("%s: got the content %s", text, got)
			}
			if must.Do(t, response.Body.Close()); body.n != 1 {
				t.Errorf("%s: closed %d times, want once", text, body.n)
			}
		}
	}
}

// TestStatusOfEachCode checks the classes of errors of the codes that callers distinguish.
func TestStatusOfEachCode(t *testing.T) {
	t.Parallel()
	classes := []error{
		api.ErrInvalidArgument, api.ErrUnauthorized, api.ErrForbidden, api.ErrNotFound, api.ErrConflict, api.ErrRateLimited, api.ErrTimeout, api.ErrUnavailable,
	}
	for code, want := range map[connect.Code]error{
		connect.CodeInvalidArgument: api.ErrInvalidArgument, connect.CodeFailedPrecondition: api.ErrInvalidArgument, connect.CodeOutOfRange: api.ErrInvalidArgument,
		connect.CodeUnauthenticated: api.ErrUnauthorized, connect.CodePermissionDenied: api.ErrForbidden, connect.CodeNotFound: api.ErrNotFound,
		connect.CodeAlreadyExists: api.ErrConflict, connect.CodeAborted: api.ErrConflict, connect.CodeResourceExhausted: api.ErrRateLimited,
		connect.CodeDeadlineExceeded: api.ErrTimeout, connect.CodeUnavailable: api.ErrUnavailable,
		connect.CodeInternal: nil, connect.CodeUnknown: nil, connect.CodeDataLoss: nil, connect.CodeUnimplemented: nil, connect.CodeCanceled: nil,
	} {
		err := wireError("/s", connect.NewError(code, errors.New("m")))
		for _, class := range classes {
			if errors.Is(err, class) != errors.Is(want, class) {
				t.Errorf("%v: got %v, is %v: %v", code, err, class, errors.Is(err, class))
			}
		}
	}
}

// TestRedirectsStayOnThePort checks that a redirect to the port becomes a path, never the name of another host.
func TestRedirectsStayOnThePort(t *testing.T) {
	t.Parallel()
	sb := newService(t).sandbox()
	for location, want := range map[string]string{
		"http://localhost:3000/a?b=c#d": "/a?b=c#d", "http://127.0.0.1:3000": "/", "http://user@localhost:3000/a": "/a", "https://" + sb.Host(3000) + "/a": "/a",
		"http://localhost:3000//other.test/a": "/other.test/a", "http://localhost:3000///other.test": "/other.test",
		"http://localhost:3001/a": "http://localhost:3001/a", "http://other.test:3000/a": "http://other.test:3000/a", "/a": "/a", "": "",
	} {
		header := http.Header{"Location": {location}}
		if sb.redirectHere(header, 3000); header.Get("Location") != want {
			t.Errorf("%s: got %s, want %s", location, header.Get("Location"), want)
		}
	}
}

// TestEdgesOfLeases checks the shortest and the longest lease, and those beyond.
func TestEdgesOfLeases(t *testing.T) {
	t.Parallel()
	for after, want := range map[time.Duration]bool{-1: false, 0: true, 1: false, minLease - 1: false, minLease: true, time.Hour: true, time.Hour + 1: false} {
		if err := (Expiry{After: after, Renew: true}).check(); (err == nil) != want {
			t.Errorf("a lease of %v: got error %v, want it allowed: %v", after, err, want)
		}
		if err := (Expiry{After: after}).check(); (err == nil) != (after >= 0) {
			t.Errorf("a lifetime of %v: got error %v", after, err)
		}
	}
}

// TestConflictsOfGit checks each pair of letters for the same three questions as git's own documentation.
func TestConflictsOfGit(t *testing.T) {
	t.Parallel()
	conflicts := []string{"DD", "AU", "UD", "UA", "DU", "AA", "UU"}
	for _, index := range []byte(" MTADRCU?") {
		for _, worktree := range []byte(" MTADRCU?") {
			f := GitFile{Index: index, Worktree: worktree}
			conflict := slices.Contains(conflicts, string([]byte{index, worktree})) || index == 'U' || worktree == 'U'
			if f.Conflict() != conflict || f.Untracked() != (index == '?') || f.Staged() != (!conflict && index != ' ' && index != '?') {
				t.Errorf("%q: got conflict %v, untracked %v, staged %v", []byte{index, worktree}, f.Conflict(), f.Untracked(), f.Staged())
			}
		}
	}
}

// TestMainResultsAreBounded checks that beyond the limit only the first value of code is kept.
func TestMainResultsAreBounded(t *testing.T) {
	t.Parallel()
	c := newCollector(&RunCodeParams{})
	c.size = maxResultBytes // as if the rest had come before
	for range 3 {
		collect(t, c, display("execute_result", "", "'value'"))
	}
	if e := c.finished(); len(e.Results) != 1 || e.ResultsDropped != 2 {
		t.Errorf("got %d results and %d dropped, want 1 and 2", len(e.Results), e.ResultsDropped)
	}
}

// TestPoolMissing checks that each sandbox of a pool counts against its limit, whatever it does.
func TestPoolMissing(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, test := range []struct {
		what   string
		change func(*Pool)
		want   int
		wait   time.Duration
	}{
		{"nothing", func(*Pool) {}, 4, 0},
		{"warm", func(p *Pool) { p.warm = make([]*Sandbox, 1) }, 3, 0},
		{"starting", func(p *Pool) { p.starting = 1 }, 3, 0},
		{"lent", func(p *Pool) { p.lent = 3 }, 3, 0},
		{"ending", func(p *Pool) { p.ending = 3 }, 3, 0},
		{"all", func(p *Pool) { p.lent, p.ending, p.starting, p.warm = 1, 1, 1, make([]*Sandbox, 1) }, 2, 0},
		{"full", func(p *Pool) { p.lent, p.ending = 3, 3 }, 0, 0},
		{"waiting", func(p *Pool) { p.waiting = make([]*poolWaiter, 1) }, 5, 0},
		{"no limit", func(p *Pool) { p.params.MaxSandboxes, p.params.Warm = 0, 100 }, maxPoolStarts, 0},
		{"failed", func(p *Pool) { p.failures = 1 }, 1, 0},
		{"must wait", func(p *Pool) { p.failures, p.resume = 1, now.Add(time.Second) }, 0, time.Second},
		{"waited", func(p *Pool) { p.failures, p.resume = 1, now }, 1, 0},
		{"closed", func(p *Pool) { p.closed = true }, 0, 0},
	} {
		p := &Pool{params: PoolParams{Warm: 4, MaxSandboxes: 6}}
		test.change(p)
		if n, wait := p.missing(now); n != test.want || wait != test.wait {
			t.Errorf("%s: got %d and %v, want %d and %v", test.what, n, wait, test.want, test.wait)
		}
	}
}

// TestRulesAreCopies checks that the rules of a sandbox do not share memory with those of the caller.
func TestRulesAreCopies(t *testing.T) {
	t.Parallel()
	list := func() []string { return append(make([]string, 0, 9), "192.0.2.1") }
	n := Network{AllowOut: list(), DenyOut: list(), DNSServers: list(), DenyPrivate: true, Headers: map[string]map[string]string{"a.test": {"A": "b"}}}
	w := n.wire()
	for what, lists := range map[string][2][]string{"AllowOut": {n.AllowOut, w.AllowOut}, "DenyOut": {n.DenyOut, w.DenyOut}, "DNSServers": {n.DNSServers, w.DNSServers}} {
		if &lists[0][0] == &lists[1][0] || lists[0][:2][1] != "" {
			t.Errorf("%s is the caller's own list", what)
		}
	}
	if n.Headers["a.test"]["A"] = "c"; w.Rules["a.test"][0].Transform.Headers["A"] != "b" {
		t.Error("the headers are the caller's own map")
	}
}

// TestVersionsOfPip checks the longest list of versions that is shown whole.
func TestVersionsOfPip(t *testing.T) {
	t.Parallel()
	for n, whole := range map[int]bool{1: true, maxPipVersions: true, maxPipVersions + 1: false} {
		list := strings.Join(slices.Repeat([]string{"1"}, n), ", ")
		if got := noVersionReason("x", list); strings.Contains(got, "the index has "+list) != whole || strings.Contains(got, "the newest of") == whole {
			t.Errorf("%d versions: got %s", n, got)
		}
	}
}

// TestOldestOfAName checks that of two sandboxes of one name, which an older service allows, all programs choose the same.
func TestOldestOfAName(t *testing.T) {
	t.Parallel()
	for _, order := range [][]int{{1, 2, 3}, {3, 2, 1}, {2, 1, 3}} {
		s := newService(t)
		s.control = func(w http.ResponseWriter, _ *http.Request) {
			var all []string
			for _, n := range order {
				all = append(all, fmt.Sprintf(`{"sandboxID":"i%d","startedAt":"2026-01-0%dT00:00:00Z"}`, n, n))
			}
			w.WriteHeader(http.StatusOK)
			_, _ = io.WriteString(w, "["+strings.Join(all, ",")+"]")
		}
		if info, err := s.client().findNamed(t.Context(), "name"); err != nil || info.ID != "i1" {
			t.Errorf("%v: got %+v and error %v, want i1", order, info, err)
		}
	}
}

// TestLineIsNamedOnce checks that an error that names its line does not name it twice.
func TestLineIsNamedOnce(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"bad": "E: bad (line 3)", "bad (<cell 1>, line 3)": "E: bad (<cell 1>, line 3)", "bad (<cell 1>, line 33)": "E: bad (<cell 1>, line 33) (line 3)", "": "E (line 3)",
	} {
		if got := (&ExecutionError{Name: "E", Value: value, Line: 3}).Error(); got != want {
			t.Errorf("%q: got %s, want %s", value, got, want)
		}
	}
	if got := (&ExecutionError{Name: "E", Value: "bad"}).Error(); got != "E: bad" {
		t.Errorf("got %s, want no line", got)
	}
}

// TestWhatIsRepeated checks which requests are sent again after a pause: questions whose body can be read again.
func TestWhatIsRepeated(t *testing.T) {
	t.Parallel()
	s := newSleeper(t, true)
	p := portClient{s.sandbox(t), 3000}
	begun := time.Now()
	s.pause()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	const list = filesystemconnect.FilesystemListDirProcedure
	for _, test := range []struct {
		over         bool // the context of the request
		method, path string
		body         io.Reader
		want         bool
	}{
		{false, "GET", "/", nil, true}, {false, "HEAD", "/", http.NoBody, true}, {false, "POST", list, strings.NewReader("x"), true},
		{false, "GET", "/", iotest.HalfReader(strings.NewReader("x")), false}, {false, "POST", list, iotest.HalfReader(strings.NewReader("x")), false},
		{false, "POST", "/", strings.NewReader("x"), false}, {false, "PUT", list, strings.NewReader("x"), false}, {true, "GET", "/", nil, false},
	} {
		ctx := t.Context()
		if test.over {
			ctx = over
		}
		r, err := http.NewRequestWithContext(ctx, test.method, "http://localhost"+test.path, test.body)
		must.Do(t, err)
		again, ok := p.repeat(r, begun)
		if ok != test.want {
			t.Errorf("%s %s, body %T: got %v, want %v", test.method, test.path, test.body, ok, test.want)
		}
		if ok && r.GetBody != nil && test.body != http.NoBody {
			if text, err := io.ReadAll(again.Body); err != nil || string(text) != "x" {
				t.Errorf("%s %s: got the body %q and error %v, want all of it", test.method, test.path, text, err)
			}
		}
	}
}

// TestSameProcess checks that a process of the same pid is the same only with the same command and arguments.
func TestSameProcess(t *testing.T) {
	t.Parallel()
	s := newService(t)
	sb := s.sandbox()
	config := func(cmd string, args ...string) *process.ProcessConfig {
		return &process.ProcessConfig{Cmd: cmd, Args: args}
	}
	s.list = []*process.ProcessInfo{{Pid: 6, Config: config("other")}, {Pid: 7, Config: config("cmd", "a", "b")}}
	for _, test := range []struct {
		pid    uint32
		config *process.ProcessConfig
		want   error
	}{
		{7, config("cmd", "a", "b"), nil}, {7, nil, nil}, {8, config("cmd"), nil},
		{7, config("cmd", "a", "c"), errReplaced}, {7, config("cmd", "a"), errReplaced}, {7, config("cmd"), errReplaced}, {7, config("other", "a", "b"), errReplaced},
	} {
		if err := (&attachment{sb: sb, pid: test.pid, config: test.config}).checkSameProcess(t.Context()); !errors.Is(err, test.want) {
			t.Errorf("pid %d, %v: got %v, want %v", test.pid, test.config, err, test.want)
		}
	}
}

// TestEndOfAWatch checks that the removal of the watched directory itself, and that alone, ends a watch.
func TestEndOfAWatch(t *testing.T) {
	t.Parallel()
	const remove, rename, write = filesystem.EventType_EVENT_TYPE_REMOVE, filesystem.EventType_EVENT_TYPE_RENAME, filesystem.EventType_EVENT_TYPE_WRITE
	for _, test := range []struct {
		name string
		kind filesystem.EventType
		want error
	}{{".", remove, ErrWatchRemoved}, {".", rename, ErrWatchRemoved}, {".", write, nil}, {"a", remove, nil}, {"a", rename, nil}} {
		s := newService(t)
		s.raw = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != filesystemconnect.FilesystemWatchDirProcedure {
				return false
			}
			w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
			for _, m := range []*filesystem.WatchDirResponse{
				{Event: &filesystem.WatchDirResponse_Start{Start: &filesystem.WatchDirResponse_StartEvent{}}},
				{Event: &filesystem.WatchDirResponse_Filesystem{Filesystem: &filesystem.FilesystemEvent{Name: test.name, Type: test.kind}}},
			} {
				data, err := proto.Marshal(m)
				if err != nil {
					t.Error(err)
				}
				_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data))), data...))
			}
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return true
		}
		watch, err := s.sandbox().Files.Watch(t.Context(), "d", nil)
		must.Do(t, err)
		for event, err := range watch.Events(t.Context()) {
			if !errors.Is(err, test.want) || test.want == nil && event.Name != test.name {
				t.Errorf("%s of %q: got %+v and error %v, want %v", test.kind, test.name, event, err, test.want)
			}
			break
		}
		must.Do(t, watch.Close())
	}
}
