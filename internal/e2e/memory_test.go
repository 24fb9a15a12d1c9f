//go:build linux

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// withMemory returns a cloud that limits the memory of a sandbox.
func withMemory(t *testing.T, bytes int64, options ...local.Option) *sandboxtest.Cloud {
	t.Helper()
	cloud := sandboxtest.New(t, append(options, local.WithResources(local.Resources{MemoryBytes: bytes}))...)
	if enforced := cloud.Report().Memory; !strings.HasPrefix(enforced, "control group") {
		if os.Getenv("CI") == "true" && os.Geteuid() == 0 {
			t.Fatal(enforced) // root has cgroups, or something is broken
		}
		t.Skip(enforced)
	}
	return cloud
}

// TestOutOfMemory checks that a process that was killed because of the
// sandbox's limit is reported as such, and one that was killed in another way
// is not.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	sb := withMemory(t, 256<<20).Create(t)
	const reason = "signal: killed (out of memory: the sandbox's limit is 256 MiB)"
	const eat = `python3 -c 'x = b"x" * (1 << 29)'`
	for command, want := range map[string]string{
		eat:                      reason,
		eat + "; exit $?":        strings.Replace(reason, "signal: killed", "exit status 137", 1),
		"kill -9 $$":             "signal: killed",
		eat + " || true; exit 3": "exit status 3",
	} {
		result, err := sb.Commands.Run(t.Context(), command, nil)
		if _, failed := errors.AsType[*sandbox.ExitError](err); !failed || result.Status != want || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %+v, %v, want a failure with status %q", command, result, err, want)
		}
	}
	_, err := sb.RunCode(t.Context(), `x = b"x" * (1 << 29)`, nil)
	if !errors.Is(err, sandbox.ErrKernelDied) || !strings.Contains(err.Error(), reason) {
		t.Errorf("code: %v, want sandbox.ErrKernelDied and an error with %q", err, reason)
	}
	if got := sandboxtest.Eval(t, sb, "6 * 7"); got != "42" {
		t.Errorf("the next kernel says %q, want %q", got, "42")
	}
	_, err = sb.RunCode(t.Context(), "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", nil)
	if !errors.Is(err, sandbox.ErrKernelDied) || strings.Contains(err.Error(), "memory") {
		t.Errorf("a kernel that killed itself: %v, want ErrKernelDied without a word about memory", err)
	}
}

// TestMoreOutputThanMemory checks that output is passed through, and not kept
// anywhere on its way. Otherwise the sandbox would run out of memory.
func TestMoreOutputThanMemory(t *testing.T) {
	t.Parallel()
	sb := withMemory(t, littleMemory, local.WithWarm(0)).Create(t, sandbox.WithEnvs(startsCold))
	var written counter
	execution, err := sb.RunCode(t.Context(), fmt.Sprintf("for i in range(%d): print('x' * 65535)", muchOutput>>16), &sandbox.RunCodeParams{Stdout: &written})
	must.Do(t, err)
	if kept := int64(len(execution.Stdout)); written != muchOutput || kept > sandbox.DefaultMaxOutputBytes+256 || execution.StdoutDropped < muchOutput-kept {
		t.Errorf("the writer got %d bytes; %d are kept, %d dropped, want %d, at most %d and at least %d", written, kept, execution.StdoutDropped, muchOutput, sandbox.DefaultMaxOutputBytes+256, muchOutput-kept)
	}
}

// TestMemoryMetrics checks that the memory that envd reports is the sandbox's,
// and includes the files that are kept in memory.
func TestMemoryMetrics(t *testing.T) {
	t.Parallel()
	sb := withMemory(t, 256<<20, local.WithWarm(0)).Create(t)
	measure := func() (used, total uint64) {
		t.Helper()
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, sb.URL(49983)+"/metrics", nil)
		response, err := sb.Transport(49983).RoundTrip(request)
		must.Do(t, err)
		defer response.Body.Close()
		var got struct {
			Used  uint64 `json:"mem_used"`
			Total uint64 `json:"mem_total"`
		}
		if err := json.NewDecoder(response.Body).Decode(&got); err != nil {
			t.Fatalf("%s: %v", response.Status, err)
		}
		return got.Used, got.Total
	}
	before, total := measure()
	sandboxtest.Run(t, sb, "head -c 64M /dev/zero >/dev/shm/x")
	after, _ := measure()
	if total != 256<<20 {
		t.Errorf("got %d bytes of memory, want %d", total, 256<<20)
	}
	if before == 0 || after > total || after < before+(60<<20) {
		t.Errorf("%d bytes were in use, %d with 64 MiB more, of %d", before, after, total)
	}
}
