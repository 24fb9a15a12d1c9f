package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
)

// The three commands that make a sandbox have one set of flags. If one cannot have a flag, it
// names the replacement.
func TestFlagsOfNewSandboxes(t *testing.T) {
	t.Parallel()
	root := newCmdRoot(cmdutil.NewFactory(cmdutil.NewIOStreams(nil, io.Discard, io.Discard), describe), nil)
	kinds := map[string]string{}
	for _, name := range []string{"run", "code run", "create"} {
		cmd, _, err := root.Find(strings.Fields(name))
		must.Do(t, err)
		for flag, value := range map[string]string{
			"-u": "root", "--user": "root", "-w": "dir", "--workdir": "dir", "-m": "a=b", "-e": "A=b", "-t": "base",
			"--lifetime": "1h", "--timeout": "1m", "--package": "numpy", "--volume": "data:/data", "--mount": "/srv:/data",
			"--header": "api.test:Authorization=secret:NAME", "--upload": "a:b", "--download": "a:b",
			"--name-file": "id",
			"--cpu":       "1", "--cpus": "1", "--memory": "1g", "--disk": "1g", "--pids": "100",
		} {
			if name == "create" && strings.HasSuffix(flag, "load") { // there are no files to copy yet
				continue
			}
			err := cmd.ParseFlags([]string{flag, value})
			if err == nil {
				checkKind(t, kinds, cmd, flag)
			} else if err := flagError(cmd, err); !strings.Contains(err.Error(), "unknown") || !strings.Contains(err.Error(), ": e2bctl ") {
				t.Errorf("%s %s %s: got error %q, want it to work or to say what does", name, flag, value, err)
			}
		}
	}
	for _, flag := range []string{"--cpu", "--cpus"} {
		for _, name := range []string{"template build", "local up"} {
			if cmd, _, err := root.Find(strings.Fields(name)); err != nil || cmd.ParseFlags([]string{flag, "1"}) != nil {
				t.Errorf("%s has no %s (%v)", name, flag, err)
			}
		}
	}
}

// checkKind fails if a flag takes other values than the same flag of the commands before.
func checkKind(t *testing.T, kinds map[string]string, cmd *cobra.Command, name string) {
	t.Helper()
	flag := cmd.Flags().ShorthandLookup(strings.TrimLeft(name, "-")[:1])
	if strings.HasPrefix(name, "--") {
		flag = cmd.Flags().Lookup(name[2:])
	}
	kind := flag.Value.Type()
	if before := kinds[flag.Name]; before != "" && before != kind {
		t.Errorf("%s --%s takes %s, want %s as others do", cmd.CommandPath(), flag.Name, kind, before)
	}
	kinds[flag.Name] = kind
}
