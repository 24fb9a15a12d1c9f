package cli

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
)

// rootFor returns the root that a command line gets.
func rootFor(args ...string) *cobra.Command {
	return newCmdRoot(cmdutil.NewFactory(cmdutil.NewIOStreams(nil, io.Discard, io.Discard), describe), args)
}

func names(commands []*cobra.Command) []string {
	var names []string
	for _, cmd := range commands {
		names = append(names, cmd.Name())
	}
	return names
}

// A command line builds the command of its first word, under every name that it
// has.
func TestOnlyTheNamedCommandIsBuilt(t *testing.T) {
	t.Parallel()
	for _, command := range commands {
		for _, name := range command.names {
			built := rootFor(name, "--help").Commands()
			if diff := cmp.Diff(command.names[:1], names(built)); diff != "" {
				t.Errorf("for e2bctl %s (-want +built):\n%s", name, diff)
				continue
			}
			if diff := cmp.Diff(command.names[1:], append([]string{}, built[0].Aliases...)); diff != "" {
				t.Errorf("the aliases of e2bctl %s (-in commands +its own):\n%s", name, diff)
			}
		}
	}
}

// Help, completion and mistakes see every command.
func TestAllCommandsAreBuilt(t *testing.T) {
	t.Parallel()
	want := names(rootFor().Commands())
	for _, command := range commands {
		if !slices.Contains(want, command.names[0]) {
			t.Errorf("e2bctl has no %s", command.names[0])
		}
	}
	for _, args := range [][]string{
		{"--help"}, {"help", "run"}, {"--version"}, {"completion", "bash"}, {cobra.ShellCompRequestCmd, "ru"},
		{"exit-codes"}, {"vers"}, {"-v", "ls"}, {"--output", "ls", "ls"}, {""},
	} {
		if diff := cmp.Diff(want, names(rootFor(args...).Commands())); diff != "" {
			t.Errorf("for %q (-all +built):\n%s", args, diff)
		}
	}
}

// TestStartAllocations bounds the allocations of a command outside its own work:
// 110 now, and 490 if all commands are built.
func TestStartAllocations(t *testing.T) {
	const most = 200
	got := testing.AllocsPerRun(10, func() {
		if status := Run(t.Context(), nil, io.Discard, io.Discard, []string{"version"}); status != 0 {
			t.Errorf("status %d, want 0", status)
		}
	})
	if got > most {
		t.Errorf("e2bctl version allocates %v times, over %d", got, most)
	}
}

// TestInitAllocations bounds the allocations of packages before main, which happen
// at every start, also in the processes of a local sandbox. A regular expression
// takes 30 allocations and more.
func TestInitAllocations(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "e2bctl", "version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var trace strings.Builder
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, &trace)
	}
	const module = "github.com/e2bctl/e2bctl/"
	for _, bound := range []struct {
		under string
		most  int
	}{
		{module + "cli", 10},
		{module, 600}, // 592 now
	} {
		got, packages := 0, 0
		for line := range strings.Lines(trace.String()) {
			path, figures, ok := strings.Cut(strings.TrimPrefix(line, "init "), " @")
			if !ok || !strings.HasPrefix(path, bound.under) {
				continue
			}
			at, allocs := strings.Split(figures, ", "), 0
			if _, err := fmt.Sscanf(at[len(at)-1], "%d allocs", &allocs); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			got += allocs
			packages++
		}
		if got > bound.most {
			t.Errorf("the packages of %s allocate %d times before main, over %d:\n%s", bound.under, got, bound.most, &trace)
		}
		if bound.under == module && packages == 0 {
			t.Errorf("no package is in the trace:\n%s", &trace)
		}
	}
}
