package serve

import (
	"bytes"
	"log/slog"
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

// TestStateAndLog checks where a server keeps its state, and the least level that it logs.
func TestStateAndLog(t *testing.T) {
	dir, _ := prepare(t)
	here, err := os.Getwd()
	must.Do(t, err)
	for _, test := range []struct {
		args  []string
		state string
		level slog.Level
	}{
		{nil, filepath.Join(dir, "e2bctl", "serve"), slog.LevelInfo},
		{[]string{"--state-dir", "kept", "--quiet"}, filepath.Join(here, "kept"), slog.LevelWarn},
		{[]string{"--state-dir", filepath.Join(dir, "x"), "--verbose"}, filepath.Join(dir, "x"), slog.LevelDebug},
		{[]string{"--ephemeral"}, "", slog.LevelInfo},
	} {
		var errs bytes.Buffer
		f := cmdutil.NewFactory(cmdutil.NewIOStreams(nil, nil, &errs), nil)
		opts, root, cmd := &options{Factory: f}, &cobra.Command{}, &cobra.Command{}
		f.AddFlags(root)
		opts.addFlags(cmd)
		root.AddCommand(cmd)
		must.Do(t, cmd.ParseFlags(test.args))
		if state, note, err := opts.stateDir(); state != test.state || note != "" || err != nil {
			t.Errorf("%q: got the directory %s, note %q and error %v, want %s", test.args, state, note, err, test.state)
		}
		opts.logger().Log(t.Context(), test.level-1, "too low")
		opts.logger().Log(t.Context(), test.level, "high enough")
		if got := errs.String(); strings.Contains(got, "too low") || !strings.HasPrefix(got, "{") || !strings.Contains(got, "high enough") {
			t.Errorf("%q: logged %s, want a line of the level %v alone", test.args, got, test.level)
		}
	}
	if _, err := os.Stat(filepath.Join(here, "kept")); err == nil {
		t.Error("the state directory was made before the server")
	}
}
