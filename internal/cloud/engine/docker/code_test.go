//go:build linux

package docker_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker/dockertest"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// execute runs code and returns the answer of the interpreter.
func execute(t *testing.T, s engine.Sandbox, code string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://interpreter/execute", strings.NewReader(`{"code":`+code+`}`))
	must.Do(t, err)
	request.Header.Set("Content-Type", "application/json")
	answer, err := client(t, s, protocol.PortInterpreter).Do(request)
	must.Do(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	must.Do(t, err)
	return string(body)
}

// TestCode checks that the Python of the image runs code that shares variables, as the user
// of the container, and that an image without Python is said to have none.
func TestCode(t *testing.T) {
	t.Parallel()
	s := start(t, open(t, docker.Options{User: "nobody", CapDrop: []string{"ALL"}}), engine.SandboxOptions{})
	execute(t, s, `"import os; x = 6"`)
	if got := execute(t, s, `"print(os.getuid()); x * 7"`); !strings.Contains(got, `65534\n`) || !strings.Contains(got, `"text":"42"`) {
		t.Errorf("got %s, want 65534 and 42", got)
	}
	if got := execute(t, s, `"1 / 0"`); !strings.Contains(got, "ZeroDivisionError") {
		t.Errorf("got %s, want an error", got)
	}
	bare := start(t, open(t, docker.Options{Image: dockertest.Bare}), engine.SandboxOptions{})
	if got := execute(t, bare, `"1"`); !strings.Contains(got, "python3: the image of this sandbox has none in its PATH") {
		t.Errorf("without Python: got %s, want an error that names it and the image", got)
	}
}

// TestTerminal checks that programs get a terminal with its size.
func TestTerminal(t *testing.T) {
	t.Parallel()
	s := start(t, open(t, docker.Options{Image: dockertest.Bare}), engine.SandboxOptions{})
	c := processconnect.NewProcessClient(client(t, s, protocol.PortEnvd), "http://envd")
	request := connect.NewRequest(&process.StartRequest{
		Process: &process.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", "tty; stty size"}},
		Pty:     &process.PTY{Size: &process.PTY_Size{Cols: 81, Rows: 25}},
	})
	request.Header().Set("Authorization", basic("user"))
	stream, err := c.Start(t.Context(), request)
	must.Do(t, err)
	defer stream.Close()
	var out strings.Builder
	for stream.Receive() {
		out.Write(stream.Msg().GetEvent().GetData().GetPty())
	}
	if got := out.String(); !strings.Contains(got, "/dev/pts/") || !strings.Contains(got, "25 81") {
		t.Errorf("got %q, %v, want a terminal of 25 rows and 81 columns", got, stream.Err())
	}
}

// TestCopiedProgram checks that a daemon that sees none of this machine's files gets the
// program all the same.
func TestCopiedProgram(t *testing.T) {
	t.Parallel()
	e := open(t, docker.Options{Image: dockertest.Bare})
	docker.CopyPrograms(e)
	s := start(t, e, engine.SandboxOptions{})
	if got := run(t, s, "grep -c '/.e2bctl ' /proc/self/mountinfo; ls -l /.e2bctl | cut -c 1-10"); got != "0\n-r-xr-xr-x" {
		t.Errorf("got %q, want a file of the container", got)
	}
}
