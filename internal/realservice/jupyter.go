//go:build linux

package realservice

import (
	"context"
	"embed"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// patience bounds work that takes seconds on a machine that is not busy.
const patience = 3 * time.Minute

//go:embed profile
var profile embed.FS

//go:embed launch.py
var launch []byte

// jupyterServer is a running Jupyter server.
type jupyterServer struct {
	client *http.Client
	dialer *websocket.Dialer
}

// startJupyter starts a Jupyter server whose root is home, with the
// configuration of the template. The server ends with the test.
func startJupyter(t testing.TB, home string) *jupyterServer {
	t.Helper()
	interpreter, packages := Packages.FindPython(t)
	directory, err := os.MkdirTemp("", "jupyter") //nolint:usetesting // the path of a socket has few bytes, and those of tests are long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	folder, err := fs.Sub(profile, "profile")
	if err == nil {
		err = os.CopyFS(filepath.Join(directory, "ipython", "profile_default"), folder)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(directory, "launch.py"), launch, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(directory, "socket")
	command := exec.CommandContext(context.WithoutCancel(t.Context()), interpreter, filepath.Join(directory, "launch.py"),
		"--ServerApp.sock="+socket, "--ServerApp.root_dir="+home, "--IdentityProvider.token=", "--ServerApp.open_browser=False",
		"--ServerApp.allow_origin=*", "--ServerApp.allow_remote_access=True", "--ServerApp.disable_check_xsrf=True", "--ServerApp.allow_root=True",
		"--ServerApp.iopub_data_rate_limit=1000000000", "--ServerApp.terminals_enabled=False")
	command.Dir = home
	command.Env = append(os.Environ(), "HOME="+home, "TMPDIR="+directory, "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1",
		"IPYTHONDIR="+filepath.Join(directory, "ipython"), "JUPYTER_CONFIG_DIR="+filepath.Join(directory, "config"),
		"JUPYTER_DATA_DIR="+filepath.Join(directory, "data"), "JUPYTER_RUNTIME_DIR="+filepath.Join(directory, "run"),
		"MPLBACKEND=module://matplotlib_inline.backend_inline", "MPLCONFIGDIR="+filepath.Join(directory, "matplotlib"), "NO_PROXY=*", "no_proxy=*")
	var output tail
	command.Stdout, command.Stderr = &output, &output
	stdin, err := command.StdinPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatalf("start the Jupyter server: %v", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = command.Wait() // its output shows how it ends
		close(ended)
	}()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}
	s := &jupyterServer{
		client: &http.Client{Transport: transport},
		dialer: &websocket.Dialer{NetDialContext: transport.DialContext},
	}
	t.Cleanup(func() {
		s.endKernels(t)
		transport.CloseIdleConnections()
		_ = stdin.Close()
		select {
		case <-ended:
		case <-time.After(patience):
			_ = command.Process.Kill()
			<-ended
			t.Errorf("the Jupyter server did not end: %s", output.String())
		}
	})
	for deadline := time.Now().Add(patience); ; {
		err := s.call(t.Context(), http.MethodGet, "/api/status", nil, nil)
		if err == nil {
			return s
		}
		select {
		case <-ended:
			t.Fatalf("the Jupyter server ended: %s", output.String())
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("the Jupyter server does not answer: %v\n%s", err, output.String())
		}
	}
}

// endKernels ends the kernels before their server ends. Otherwise the kernels would notice the end
// of the server only after a second. Until then, they would write to directories that are being
// removed.
func (s *jupyterServer) endKernels(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	var kernels []struct{ ID string }
	if err := s.call(ctx, http.MethodGet, "/api/kernels", nil, &kernels); err != nil {
		t.Errorf("list the kernels: %v", err)
	}
	for _, k := range kernels {
		if err := s.call(ctx, http.MethodDelete, "/api/kernels/"+k.ID, nil, nil); err != nil {
			t.Logf("end kernel %s: %v", k.ID, err) // kernels that could not be started, or have died, are still listed
		}
	}
}

// address returns a URL with a path of the server. The host in the URL has no meaning.
func address(scheme, path string) string { return scheme + "://localhost" + path }

// tail keeps the end of a process's output.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-16<<10):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
