package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// On a terminal, reset lists what goes and asks; any answer but yes leaves all of it.
func TestResetAsks(t *testing.T) {
	sandboxtest.New(t, local.WithWarm(0)) // skips on a machine that cannot run a local cloud
	startLocalCloud(t)
	atPrompt := func(typed string, args ...string) (status int, out, errs string) {
		var stdout, stderr bytes.Buffer
		ios := cmdutil.NewIOStreams(strings.NewReader(typed), &stdout, &stderr)
		ios.InIsTerminal = true
		return run(t.Context(), ios, args), stdout.String(), stderr.String()
	}
	if status, _, errs := atPrompt("", "volume", "create", "data"); status != 0 {
		t.Fatalf("volume create: status %d, %s", status, errs)
	}
	for _, typed := range []string{"n\n", "\n", ""} {
		status, out, errs := atPrompt(typed, "local", "reset")
		if status != exitFailed || out != "" || !strings.Contains(errs, "not confirmed") {
			t.Errorf("%q: status %d, %q and %q, want a refusal", typed, status, out, errs)
		}
		for _, want := range []string{"This ends the local cloud on http://127.0.0.1:", "  1 volume, ", "  0 paused sandboxes, ", "all secrets, API keys"} {
			if !strings.Contains(errs, want) {
				t.Errorf("%q: it asked %q, want %q in it", typed, errs, want)
			}
		}
	}
	if status, out, errs := atPrompt("", "volume", "ls"); status != 0 || !strings.Contains(out, "data") {
		t.Errorf("volume ls: status %d, %q and %q, want the volume", status, out, errs)
	}
	if status, _, errs := atPrompt("y\n", "local", "reset"); status != 0 || !strings.Contains(errs, "is empty") {
		t.Errorf("reset: status %d, %q", status, errs)
	}
	if status, _, _ := atPrompt("", "local", "status"); status != exitNotFound {
		t.Errorf("status: status %d, want %d", status, exitNotFound)
	}
}
