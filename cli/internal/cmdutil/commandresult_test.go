package cmdutil

import (
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/sandbox"
)

func TestExitStatus(t *testing.T) {
	t.Parallel()
	tests := []struct {
		result sandbox.CommandResult
		want   int
	}{
		{sandbox.CommandResult{ExitCode: 3}, 3},
		{sandbox.CommandResult{}, 0},
		{sandbox.CommandResult{ExitCode: 255}, 255},
		{sandbox.CommandResult{ExitCode: 137, Status: "exit status 137 (out of memory: the sandbox's limit is 2 GiB)"}, 137},
		{sandbox.CommandResult{ExitCode: -1, Signal: 9}, 137},
		{sandbox.CommandResult{ExitCode: -1, Signal: 31}, 159},
		{sandbox.CommandResult{ExitCode: -1, Status: "something else"}, 1},
		{sandbox.CommandResult{ExitCode: 256}, 1}, // as the process's own status it would mean success
	}
	for _, tt := range tests {
		if got := ExitStatus(&tt.result); got != tt.want {
			t.Errorf("ExitStatus(%+v) = %d, want %d", tt.result, got, tt.want)
		}
	}
}

// TestExplain covers the lines about a command besides its own output.
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
		Explain(&b, "exec", &result)
		if b.String() != want {
			t.Errorf("of %+v it says %q, want %q", result, b.String(), want)
		}
	}
	var well strings.Builder
	if Explain(&well, "exec", &sandbox.CommandResult{Status: "something else"}); well.Len() > 0 {
		t.Errorf("of a command that succeeded it says %q", &well)
	}
	var b strings.Builder
	Explain(&b, "run", &sandbox.CommandResult{Status: "exit status 0", OutputHeld: true})
	if want := "e2bctl: run: "; !strings.HasPrefix(b.String(), want) {
		t.Errorf("of output that is held it says %q, want %q at the start", b.String(), want)
	}
	if want := "Redirect it"; !strings.Contains(b.String(), want) {
		t.Errorf("of output that is held it says %q, want %q in it", b.String(), want)
	}
}
