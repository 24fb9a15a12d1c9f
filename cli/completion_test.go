package cli

import (
	"bytes"
	"net"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
)

// A service that takes the connection and never answers ends no later than the limit, with no
// choices.
func TestCompletionOfASilentService(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	defer listener.Close() // the kernel accepts connections, and nothing reads from them
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

// Each flag whose values are a fixed set completes them: those whose type lists the values, and
// those that refuse other values with a list. What is completed is accepted.
func TestFlagsWithChoicesComplete(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	refusal := regexp.MustCompile(`(?m)\bwant ([a-z]+, )*[a-z]+( or |, or both)[a-z]*( with a comma between)?$`)
	found := map[string]bool{}
	each(newCmdRoot(cmdutil.NewFactory(cmdutil.NewIOStreams(nil, &bytes.Buffer{}, &bytes.Buffer{}), describe), nil), func(cmd *cobra.Command) {
		words := strings.Fields(cmd.CommandPath())[1:]
		cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
			err := flag.Value.Set("no-such-value")
			_, completes := cmd.GetFlagCompletionFunc(flag.Name)
			refuses := err != nil && (completes || refusal.MatchString(err.Error()))
			if flag.Hidden || choicesOf(flag) == nil && !refuses {
				return
			}
			if err == nil {
				t.Errorf("%s --%s takes any value", cmd.CommandPath(), flag.Name)
			}
			var out, errs bytes.Buffer
			Run(t.Context(), nil, &out, &errs, append([]string{cobra.ShellCompRequestCmd}, append(words, "--"+flag.Name+"=")...))
			values := strings.Split(strings.TrimSpace(out.String()), "\n")
			values = values[:len(values)-1] // the last line is the directive
			if len(values) < 2 {
				t.Errorf("%s --%s completes %q, want the values of the flag", cmd.CommandPath(), flag.Name, values)
			}
			for _, value := range values {
				if err := flag.Value.Set(value); err != nil {
					t.Errorf("%s --%s completes %q, which it refuses: %v", cmd.CommandPath(), flag.Name, value, err)
				}
			}
			found[flag.Name] = true
		})
	})
	for _, name := range []string{"ci", "state", "engine", "isolation", "output", "on-timeout", "auto-pause-mode", "mode", "level", "signal", "internet", "progress", "language", "network"} {
		if !found[name] {
			t.Errorf("--%s has a fixed set of values, and was not tried", name)
		}
	}
}
