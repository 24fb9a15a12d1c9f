package interop

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/pinned"
)

// localUp starts "e2bctl local up" until the test ends, and returns the variables
// that it prints.
func localUp(t *testing.T) []string {
	t.Helper()
	server := up(t, e2bctl(t), t.TempDir(), "--registry-mirror", "docker.io="+mirror(t))
	t.Cleanup(func() { server.down(t) })
	return server.env
}

// e2bctl builds the command and returns its path.
func e2bctl(t *testing.T) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		pinned.Skip(t, "the local cloud runs on Linux only")
	}
	pinned.Program(t, "busybox", "busybox-static") // what the clouds and clients need, before anything is built
	for _, set := range Sets() {
		set.Find(t)
	}
	program := filepath.Join(t.TempDir(), "e2bctl")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "github.com/e2bctl/e2bctl/cli/e2bctl")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make builds it, with or without the race detector
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build, err, output)
	}
	return program
}

// server is a running "e2bctl local up".
type server struct {
	env     []string // the variables that it printed
	command *exec.Cmd
	stderr  *strings.Builder
}

// up starts "e2bctl local up", as a user does, with what it keeps in a directory, and flags. The
// record of the cloud is in a directory of its own, so it does not interfere with a
// cloud that this user runs.
func up(t *testing.T, program, state string, flags ...string) *server {
	t.Helper()
	s := &server{command: exec.Command(program, append([]string{"local", "up", "-o", "json", "--port", "0"}, flags...)...), stderr: &strings.Builder{}}
	s.command.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir(), "XDG_STATE_HOME="+state)
	s.command.Stderr = s.stderr
	stdout, err := s.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.command.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		_ = s.command.Wait()
		if strings.Contains(s.stderr.String(), "no isolation") {
			pinned.Skip(t, "%s", s.stderr)
		}
		t.Fatalf("local up: %s", s.stderr)
	}
	var record struct{ Env []string }
	if err := json.Unmarshal(line, &record); err != nil || len(record.Env) < 3 {
		s.down(t)
		t.Fatalf("local up printed %s: %v, want a record with its environment and no error", line, err)
	}
	s.env = record.Env
	return s
}

// down ends the server as control-C does.
func (s *server) down(t *testing.T) {
	t.Helper()
	_ = s.command.Process.Signal(os.Interrupt)
	if err := s.command.Wait(); err != nil {
		t.Errorf("local up ended with %v", err)
	}
	if t.Failed() {
		t.Logf("local up wrote: %s", s.stderr)
	}
}

// needNames skips the test where names below localhost do not resolve.
func needNames(t *testing.T) {
	t.Helper()
	if output, err := exec.CommandContext(t.Context(), "getent", "ahosts", "api.localhost").Output(); err != nil {
		pinned.Skip(t, "names below localhost do not resolve: run make deps, which installs libnss-myhostname as root (%v %s)", err, output)
	}
}

// byDomain returns the variables of a cloud without its addresses.
func byDomain(cloud []string) []string {
	return slices.DeleteFunc(slices.Clone(cloud), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return slices.Contains([]string{"E2B_API_URL", "E2B_SANDBOX_URL", "E2B_VOLUME_API_URL"}, name)
	})
}
