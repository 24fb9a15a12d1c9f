package reexec

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest/login"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room"
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

// newSandbox starts a sandbox whose first process is this program.
func newSandbox(t *testing.T, o engine.SandboxOptions) engine.Sandbox {
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
	s, err := r.NewSandbox(patience.Context(t), o)
	must.Do(t, err)
	return s
}

// get returns the status and the text of a page of a port in a sandbox.
func get(t *testing.T, s engine.Sandbox, port int, path, token string) (status int, text string) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Dial(ctx, port) }}
	if port == guest.ProxyPort {
		transport.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.test"})
	}
	req, err := http.NewRequestWithContext(patience.Context(t), http.MethodGet, "http://sandbox.test"+path, nil)
	must.Do(t, err)
	if token != "" {
		req.Header.Set(protocol.HeaderAccess, token)
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
