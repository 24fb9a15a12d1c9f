package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
	"github.com/e2bctl/e2bctl/sandbox"
)

// TestExitCode covers the statuses that a script cannot produce at will; the
// others are produced by testdata/script.
func TestExitCode(t *testing.T) {
	t.Parallel()
	answer := func(status int) error {
		return api.ResponseError("GET", "/sandboxes/x", status, http.Header{}, nil)
	}
	gone := func(state sandbox.GoneState) error { return &sandbox.GoneError{ID: "x", State: state} }
	stopped := &signalError{signal: syscall.SIGTERM}
	tests := []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("any"), 1},
		{answer(500), 1},
		{answer(404), 3},
		{fmt.Errorf("reading: %w", fs.ErrNotExist), 3},
		{answer(401), 4},
		{answer(403), 4},
		{api.ErrNoAPIKey, 4},
		{answer(409), 5},
		{gone("paused"), 5},
		{&localcloud.ConflictError{}, 5},
		{answer(429), 6},
		{context.DeadlineExceeded, 7},
		{&cmdutil.PartialError{Failed: 1, Total: 2}, 8},
		{api.NewError("GET", "/", errors.New("connection refused")), 9},
		{stopped, 143},
		{cmdutil.RemoteStatus(42), 42},
		{&cmdutil.OwnError{Err: answer(404)}, 125},
		{&cmdutil.OwnError{Err: gone("killed")}, 125},
		{&cmdutil.OwnError{Err: gone("killed"), Running: true}, 137},
		{&cmdutil.OwnError{Err: gone("expired"), Running: true}, 124},
		{&cmdutil.OwnError{Err: context.DeadlineExceeded}, 124},
		{&cmdutil.OwnError{Err: stopped}, 143},
	}
	for _, tt := range tests {
		if got := exitCode(tt.err); got != tt.want {
			t.Errorf("exitCode(%v) = %d, want %d", tt.err, got, tt.want)
		}
	}
}

func TestExitStatus(t *testing.T) {
	t.Parallel()
	tests := []struct {
		result sandbox.CommandResult
		want   int
	}{
		{sandbox.CommandResult{ExitCode: 3}, 3},
		{sandbox.CommandResult{ExitCode: 137, Status: "exit status 137 (out of memory: the sandbox's limit is 2 GiB)"}, 137},
		{sandbox.CommandResult{ExitCode: -1, Signal: 9}, 137},
		{sandbox.CommandResult{ExitCode: -1, Signal: 31}, 159},
		{sandbox.CommandResult{ExitCode: -1, Status: "something else"}, 1},
		{sandbox.CommandResult{ExitCode: 256}, 1}, // as a process's own status it would mean success
	}
	for _, tt := range tests {
		if got := exitStatus(&tt.result); got != tt.want {
			t.Errorf("exitStatus(%+v) = %d, want %d", tt.result, got, tt.want)
		}
	}
}

// TestExplain covers what is written about a command besides its own output.
func TestExplain(t *testing.T) {
	t.Parallel()
	const oom = "out of memory: the sandbox's limit is 64 MiB"
	for want, result := range map[string]sandbox.CommandResult{
		"": {ExitCode: 3, Status: "exit status 3"},
		"e2bctl: exec: the command failed: signal: killed (" + oom + ")\n":  {ExitCode: -1, Signal: 9, Status: "signal: killed (" + oom + ")"},
		"e2bctl: exec: the command failed: exit status 137 (" + oom + ")\n": {ExitCode: 137, Status: "exit status 137 (" + oom + ")"},
		"e2bctl: exec: the command failed: signal: \uFFFD[2J\n":             {ExitCode: -1, Status: "signal: \xff\x1b[2J"},
	} {
		var b strings.Builder
		explain(&b, "exec", &result)
		if b.String() != want {
			t.Errorf("of %+v it says %q, want %q", result, b.String(), want)
		}
	}
	var b strings.Builder
	explain(&b, "run", &sandbox.CommandResult{Status: "exit status 0", OutputHeld: true})
	if !strings.HasPrefix(b.String(), "e2bctl: run: ") || !strings.Contains(b.String(), "Redirect") {
		t.Errorf("of output that is held it says %q", b.String())
	}
}
