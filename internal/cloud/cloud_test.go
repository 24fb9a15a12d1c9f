//go:build linux

package cloud

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/cloud/edge"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room"
	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
	"github.com/e2bctl/e2bctl/internal/cloud/requestlog"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeRoom is a supervisor whose sandboxes are HTTP servers in this process.
type fakeRoom struct {
	name    engine.Name
	options room.Options
	ended   chan struct{}
	mu      sync.Mutex
	boxes   map[string]*fakeSandbox
	closed  bool
	refuses error // error of NewSandbox
	forgets error // error of NewSandbox for a sandbox with memory
	lacks   engine.Promises
}

func (r *fakeRoom) Report() engine.Report {
	ids := uint32(1) // an ordinary user's
	if os.Geteuid() == 0 {
		ids = 65536
	}
	return engine.Report{Engine: r.name, Promises: r.lacks, Isolation: engine.Full, IDs: ids, Egress: engine.EgressTransparent}
}

func (r *fakeRoom) CheckLayers(context.Context, string) error {
	return engine.Lackf(engine.SharedLayers, "for a test")
}
func (r *fakeRoom) Merge(context.Context, []string, string) error {
	return engine.Lackf(engine.SharedLayers, "for a test")
}
func (r *fakeRoom) UnpackTar(context.Context, []string, io.Reader, string) error {
	return engine.Lackf(engine.Images, "for a test")
}
func (r *fakeRoom) Done() <-chan struct{} { return r.ended }
func (r *fakeRoom) Err() error            { return engine.ErrEnded }
func (r *fakeRoom) Close() error          { r.closed = true; return nil }

func (r *fakeRoom) NewSandbox(_ context.Context, o engine.SandboxOptions) (engine.Sandbox, error) {
	if _, err := o.EncodeConfig(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuses != nil {
		return nil, r.refuses
	}
	if r.forgets != nil && o.Memory != "" {
		return nil, r.forgets
	}
	sb := &fakeSandbox{options: o, gone: make(chan struct{})}
	sb.daemon = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/health" {
			sb.asked.Add(1)
		}
		_, _ = io.WriteString(w, o.ID+r.URL.Path)
	}))
	r.boxes[o.ID] = sb
	return sb, nil
}

type fakeSandbox struct {
	options engine.SandboxOptions
	daemon  *httptest.Server
	once    sync.Once
	gone    chan struct{}
	err     error
	fails   struct{ hold, memory, save, thaw, resize error }
	saved   []string     // directories of saved files, in the order in which they were saved
	asked   atomic.Int32 // number of requests to envd, without requests for its health
}

func (s *fakeSandbox) Done() <-chan struct{} { return s.gone }

func (s *fakeSandbox) Err() error                { return s.ended() }
func (s *fakeSandbox) Close() error              { s.die(engine.ErrClosed); return nil }
func (s *fakeSandbox) SetEgress(e engine.Egress) { s.options.Egress = e }

func (s *fakeSandbox) Freeze(context.Context) error { return nil }
func (s *fakeSandbox) Hold(context.Context) error   { return s.fails.hold }
func (s *fakeSandbox) Thaw(context.Context) error   { return s.fails.thaw }
func (s *fakeSandbox) Memory() int64                { return 0 }

func (s *fakeSandbox) Resize(_ context.Context, l engine.Limits) error {
	if s.fails.resize == nil {
		s.options.Limits = l
	}
	return s.fails.resize
}

func (s *fakeSandbox) Save(_ context.Context, dir string) error {
	s.saved = append(s.saved, dir)
	return s.fails.save
}

func (s *fakeSandbox) SaveLayer(context.Context, string) (func() error, error) {
	return nil, engine.Lackf(engine.SharedLayers, "for a test")
}

func (s *fakeSandbox) SaveMemory(_ context.Context, dir string) error {
	s.saved = append(s.saved, dir)
	return s.fails.memory
}

func (s *fakeSandbox) Usage() (engine.Usage, bool) {
	return engine.Usage{Memory: 1 << 20, DiskTotal: 1 << 30}, s.ended() == nil
}

// ended returns the reason for the end of the sandbox. It returns nil while the sandbox runs.
func (s *fakeSandbox) ended() error {
	select {
	case <-s.gone:
		return s.err
	default:
		return nil
	}
}

func (s *fakeSandbox) die(err error) {
	s.once.Do(func() {
		s.daemon.CloseClientConnections()
		s.daemon.Close()
		s.err = err
		close(s.gone)
	})
}

func (s *fakeSandbox) Dial(ctx context.Context, port int) (net.Conn, error) {
	select {
	case <-s.gone:
		return nil, engine.ErrGone
	default:
	}
	if port != 49983 {
		return nil, engine.ErrPortClosed
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", s.daemon.Listener.Addr().String())
}

// opens returns an opener that returns an existing engine.
func opens(e engine.Engine) opener {
	return func(context.Context, *Cloud, string) (engine.Engine, error) { return e, nil }
}

func startFake(t *testing.T, o Options) (*Cloud, *fakeRoom) {
	t.Helper()
	fake := &fakeRoom{name: engine.Room, ended: make(chan struct{}), boxes: map[string]*fakeSandbox{}}
	o.Dir = t.TempDir()
	o.Python = &pyenv.Env{Python: "/opt/venv/bin/python3", Trees: []string{"/opt/venv"}, Vars: []string{"MPLCONFIGDIR=/opt/venv/mpl"}}
	c, err := start(t.Context(), o, map[engine.Name]opener{engine.Room: func(_ context.Context, c *Cloud, _ string) (engine.Engine, error) {
		fake.options = c.roomOptions()
		return fake, nil
	}})
	must.Do(t, err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if left, _ := filepath.Glob(filepath.Join(o.Dir, "*")); len(left) > 0 || !fake.closed {
			t.Errorf("left %v, room closed: %v", left, fake.closed)
		}
	})
	return c, fake
}

func do(t *testing.T, c *Cloud, method, path, body string, header ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, c.URL()+path, strings.NewReader(body))
	must.Do(t, err)
	r.Header.Set("X-Api-Key", c.Key())
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must.Do(t, err)
	return resp.StatusCode, string(text)
}

func create(t *testing.T, c *Cloud, body string) string {
	t.Helper()
	status, text := do(t, c, "POST", "/v2/sandboxes", body)
	var got struct{ SandboxID, Domain string }
	if err := json.Unmarshal([]byte(text), &got); err != nil || status != 201 || got.Domain != c.Domain() {
		t.Fatalf("%d %s: %v", status, text, err)
	}
	return got.SandboxID
}

func TestLife(t *testing.T) {
	t.Parallel()
	c, fake := startFake(t, Options{})
	id := create(t, c, `{"templateID":"base","timeout":60,"envVars":{"A":"b"}}`)
	to := []string{"E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "49983"}
	if status, text := do(t, c, "GET", "/health", "", to...); status != 200 || text != id+"/health" {
		t.Errorf("daemon: %d %s", status, text)
	}
	if status, text := do(t, c, "GET", "/", "", "E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "3000"); status != 502 || !strings.Contains(text, "port is not open") {
		t.Errorf("closed port: %d %s", status, text)
	}

	sb := fake.boxes[id]
	config := sb.options.Config
	if config.AccessToken == "" {
		t.Error("no token")
	}
	config.AccessToken = ""
	want := guest.Config{
		SandboxID: id, TemplateID: "localbasetemplate000", Envs: map[string]string{"A": "b"}, System: map[string]string{"MPLCONFIGDIR": "/opt/venv/mpl"},
		Python: []string{"/opt/venv/bin/python3"}, Path: "/opt/venv/bin:" + room.SearchPath(),
		MemoryBytes: 2 << 30, CPUs: min(2, goruntime.NumCPU()), CloudPort: c.address.(*net.TCPAddr).Port,
	}
	if diff := cmp.Diff(want, config); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	if !slices.Equal(fake.options.Trees, []string{"/opt/venv"}) || fake.options.Path != want.Path {
		t.Errorf("trees %v, PATH %s", fake.options.Trees, fake.options.Path)
	}

	c.Advance(time.Minute)
	<-sb.gone
	if status, text := do(t, c, "GET", "/health", "", to...); status != 502 || !strings.Contains(text, "was not found") {
		t.Errorf("after its time: %d %s", status, text)
	}
	var last []string
	for _, e := range c.Requests() {
		last = append(last, e.Method+" "+e.Path+" "+e.Sandbox+" "+http.StatusText(e.Status))
	}
	if diff := cmp.Diff([]string{"POST /v2/sandboxes  Created", "GET /health " + id + " OK", "GET / " + id + " Bad Gateway", "GET /health  Bad Gateway"}, last); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// TestErrorsOfPorts checks that each error of the supervisor about a port becomes the edge's error
// with the same meaning for the client, and still wraps the original error.
func TestErrorsOfPorts(t *testing.T) {
	t.Parallel()
	for from, to := range map[error]error{engine.ErrPortClosed: edge.ErrPortClosed, engine.ErrGone: edge.ErrGone, engine.ErrTooMany: edge.ErrTooMany} {
		if err := edgeError(fmt.Errorf("dial: %w", from)); !errors.Is(err, to) || !errors.Is(err, from) {
			t.Errorf("%v became %v", from, err)
		}
	}
}

func TestEgress(t *testing.T) {
	t.Parallel()
	c, fake := startFake(t, Options{})
	off := create(t, c, `{"templateID":"base","allow_internet_access":false}`)
	if !fake.boxes[off].options.Egress.Closed() {
		t.Error("internet is not off")
	}
	on := create(t, c, `{"templateID":"base"}`)
	port := uint16(c.address.(*net.TCPAddr).Port)
	if _, err := fake.boxes[on].options.Egress.Dial(t.Context(), "127.0.0.1", port); err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("the cloud itself is reachable: %v", err)
	}
	if status, text := do(t, c, "PUT", "/sandboxes/"+on+"/network", `{"denyOut":["0.0.0.0/0"]}`); status != 204 || !fake.boxes[on].options.Egress.Closed() {
		t.Errorf("%d %s, closed: %v", status, text, fake.boxes[on].options.Egress.Closed())
	}
	var denied []string
	for _, e := range c.Requests() {
		if e.Method == requestlog.MethodEgress {
			denied = append(denied, fmt.Sprintf("%s:%d %v", e.Path, e.Port, e.Sandbox == on))
		}
	}
	if diff := cmp.Diff([]string{fmt.Sprintf("127.0.0.1:%d true", port)}, denied); diff != "" {
		t.Errorf("what was denied (-want +got):\n%s", diff)
	}
}

func TestDeathIsNoticed(t *testing.T) {
	t.Parallel()
	c, fake := startFake(t, Options{})
	id := create(t, c, `{"templateID":"base"}`)
	fake.boxes[id].die(engine.ErrOutOfMemory)
	for {
		if status, text := do(t, c, "GET", "/sandboxes/"+id, ""); status == 404 && strings.Contains(text, "it died: out of memory") {
			break
		}
	}
	patience.Until(t, "the log of the sandbox says why it ended", func() bool {
		_, text := do(t, c, "GET", "/v2/sandboxes/"+id+"/logs", "")
		return strings.Contains(text, "sandbox ended") && strings.Contains(text, "it died: out of memory")
	})
	status, text := do(t, c, "GET", "/health", "", protocol.HeaderSandboxID, id, protocol.HeaderSandboxPort, "49983")
	if status != 502 || !strings.Contains(text, `"message":"The sandbox was not found","reason":"it ran out of memory"`) {
		t.Errorf("a request to the sandbox: got %d %s, want 502 with the reason", status, text)
	}
	if _, text := do(t, c, "GET", "/health", "", protocol.HeaderSandboxID, "neverwas", protocol.HeaderSandboxPort, "49983"); strings.Contains(text, "reason") {
		t.Errorf("a request to a sandbox that never was: got %s, want no reason", text)
	}
}

func TestLargeEnvironmentIsRefused(t *testing.T) {
	t.Parallel()
	c, _ := startFake(t, Options{})
	body := `{"templateID":"base","envVars":{"A":"` + strings.Repeat("x", guest.MaxConfig) + `"}}`
	if status, text := do(t, c, "POST", "/v2/sandboxes", body); status != 400 || !strings.Contains(text, "envVars are too large") {
		t.Errorf("%d %.200s", status, text)
	}
}

func inject(t *testing.T, c *Cloud, f Fault) {
	t.Helper()
	must.Do(t, c.Inject(f))
}

func TestFaults(t *testing.T) {
	t.Parallel()
	c, _ := startFake(t, Options{})
	inject(t, c, Fault{Operation: "CreateSandbox", Status: 503, Message: "busy", Header: http.Header{"Retry-After": {"1"}}, Times: 2})
	inject(t, c, Fault{Path: "/sandboxes/*"})
	for range 2 {
		if status, text := do(t, c, "POST", "/v2/sandboxes", `{}`); status != 503 || strings.TrimSpace(text) != `{"code":503,"message":"busy"}` {
			t.Errorf("%d %s", status, text)
		}
	}
	id := create(t, c, `{"templateID":"base"}`)
	// The client itself repeats a GET when the connection is cut, so use POST.
	if status, text := do(t, c, "POST", "/sandboxes/"+id, "x"); status != 0 {
		t.Errorf("not cut: %d %s", status, text)
	}
	if status, _ := do(t, c, "GET", "/sandboxes/"+id, ""); status != 200 {
		t.Error("the fault came twice")
	}
}

// TestCloseWithOpenRequests checks that Close does not wait for clients, and
// leaves no handler running.
func TestCloseWithOpenRequests(t *testing.T) {
	t.Parallel()
	c, fake := startFake(t, Options{})
	id := create(t, c, `{"templateID":"base"}`)
	started := make(chan struct{})
	fake.boxes[id].daemon.Config.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done()
	})
	answered := make(chan int)
	go func() {
		status, _ := do(t, c, "GET", "/", "", "E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "49983")
		answered <- status
	}()
	<-started
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Error(err)
	}
	if status := <-answered; status == 200 {
		t.Error("answered all the same")
	}
}

func TestHTTP2(t *testing.T) {
	t.Parallel()
	c, _ := startFake(t, Options{})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	id := create(t, c, `{"templateID":"base"}`)
	r, _ := http.NewRequestWithContext(t.Context(), "GET", c.URL()+"/x", nil)
	r.Header.Set("E2b-Sandbox-Id", id)
	r.Header.Set("E2b-Sandbox-Port", "49983")
	resp, err := transport.RoundTrip(r)
	must.Do(t, err)
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.ProtoMajor != 2 || string(body) != id+"/x" {
		t.Errorf("%s %s", resp.Proto, body)
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	env := &pyenv.Env{Python: "/usr/bin/python3"}
	dir := t.TempDir()
	refuse := map[engine.Name]opener{engine.Room: func(context.Context, *Cloud, string) (engine.Engine, error) { return nil, engine.ErrNoIsolation }}
	if _, err := start(t.Context(), Options{Dir: dir, Python: env}, refuse); !errors.Is(err, engine.ErrNoIsolation) {
		t.Error(err)
	}
	if _, err := start(t.Context(), Options{Dir: dir, Python: env, Address: "0.0.0.0:0"}, refuse); err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Error(err)
	}
	open := filepath.Join(t.TempDir(), "open")
	must.Do(t, os.Mkdir(open, 0o700))
	must.Do(t, os.Chmod(open, 0o777))
	if _, err := start(t.Context(), Options{Dir: open, Python: env}, refuse); err == nil || !strings.Contains(err.Error(), open) {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}
