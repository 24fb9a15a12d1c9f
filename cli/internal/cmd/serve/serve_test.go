package serve

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
)

// prepare makes the environment that of a new user with a file of one API key, and returns the directory of both.
func prepare(t *testing.T) (dir, keys string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CACHE_HOME", "TMPDIR"} {
		t.Setenv(name, dir)
	}
	keys = filepath.Join(dir, "keys")
	must.Do(t, os.WriteFile(keys, []byte("e2b_"+strings.Repeat("0", 40)+"\n"), 0o600))
	return dir, keys
}

// TestOptionsReachTheServer checks that a value which the server itself refuses comes to it, for flags of each kind. No server
// starts, because its address is not one of this machine.
func TestOptionsReachTheServer(t *testing.T) {
	dir, keys := prepare(t)
	none := filepath.Join(dir, "none")
	for _, test := range []struct {
		args []string
		want string // in the error
	}{
		{[]string{"--ephemeral", "--engine", "wasm", "--pyodide-dist", none}, "wasm: the Pyodide distribution in " + none},
		{[]string{"--ephemeral", "--engine", "wasm", "--pyodide-dist", none, "--domain", "a..b"}, `the domain "a..b"`},
	} {
		var out, errs bytes.Buffer
		err := cmdtest.Execute(t, cmdutil.NewIOStreams(strings.NewReader(""), &out, &errs), func(f *cmdutil.Factory) []*cobra.Command { return []*cobra.Command{NewCmdServe(f)} },
			append([]string{"serve", "--behind-proxy", "--keys-file", keys, "--address", "192.0.2.1:1"}, test.args...)...)
		if err == nil || !strings.Contains(err.Error(), test.want) || out.Len() > 0 {
			t.Errorf("%q: got %q and error %v, want %s", test.args, &out, err, test.want)
		}
	}
}
