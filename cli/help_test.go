package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestHelpIsPinned compares every help text with testdata/help, so that no flag
// changes unnoticed. UPDATE_SCRIPTS=1 rewrites the files.
func TestHelpIsPinned(t *testing.T) {
	t.Setenv("E2BCTL_LOCAL", "")
	t.Setenv("E2BCTL_ANNOTATE", "")
	ios := cmdutil.NewIOStreams(nil, &bytes.Buffer{}, &bytes.Buffer{})
	root := newCmdRoot(cmdutil.NewFactory(ios, describe), nil)
	seen := map[string]bool{}
	each(root, func(cmd *cobra.Command) {
		if cmd.Name() == "help" || cmd.Name() == "completion" || cmd.Hidden {
			return
		}
		words := strings.Fields(cmd.CommandPath())[1:]
		var out, errs bytes.Buffer
		if status := Run(t.Context(), nil, &out, &errs, append(words, "--help")); status != 0 {
			t.Errorf("%s --help: status %d, want 0", cmd.CommandPath(), status)
		}
		if errs.Len() > 0 {
			t.Errorf("%s --help writes %q to stderr, want nothing", cmd.CommandPath(), &errs)
		}
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".txt"
		seen[name] = true
		file := filepath.Join("testdata", "help", name)
		if os.Getenv("UPDATE_SCRIPTS") != "" {
			must.Do(t, os.WriteFile(file, out.Bytes(), 0o644))
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			return
		}
		if diff := cmp.Diff(string(want), out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	})
	entries, err := os.ReadDir(filepath.Join("testdata", "help"))
	must.Do(t, err)
	for _, entry := range entries {
		if !seen[entry.Name()] {
			t.Errorf("%s is the help of no command", entry.Name())
		}
	}
}

// TestCommandsAreDescribed checks the parts that every command's help must
// have.
func TestCommandsAreDescribed(t *testing.T) {
	t.Parallel()
	root := newCmdRoot(cmdutil.NewFactory(cmdutil.NewIOStreams(nil, &bytes.Buffer{}, &bytes.Buffer{}), describe), nil)
	each(root, func(cmd *cobra.Command) {
		if cmd.Short == "" {
			t.Errorf("%s has no short description", cmd.CommandPath())
		}
		if strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: short description %q, want it without a full stop", cmd.CommandPath(), cmd.Short)
		}
		for _, line := range strings.Split(cmd.Example, "\n") {
			if line != "" && !strings.HasPrefix(line, "  ") {
				t.Errorf("%s: example line %q is not indented", cmd.CommandPath(), line)
			}
		}
	})
}
