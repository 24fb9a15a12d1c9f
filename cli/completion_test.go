package cli

import (
	"bytes"
	"net"
	"testing"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/internal/must"
)

// A service that takes the connection and never answers ends no later than the limit, with no
// choices.
func TestCompletionOfASilentService(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	defer listener.Close() // the kernel accepts connections that nobody reads
	t.Setenv("E2B_API_KEY", "e2b_0000000000000000000000000000000000000000")
	t.Setenv("E2B_API_URL", "http://"+listener.Addr().String())
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	for _, words := range [][]string{{"kill", ""}, {"template", "rm", ""}, {"volume", "rm", ""}, {"snapshot", "rm", ""}} {
		var out, errs bytes.Buffer
		status := Run(t.Context(), nil, &out, &errs, append([]string{cobra.ShellCompRequestCmd, "--no-env-file"}, words...))
		const want = "Completion ended with directive: ShellCompDirectiveNoFileComp\n"
		if status != 0 || out.String() != ":4\n" || errs.String() != want {
			t.Errorf("%q: status %d, stdout %q, stderr %q, want no choices", words, status, &out, &errs)
		}
	}
}

// Every command with live choices exists.
func TestLiveArgumentsAreOfCommands(t *testing.T) {
	t.Parallel()
	found := 0
	for name, cmd := range commandsWithRun(t) {
		if _, live := liveArguments(name); live {
			found++
			if cmd.ValidArgsFunction != nil {
				t.Errorf("%s completes its arguments itself, too", name)
			}
		}
	}
	if found < 30 {
		t.Errorf("%d commands have live choices, want all that name something of the service", found)
	}
}
