package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/kubelink"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// result42 is the answer to code whose value is 42.
const result42 = `{"type":"result","text":"42","is_main_result":true}`

// cluster is an engine of pods whose sandboxes are one HTTP server.
type cluster struct {
	engine.Engine // nil: a test calls no other method
	processconnect.UnimplementedProcessHandler

	checks  []kubelink.Check
	report  engine.Report
	answer  string // of the code, as a line of JSON; "": no sandbox starts
	refuses error  // error of a command
	fails   error  // error of the end
	done    chan struct{}

	mu      sync.Mutex
	options kubelink.Options // of the last examination
	left    time.Duration    // until its deadline
	after   func() error     // the error of its context
	opened  int
	closed  int
	server  *httptest.Server
}

// newCluster makes an engine the one of this program until the end of the test.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{done: make(chan struct{}), report: engine.Report{
		Engine: engine.Kubernetes, Isolation: engine.Full, IDs: 65536, Egress: engine.EgressTransparent,
		Memory: "by the pod", CPU: "by the pod", Processes: "by the pod", Disk: "by the pod",
	}}
	mux := http.NewServeMux()
	mux.Handle(processconnect.NewProcessHandler(c))
	mux.HandleFunc("GET /contexts", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `[{"id":"c1","language":"python","cwd":"/home/user"}]`)
	})
	mux.HandleFunc("POST /execute", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, c.answer+"\n"+`{"type":"end_of_execution"}`+"\n")
	})
	mux.HandleFunc("/init", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	c.server = httptest.NewServer(mux)
	t.Cleanup(c.server.Close)
	kubelink.Link(link{c})
	t.Cleanup(func() { kubelink.Link(nil) })
	return c
}

// Start runs a command.
func (c *cluster) Start(_ context.Context, _ *connect.Request[process.StartRequest], s *connect.ServerStream[process.StartResponse]) error {
	if c.refuses != nil {
		return connect.NewError(connect.CodeInternal, c.refuses)
	}
	for _, event := range []*process.ProcessEvent{
		{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: 7}}},
		{Event: &process.ProcessEvent_Data{Data: &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: []byte("77\n")}}}},
		{Event: &process.ProcessEvent_End{End: &process.ProcessEvent_EndEvent{Exited: true, Status: "exit status 0"}}},
	} {
		if err := s.Send(&process.StartResponse{Event: event}); err != nil {
			return err
		}
	}
	return nil
}

// link is the connection of package kubelink with a cluster.
type link struct{ *cluster }

func (l link) Open(context.Context, kubelink.Options, *slog.Logger) (engine.Engine, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.opened++; l.report.Engine == "" {
		return nil, errors.New("no right to make pods")
	}
	return l.cluster, nil
}

func (l link) Examine(ctx context.Context, o kubelink.Options, _ *slog.Logger) []kubelink.Check {
	l.mu.Lock()
	defer l.mu.Unlock()
	deadline, _ := ctx.Deadline()
	l.options, l.left, l.after = o, time.Until(deadline), ctx.Err
	return l.checks
}

func (c *cluster) Report() engine.Report { return c.report }
func (c *cluster) CheckLayers(context.Context, string) error {
	return engine.Lackf(engine.SharedLayers, "for a test")
}
func (c *cluster) Done() <-chan struct{} { return c.done }
func (c *cluster) Err() error            { return nil }

func (c *cluster) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed++
	return c.fails
}

func (c *cluster) NewSandbox(context.Context, engine.SandboxOptions) (engine.Sandbox, error) {
	if c.answer == "" {
		return nil, errors.New("no node has room")
	}
	return &pod{gone: make(chan struct{}), server: c.server}, nil
}

// pod is a sandbox of a cluster.
type pod struct {
	engine.Sandbox // nil: a test calls no other method

	server *httptest.Server
	once   sync.Once
	gone   chan struct{}
}

func (p *pod) Done() <-chan struct{} { return p.gone }
func (p *pod) Close() error          { p.once.Do(func() { close(p.gone) }); return nil }
func (p *pod) Memory() int64         { return 0 }

func (p *pod) Err() error {
	select {
	case <-p.gone:
		return engine.ErrClosed
	default:
		return nil
	}
}

func (p *pod) Usage() (engine.Usage, bool) { return engine.Usage{}, false }

// Dial connects to the server, which has no websockets.
func (p *pod) Dial(ctx context.Context, _ int) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", p.server.Listener.Addr().String())
}

// doctor runs e2bctl doctor with the engine of pods.
func doctor(ctx context.Context, ios *cmdutil.IOStreams, args ...string) error {
	return cmdtest.ExecuteContext(ctx, ios, func(f *cmdutil.Factory) []*cobra.Command { return []*cobra.Command{NewCmdDoctor(f)} },
		append([]string{"doctor", "--local", "--engine", "kubernetes"}, args...)...)
}

// examine runs doctor with the engine of pods. It returns the checks by their names, and these in their order.
func examine(t *testing.T, args ...string) (checks map[string]check, names []string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	err = doctor(t.Context(), cmdutil.NewIOStreams(nil, &out, &errs), append(args, "-o", "json")...)
	var all []check
	must.Do(t, json.Unmarshal(out.Bytes(), &all))
	checks = map[string]check{}
	for _, c := range all {
		names = append(names, c.Name)
		checks[c.Name] = c
	}
	return checks, names, err
}

// TestCluster checks the report about a cluster and a sandbox there, and that the sandbox and the engine are ended.
func TestCluster(t *testing.T) {
	fresh(t)
	c := newCluster(t)
	c.answer = result42
	c.report.Promises = engine.Promises{engine.Volumes: "pods have none"}
	c.checks = []kubelink.Check{{Name: "cluster", Detail: "v1.36"}, {Name: "pools", Detail: "none", Remedy: "add --pool"}}
	got, names, err := examine(t, "--namespace", "mine")
	must.Do(t, err)
	want := []string{
		"cluster", "pools", "state", "isolation", "names", "network", "memory limit", "CPU limit", "process limit", "disk limit",
		"room engine", "docker engine", "wasm engine", "gvisor engine", "kubernetes engine", "kernel",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("the checks (-want +got):\n%s", diff)
	}
	for name, want := range map[string]check{
		"cluster":       {Status: checkOK, Detail: "v1.36"},
		"pools":         {Status: checkOK, Detail: "none", Hint: "add --pool"},
		"isolation":     {Status: checkOK, Detail: "full; 65536 user ids inside; started in "},
		"network":       {Status: checkOK, Detail: "every program reaches the network through the rules"},
		"memory limit":  {Status: checkOK, Detail: "2048 MiB; by the pod"},
		"CPU limit":     {Status: checkOK, Detail: "2 processors; by the pod"},
		"process limit": {Status: checkOK, Detail: "77 processes and threads; by the pod"},
		"disk limit":    {Status: checkOK, Detail: "1024 MiB; by the pod"},
		"kernel":        {Status: checkOK, Detail: "first result "},
	} {
		want.Name = name
		found := got[name]
		if strings.HasPrefix(found.Detail, want.Detail) {
			want.Detail = found.Detail // the rest is a time
		}
		if found != want {
			t.Errorf("got %+v, want %+v", found, want)
		}
	}
	text := got["kernel"].Detail
	_, ending, found := strings.Cut(text, " after create, over http, ended in ")
	if _, err := time.ParseDuration(ending); !found || err != nil {
		t.Errorf("got the kernel %q", text)
	}
	if c.left < doctorLimit || c.left > clusterLimit || c.after() == nil {
		t.Errorf("got %v for the checks, and the error %v of their context after them, want up to %v and an error", c.left, c.after(), clusterLimit)
	}
	const missing = "not promised: volumes (pods have none)"
	if promised := got["kubernetes engine"]; promised.Status != checkOK || !strings.HasPrefix(promised.Detail, "Promised: commands; ") || promised.Hint != missing {
		t.Errorf("got %+v", promised)
	}
	for _, other := range local.Engines() {
		if c := got[string(other)+" engine"]; c.Detail == "" || c.Hint == missing {
			t.Errorf("got %+v, which is the report of another engine", c)
		}
	}
	if c.options.Namespace != "mine" || c.opened != 1 || c.closed != 1 {
		t.Errorf("examined %q, opened %d and closed %d engines, want mine, 1 and 1", c.options.Namespace, c.opened, c.closed)
	}
}

// TestWeakCluster checks the report about a cluster with little isolation, in which no sandbox starts, and about an engine that
// cannot be ended.
func TestWeakCluster(t *testing.T) {
	fresh(t)
	c := newCluster(t)
	c.report = engine.Report{
		Engine: engine.Kubernetes, Isolation: engine.Restricted, IDs: 1, Notes: []string{"one", "two"},
		Egress: "proxy only: no rights", Memory: "not enforced", CPU: "none: no quota", Processes: "nothing", Disk: "by not much",
	}
	c.fails = errors.New("a pod is left")
	got, names, err := examine(t)
	must.Is(t, err, errUnhealthy)
	if last := names[len(names)-1]; last != "cleanup" {
		t.Errorf("got %q as the last check, want cleanup", last)
	}
	for name, want := range map[string]check{
		"isolation":     {Status: checkWarning, Detail: "restricted; root and user are one id inside; started in ", Hint: "one; two"},
		"network":       {Status: checkWarning, Detail: "proxy only: no rights"},
		"memory limit":  {Status: checkWarning, Detail: "not enforced"},
		"CPU limit":     {Status: checkWarning, Detail: "none: no quota"},
		"process limit": {Status: checkOK, Detail: "nothing"},
		"disk limit":    {Status: checkOK, Detail: "by not much"},
		"kernel":        {Status: checkFailed, Detail: "no node has room"},
		"cleanup":       {Status: checkFailed, Detail: "a pod is left"},
	} {
		want.Name = name
		found := got[name]
		if strings.Contains(found.Detail, want.Detail) {
			want.Detail = found.Detail
		}
		if found != want {
			t.Errorf("got %+v, want %+v", found, want)
		}
	}
}

// TestFailingCluster checks that a check that fails ends the report there, and that an engine that does not start is
// reported as no isolation.
func TestFailingCluster(t *testing.T) {
	fresh(t)
	c := newCluster(t)
	c.checks = []kubelink.Check{{Name: "a"}, {Name: "b", Failed: true, Detail: "bad", Remedy: "mend it"}, {Name: "c"}}
	got, names, err := examine(t)
	must.Is(t, err, errUnhealthy)
	if diff := cmp.Diff([]string{"a", "b", "c"}, names); diff != "" || c.opened != 0 {
		t.Errorf("opened %d engines; the checks (-want +got):\n%s", c.opened, diff)
	}
	if got["a"].Status != checkOK || got["b"] != (check{"b", checkFailed, "bad", "mend it"}) || got["c"].Status != checkOK {
		t.Errorf("got %+v, want that only b fails", got)
	}
	full, errs := &cmdtest.Output{Err: syscall.ENOSPC}, &cmdtest.Output{}
	must.Is(t, doctor(t.Context(), cmdutil.NewIOStreams(nil, full, errs)), syscall.ENOSPC)
	c.checks, c.report.Engine = nil, ""
	got, names, err = examine(t)
	must.Is(t, err, errUnhealthy)
	if diff := cmp.Diff([]string{"state", "isolation"}, names); diff != "" || c.opened != 1 {
		t.Errorf("opened %d engines; the checks (-want +got):\n%s", c.opened, diff)
	}
	if isolation := got["isolation"]; isolation.Status != checkFailed || !strings.Contains(isolation.Detail, "no right to make pods") {
		t.Errorf("got %+v", isolation)
	}
}

// TestInterruptedReport checks that doctor prints nothing after it was interrupted, and returns the reason.
func TestInterruptedReport(t *testing.T) {
	fresh(t)
	c := newCluster(t)
	c.checks = []kubelink.Check{{Name: "a", Failed: true}}
	reason := errors.New("Ctrl-C")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	var out, errs bytes.Buffer
	err := doctor(ctx, cmdutil.NewIOStreams(nil, &out, &errs))
	if !errors.Is(err, reason) || out.Len()+errs.Len() > 0 {
		t.Errorf("got error %v after %q and %q, want %v", err, &out, &errs, reason)
	}
}

// TestSandboxThatFails checks the report about a sandbox whose code or command has another result than it should.
func TestSandboxThatFails(t *testing.T) {
	fresh(t)
	c := newCluster(t)
	cloud, err := local.Start(t.Context(), local.WithEngine(local.Engine(kubelink.Name)), new(cmdutil.KubernetesFlags).LocalOption())
	must.Do(t, err)
	defer func() { must.Do(t, cloud.Close()) }()
	for _, tt := range []struct {
		answer, want string
		refuses      error
	}{
		{`{"type":"result","text":"43","is_main_result":true}`, `6 * 7 returned "43", want 42`, nil},
		{"", "no node has room", nil},
		{`{"type":"error","name":"MemoryError","value":"no memory","traceback":"there"}`, "MemoryError: no memory", nil},
		{result42, "no shell", errors.New("no shell")},
	} {
		c.answer, c.refuses = tt.answer, tt.refuses
		if got, _ := checkSandbox(t.Context(), cloud); got.Name != "kernel" || got.Status != checkFailed || !strings.Contains(got.Detail, tt.want) {
			t.Errorf("got %+v, want that it fails with %q", got, tt.want)
		}
	}
}
