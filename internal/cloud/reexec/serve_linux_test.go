package reexec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest/login"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/imagetest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/inside"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// TestServeFails checks that a sandbox does not start with a configuration or a place that envd cannot use.
func TestServeFails(t *testing.T) {
	t.Parallel()
	for want, tt := range map[string]struct {
		config string
		change func(*inside.Guest)
	}{
		"reexec: configuration of the sandbox: ": {`{"sandboxId":`, func(*inside.Guest) {}},
		"reexec: there is no user user":          {`{"wasm":{"dir":"/x"}}`, func(g *inside.Guest) { g.Users = g.Users[:1] }},
		"envd: ":                                 {`{"envs":{"A=B":"c"}}`, func(*inside.Guest) {}},
		"interpreter: Python is ":                {`{"python":["bin/python3"]}`, func(*inside.Guest) {}},
		"reexec: write the files that programs know a sandbox by: ": {`{}`, func(g *inside.Guest) { g.Root += "-gone" }},
	} {
		g := sandbox(t)
		g.Config, g.Log = json.RawMessage(tt.config), &inside.Log{}
		tt.change(g)
		if err := serve(t.Context(), g); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", tt.config, err, want)
		}
	}
}

// refusing is an egress that refuses every host, and tells which one was asked for.
type refusing struct{ asked chan string }

func (r *refusing) Dial(_ context.Context, host string, port uint16) (net.Conn, error) {
	r.asked <- net.JoinHostPort(host, strconv.Itoa(int(port)))
	return nil, errors.New("refused by the test")
}

func (r *refusing) Connect(context.Context, *net.TCPConn) (net.Conn, error) {
	return nil, errors.New("refused by the test")
}
func (r *refusing) Answer(context.Context, []byte) []byte { return nil }
func (r *refusing) Closed() bool                          { return false }

// newRoom starts a room whose sandboxes have this program as their first process.
func newRoom(t *testing.T) *room.Room {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "instance")
	must.Do(t, os.Mkdir(dir, 0o700))
	r, err := room.Start(t.Context(), room.Options{Dir: dir, Isolation: engine.Full})
	if errors.Is(err, engine.ErrNoIsolation) {
		t.Skipf("this machine does not give it: %v", err)
	}
	must.Do(t, err)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// newSandbox starts a sandbox of a room of its own.
func newSandbox(t *testing.T, o engine.SandboxOptions) engine.Sandbox {
	t.Helper()
	s, err := newRoom(t).NewSandbox(patience.Context(t), o)
	must.Do(t, err)
	return s
}

// get returns the status and the text of a page of a port in a sandbox.
func get(t *testing.T, s engine.Sandbox, port int, path, token string) (status int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(patience.Context(t), http.MethodGet, "http://sandbox.test"+path, nil)
	must.Do(t, err)
	if token != "" {
		req.Header.Set(protocol.HeaderAccess, token)
	}
	return answer(t, s, port, req)
}

// post posts a body to a port in a sandbox, and returns the status and the text of the answer.
func post(t *testing.T, s engine.Sandbox, port int, path, contentType, body string) (status int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(patience.Context(t), http.MethodPost, "http://sandbox.test"+path, strings.NewReader(body))
	must.Do(t, err)
	req.Header.Set("Content-Type", contentType)
	return answer(t, s, port, req)
}

// answer returns the status and the text of the answer to a request.
func answer(t *testing.T, s engine.Sandbox, port int, req *http.Request) (status int, text string) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Dial(ctx, port) }}
	if port == guest.ProxyPort {
		transport.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.test"})
	}
	res, err := transport.RoundTrip(req)
	must.Do(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	must.Do(t, err)
	return res.StatusCode, string(body)
}

// TestServe checks the ports of a real sandbox: each server has the part of the configuration that it
// needs.
func TestServe(t *testing.T) {
	t.Parallel()
	const token, cloudPort, memory = "secret", 4443, 512 << 20
	egress := &refusing{asked: make(chan string, 4)}
	s := newSandbox(t, engine.SandboxOptions{ID: "i1", Egress: egress, Config: guest.Config{
		SandboxID: "i1", TemplateID: "t1", AccessToken: token, Envs: map[string]string{"A": "b"}, System: map[string]string{"C": "d"},
		Path: room.DefaultPath, MemoryBytes: memory, CPUs: 3, CloudPort: cloudPort, Proxy: true,
	}})
	for _, port := range []int{protocol.PortEnvd, protocol.PortInterpreter, protocol.PortJupyter} {
		path := map[int]string{protocol.PortEnvd: "/envs", protocol.PortInterpreter: "/contexts", protocol.PortJupyter: "/api/kernels"}[port]
		open := port == protocol.PortInterpreter // as on the service
		if status, text := get(t, s, port, path, ""); (status == http.StatusOK) != open {
			t.Errorf("port %d without a token: got %d %s, want access: %v", port, status, text, open)
		}
		if status, text := get(t, s, port, path, token); status != http.StatusOK {
			t.Errorf("port %d: got %d %s, want %d", port, status, text, http.StatusOK)
		}
	}

	var envs map[string]string
	_, text := get(t, s, protocol.PortEnvd, "/envs", token)
	must.Do(t, json.Unmarshal([]byte(text), &envs))
	for name, want := range map[string]string{"A": "b", "C": "d", "LANG": "C.UTF-8", "E2B_SANDBOX_ID": "i1", "HTTP_PROXY": "http://127.0.0.1:3128"} {
		if envs[name] != want {
			t.Errorf("%s: got %q, want %q", name, envs[name], want)
		}
	}
	type metrics struct {
		CPUs   int `json:"cpu_count"`
		Memory int `json:"mem_total"`
	}
	var got metrics
	_, text = get(t, s, protocol.PortEnvd, "/metrics", token)
	must.Do(t, json.Unmarshal([]byte(text), &got))
	if diff := cmp.Diff(metrics{3, memory}, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	if _, text := get(t, s, protocol.PortEnvd, "/files?username=root&path=/run/e2b/.E2B_TEMPLATE_ID", token); text != "t1" {
		t.Errorf("got template %q, want t1", text)
	}
	_, id := get(t, s, protocol.PortEnvd, "/files?username=root&path=.jupyter/kernel_id", token)
	if _, text := get(t, s, protocol.PortJupyter, "/api/kernels", token); id == "" || !strings.Contains(text, id) {
		t.Errorf("got default kernel %q, want one of %s", id, text)
	}
	if _, text := get(t, s, protocol.PortInterpreter, "/contexts", token); !strings.Contains(text, `"`+guest.UserHome+`"`) {
		t.Errorf("got contexts %s, want one in %s", text, guest.UserHome)
	}

	for port, want := range map[int]string{guest.ProxyPort: "sandbox.test:80", cloudPort: "sandbox.test:" + strconv.Itoa(cloudPort)} {
		status, text := get(t, s, port, "/", "")
		if asked := patience.Receive(t, "a host of the egress", egress.asked); asked != want || status < 400 {
			t.Errorf("port %d: got %d %s and a connection to %s, want an error and one to %s", port, status, text, asked, want)
		}
	}
	must.Do(t, s.Close())
}

// logged collects the reports of a sandbox.
type logged struct {
	mu    sync.Mutex
	lines []string
}

func (l *logged) tell(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(line))
}

// has reports whether one line contains all the parts.
func (l *logged) has(parts ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.lines, func(line string) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) })
	})
}

// TestServeKernel checks that the kernels of a sandbox have their driver in its directory, are forked where
// that is possible, and report to its log.
func TestServeKernel(t *testing.T) {
	t.Parallel()
	var log logged
	s := newSandbox(t, engine.SandboxOptions{ID: "i3", Tell: log.tell, Config: guest.Config{SandboxID: "i3", Path: room.DefaultPath, Python: []string{"false"}}})
	if status, text := get(t, s, protocol.PortEnvd, "/files?username=root&path=/run/e2b/kernel/start.py", ""); status != http.StatusOK {
		t.Errorf("the driver: got %d %s, want %d", status, text, http.StatusOK)
	}
	post(t, s, protocol.PortInterpreter, "/execute", "application/json", `{"code":"1"}`)
	patience.Until(t, "a kernel that could not be forked starts cold", func() bool { return log.has(`"msg":"kernel starts cold"`, `"logger":"kernel"`, `"error":`) })
	must.Do(t, s.Close())
}

// TestServeWasm checks that Python in WebAssembly runs as the user and with its environment, that the
// sandbox is busy while code runs, and that it starts no other processes.
func TestServeWasm(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	const deno = "#!/bin/sh\nread -r line\numask 022\necho \"$(id -u) $line\" >/tmp/new\nmv /tmp/new /tmp/start\ncat\n"
	layer := imagetest.Layer(t, r.Report().IDs, true, func(root string) error {
		dir := filepath.Join(root, "opt", "wasm")
		return errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "deno"), []byte(deno), 0o755), os.WriteFile(filepath.Join(dir, "sizes.json"), []byte("{}"), 0o644))
	})
	s, err := r.NewSandbox(patience.Context(t), engine.SandboxOptions{ID: "i4", Layers: []string{layer}, Config: guest.Config{SandboxID: "i4", Path: room.DefaultPath, Wasm: &guest.Wasm{Dir: "/opt/wasm"}}})
	must.Do(t, err)
	const start = "\x00\x00\x00\x00\x1d" + `{"process":{"cmd":"/bin/sh"}}`
	if status, text := post(t, s, protocol.PortEnvd, "/process.Process/Start", "application/connect+json", start); !strings.Contains(text, guest.NoProcesses) {
		t.Errorf("got %d %s, want %s", status, text, guest.NoProcesses)
	}
	conn, err := s.Dial(patience.Context(t), protocol.PortInterpreter)
	must.Do(t, err)
	defer conn.Close()
	busy := func() bool {
		_, text := get(t, s, protocol.PortEnvd, "/local/busy", "")
		return strings.Contains(text, `"busy":true`)
	}
	if busy() {
		t.Error("busy before any code, want not")
	}
	const code = `{"code":"1"}`
	_, err = fmt.Fprintf(conn, "POST /execute HTTP/1.1\r\nHost: sandbox.test\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(code), code)
	must.Do(t, err)
	var text string
	patience.Until(t, "the start of Python", func() bool {
		var status int
		status, text = get(t, s, protocol.PortEnvd, "/files?username=root&path=/tmp/start", "")
		return status == http.StatusOK
	})
	id := "0"
	if r.Report().IDs > 1 {
		id = strconv.Itoa(protocol.UserID)
	}
	if !strings.HasPrefix(text, id+" ") || !strings.Contains(text, `"`+guest.UserHome+`"`) || strings.Contains(text, `"`+guest.RootHome+`"`) {
		t.Errorf("got %s, want the user %s and no home of root", text, id)
	}
	if !busy() {
		t.Error("not busy while code runs, want busy")
	}
	must.Do(t, s.Close())
}

// TestServeWarns checks that a sandbox starts, and logs the reason, if its image has no place for a file or a
// directory of envd.
func TestServeWarns(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	layer := imagetest.Layer(t, r.Report().IDs, true, func(root string) error {
		return errors.Join(os.Mkdir(filepath.Join(root, "root"), 0o700), os.WriteFile(filepath.Join(root, "root", ".jupyter"), nil, 0o600))
	})
	var log logged
	s, err := r.NewSandbox(patience.Context(t), engine.SandboxOptions{
		ID: "i5", Layers: []string{layer}, Tell: log.tell, Config: guest.Config{SandboxID: "i5", Path: room.DefaultPath, Image: "for a test", Workdir: "/root/.jupyter/below"},
	})
	must.Do(t, err)
	for _, want := range [][]string{
		{`"level":"WARN"`, "the image is not as its commands expect it", `"image":"for a test"`, "not a directory"},
		{`"level":"WARN"`, "the id of the default kernel could not be written", ".jupyter: not a directory"},
	} {
		patience.Until(t, want[1], func() bool { return log.has(want...) })
	}
	must.Do(t, s.Close())
}

// TestServePortInUse checks that a sandbox does not start if the port of the cloud is one of envd's.
func TestServePortInUse(t *testing.T) {
	t.Parallel()
	_, err := newRoom(t).NewSandbox(patience.Context(t), engine.SandboxOptions{
		ID: "i6", Egress: &refusing{}, Config: guest.Config{SandboxID: "i6", Path: room.DefaultPath, CloudPort: protocol.PortEnvd},
	})
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("got %v, want that the address is in use", err)
	}
}

// TestServeImage checks that a sandbox with an image has the working directory and the PATH of the image,
// also in login shells.
func TestServeImage(t *testing.T) {
	t.Parallel()
	const path, workdir = "/of/the/image:" + room.DefaultPath, "/made/for/it"
	s := newSandbox(t, engine.SandboxOptions{ID: "i2", Config: guest.Config{SandboxID: "i2", Image: "for a test", Workdir: workdir, Path: path}})
	for name, want := range map[string]string{login.PathFile: login.PathText(path), "/run/e2b/.E2B_SANDBOX_ID": "i2"} {
		if status, text := get(t, s, protocol.PortEnvd, "/files?username=root&path="+name, ""); status != http.StatusOK || text != want {
			t.Errorf("%s: got %d %q, want %q", name, status, text, want)
		}
	}
	if status, text := get(t, s, protocol.PortEnvd, "/files?username=root&path=/etc/profile", ""); status != http.StatusOK || text != login.Profile(text) {
		t.Errorf("got %d %q, want a profile that keeps PATH", status, text)
	}
	if status, text := get(t, s, protocol.PortEnvd, "/files?username=root&path="+workdir, ""); !strings.Contains(text, "directory") || status == http.StatusNotFound {
		t.Errorf("got %d %q, want that it is a directory", status, text)
	}
	must.Do(t, s.Close())
}
