//go:build linux

package docker_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker/dockertest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

func TestMain(m *testing.M) {
	if host := os.Getenv(serverVariable); host != "" {
		serve(host)
		return
	}
	goleak.VerifyTestMain(dockertest.Ending{M: m})
}

// open opens an engine on the tests' daemon.
func open(t *testing.T, o docker.Options) engine.Engine {
	t.Helper()
	if o.Host == "" {
		o.Host = dockertest.Shared(t).Host()
	}
	if o.Image == "" {
		o.Image = dockertest.Image
	}
	o.Binary = dockertest.Program(t)
	e, err := docker.Open(t.Context(), o)
	must.Do(t, err)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close the engine: %v", err)
		}
	})
	return e
}

// options are those of a sandbox.
func options(t *testing.T, o engine.SandboxOptions) engine.SandboxOptions {
	t.Helper()
	if o.ID == "" {
		o.ID = strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	}
	o.Config = guest.Config{SandboxID: o.ID, TemplateID: "base", Path: "/nowhere", Proxy: true, Python: []string{"/no/such/python"}}
	return o
}

func start(t *testing.T, e engine.Engine, o engine.SandboxOptions) engine.Sandbox {
	t.Helper()
	s, err := e.NewSandbox(t.Context(), options(t, o))
	must.Do(t, err)
	return s
}

// client speaks HTTP with a port of the sandbox.
func client(t testing.TB, s engine.Sandbox, port int) *http.Client {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Dial(ctx, port) }}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// run runs a command with /bin/sh and returns its output.
func run(t testing.TB, s engine.Sandbox, command string) string {
	t.Helper()
	out, err := try(t, s, "user", command)
	if err != nil {
		t.Fatalf("%s: %v (it wrote %q)", command, err, out)
	}
	return out
}

func try(t testing.TB, s engine.Sandbox, user, command string) (string, error) {
	t.Helper()
	c := processconnect.NewProcessClient(client(t, s, protocol.PortEnvd), "http://envd")
	request := connect.NewRequest(&process.StartRequest{Process: &process.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", command}}})
	request.Header().Set("Authorization", basic(user))
	stream, err := c.Start(t.Context(), request)
	if err != nil {
		return "", err
	}
	defer stream.Close()
	var out strings.Builder
	status := int32(-1)
	for stream.Receive() {
		event := stream.Msg().GetEvent()
		out.Write(event.GetData().GetStdout())
		out.Write(event.GetData().GetStderr())
		if end := event.GetEnd(); end != nil {
			status = end.GetExitCode()
		}
	}
	if err := stream.Err(); err != nil {
		return out.String(), err
	}
	if status != 0 {
		return out.String(), fmt.Errorf("exit status %d", status)
	}
	return strings.TrimSpace(out.String()), nil
}

func basic(user string) string {
	r, _ := http.NewRequest(http.MethodGet, "/", nil)
	r.SetBasicAuth(user, "")
	return r.Header.Get("Authorization")
}

// TestCommands checks that processes run as either user, with the environment of the image.
func TestCommands(t *testing.T) {
	t.Parallel()
	e := open(t, docker.Options{})
	s := start(t, e, engine.SandboxOptions{ID: "host-1"})
	for _, user := range []string{"user", "root"} {
		got, err := try(t, s, user, `echo "$(id -u) $HOME $FROM_IMAGE $E2B_SANDBOX_ID $(hostname)"`)
		home := map[string]string{"user": "/home/user", "root": "/root"}[user]
		if want := "0 " + home + " yes host-1 host-1"; err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", user, got, err, want)
		}
	}
	if _, err := try(t, s, "user", "exit 3"); err == nil || err.Error() != "exit status 3" {
		t.Errorf("got %v, want exit status 3", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestFiles checks that a file goes in and out whole.
func TestFiles(t *testing.T) {
	t.Parallel()
	s := start(t, open(t, docker.Options{}), engine.SandboxOptions{})
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MiB: many windows of the tunnel
	c := client(t, s, protocol.PortEnvd)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://envd/files?path=in.bin", bytes.NewReader(data))
	must.Do(t, err)
	request.Header.Set("Content-Type", "application/octet-stream")
	request.Header.Set("Authorization", basic("user"))
	answer, err := c.Do(request)
	must.Do(t, err)
	body, _ := io.ReadAll(answer.Body)
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("upload: %s: %s", answer.Status, body)
	}
	request, err = http.NewRequestWithContext(t.Context(), http.MethodGet, "http://envd/files?path=/home/user/in.bin", nil)
	must.Do(t, err)
	request.Header.Set("Authorization", basic("user"))
	answer, err = c.Do(request)
	must.Do(t, err)
	defer answer.Body.Close()
	if got, err := io.ReadAll(answer.Body); err != nil || !bytes.Equal(got, data) {
		t.Errorf("got %d bytes, %v, want %d that are the same", len(got), err, len(data))
	}
}
