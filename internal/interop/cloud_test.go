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

// localUp builds the command and starts "e2bctl local up", as a user does, and
// returns the variables that it prints. The cloud's record is in a directory of
// its own, so it does not interfere with a cloud that this user runs.
func localUp(t *testing.T) []string {
	t.Helper()
	if runtime.GOOS != "linux" {
		pinned.Skip(t, "the local cloud runs on Linux only")
	}
	program := filepath.Join(t.TempDir(), "e2bctl")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "github.com/e2bctl/e2bctl/cli/e2bctl")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make builds it, with or without the race detector
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", build, err, output)
	}
	command := exec.Command(program, "local", "up", "-o", "json", "--port", "0")
	command.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir(), "XDG_STATE_HOME="+t.TempDir())
	var stderr strings.Builder
	command.Stderr = &stderr
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		_ = command.Wait()
		if strings.Contains(stderr.String(), "no isolation") {
			pinned.Skip(t, "%s", stderr.String())
		}
		t.Fatalf("local up: %s", stderr.String())
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(os.Interrupt)
		if err := command.Wait(); err != nil {
			t.Errorf("local up ended with %v: %s", err, stderr.String())
		}
	})
	var record struct{ Env []string }
	if err := json.Unmarshal(line, &record); err != nil || len(record.Env) < 3 {
		t.Fatalf("local up printed %s: %v, want a record with its environment and no error", line, err)
	}
	return record.Env
}

// byDomain returns the variables of a cloud without its addresses, and skips the test
// where names below localhost do not resolve.
func byDomain(t *testing.T, cloud []string) []string {
	t.Helper()
	if output, err := exec.CommandContext(t.Context(), "getent", "ahosts", "api.localhost").Output(); err != nil {
		pinned.Skip(t, "names below localhost do not resolve (apt-get install libnss-myhostname): %v %s", err, output)
	}
	env := slices.DeleteFunc(slices.Clone(cloud), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return slices.Contains([]string{"E2B_API_URL", "E2B_SANDBOX_URL", "E2B_VOLUME_API_URL"}, name)
	})
	// The SDKs need no more. Python's requests, with which some libraries talk to the
	// ports of sandboxes, reads only a variable of its own.
	for _, pair := range cloud {
		if bundle, found := strings.CutPrefix(pair, "SSL_CERT_FILE="); found {
			env = append(env, "REQUESTS_CA_BUNDLE="+bundle)
		}
	}
	return env
}
