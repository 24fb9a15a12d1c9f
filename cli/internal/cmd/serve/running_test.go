//go:build linux

package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/clienttest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// serve runs a server until out has its address, and returns its log and its error.
func serve(ctx context.Context, out *cmdtest.Output, args ...string) (log string, err error) {
	ios := cmdutil.NewIOStreams(strings.NewReader(""), nil, nil)
	var errs bytes.Buffer
	ios.Out, ios.Err = out, &errs
	err = cmdtest.ExecuteContext(ctx, ios, func(f *cmdutil.Factory) []*cobra.Command { return []*cobra.Command{NewCmdServe(f)} }, append([]string{"serve", "--behind-proxy", "--address", "127.0.0.1:0", "--warm", "0"}, args...)...)
	return errs.String(), err
}

// TestServer checks the report of a server about itself, the options that it has, and that nothing of it is left at
// its end.
func TestServer(t *testing.T) {
	dir, keys := prepare(t)
	told := errors.New("told to")
	ctx, stopping := cmdutil.WithStopping(t.Context(), nil)
	ctx, cancel := context.WithCancelCause(ctx)
	var got view
	metrics := ""
	out := &cmdtest.Output{}
	out.Seen = func() {
		defer cancel(told)
		must.Do(t, json.Unmarshal([]byte(out.String()), &got))
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, got.MetricsURL, nil)
		must.Do(t, err)
		answer, err := clienttest.New(t).Do(r)
		must.Do(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		must.Do(t, err)
		metrics = string(text)
	}
	log, err := serve(ctx, out, "--keys-file", keys, "-o", "json", "--metrics-address", "127.0.0.1:0", "--domain", "serve.test", "--state-dir", filepath.Join(dir, "state"), "--public-code",
		"--max-sandboxes", "7", "--drain", "3s", "--memory", "64m", "--max-memory", "32m", "--cpus", "1.5", "--max-cpus", "0.5", "--disk", "48m")
	must.Do(t, err)
	want := view{URL: got.URL, Domain: "serve.test", MetricsURL: got.MetricsURL, Engine: "room", Isolation: "full", StateDir: filepath.Join(dir, "state")}
	if got != want || !strings.HasPrefix(got.URL, "http://127.0.0.1:") || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("got %s, want %+v", out.String(), want)
	}
	if !strings.Contains(metrics, "\ne2bctl_sandboxes_max 7\n") || !strings.Contains(metrics, "\ne2bctl_api_keys 1\n") {
		t.Errorf("got the metrics %s", metrics)
	}
	for _, line := range []string{
		`"limits":"0.5 CPUs, 32 MiB of memory and 48 MiB of disk"`, `"msg":"everybody who knows the id of a sandbox can run code in it, because of --public-code"`,
		`"level":"INFO","msg":"the server is ready","url":"` + got.URL + `","domain":"serve.test","metrics":"` + got.MetricsURL + `","engine":"room","isolation":"full","state":"` + want.StateDir + `"`,
		`"msg":"the server ends","reason":"told to","drain":"3s"`,
	} {
		if strings.Count(log, line) != 1 {
			t.Errorf("logged %s, want %s", log, line)
		}
	}
	if stopping.Allowed() != 3*time.Second || strings.Contains(log, `"level":"DEBUG"`) || strings.Contains(log, "cut off") {
		t.Errorf("it may take %v to end, and logged %s", stopping.Allowed(), log)
	}
	cmdtest.Refuses(t, got.URL)
	cmdtest.Refuses(t, got.MetricsURL)
}

// TestServerWithoutOutput checks that a server ends that cannot say where it is, and that it tells of a machine without Python.
func TestServerWithoutOutput(t *testing.T) {
	dir, keys := prepare(t)
	t.Setenv("PATH", dir)
	t.Setenv("E2BCTL_PYTHON", "")
	ctx, cancel := context.WithCancel(t.Context())
	out := &cmdtest.Output{Err: syscall.ENOSPC, Seen: cancel}
	log, err := serve(ctx, out, "--keys-file", keys, "--ephemeral", "-v")
	must.Is(t, err, syscall.ENOSPC)
	_, url, _ := strings.Cut(log, `"msg":"the server is ready","url":"`)
	url, rest, _ := strings.Cut(url, `"`)
	if !strings.Contains(rest, `"state":"none"`) || strings.Contains(log, "public-code") || !strings.Contains(log, `"msg":"the Python of sandboxes is incomplete","note":"`) {
		t.Errorf("logged %s", log)
	}
	cmdtest.Refuses(t, url)
}

// TestServersThatCannotBe checks that no server has another address, state directory or engine than those that are named,
// where it cannot have those.
func TestServersThatCannotBe(t *testing.T) {
	dir, keys := prepare(t)
	t.Setenv("PATH", dir) // a look for Python takes time
	for _, test := range []struct {
		args []string
		want string // in the error
	}{
		{[]string{"--ephemeral", "--address", "192.0.2.1:1"}, "192.0.2.1:1"},
		{[]string{"--state-dir", keys}, keys},
		{[]string{"--ephemeral", "--engine", "gvisor", "--runsc", filepath.Join(dir, "none")}, "gvisor: "},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		out := &cmdtest.Output{Seen: cancel}
		_, err := serve(ctx, out, append([]string{"--keys-file", keys}, test.args...)...)
		cancel()
		if err == nil || !strings.Contains(err.Error(), test.want) || out.String() != "" {
			t.Errorf("%q: got %q and error %v, want one about %s", test.args, out.String(), err, test.want)
		}
	}
}

// TestStateThatMayNotLast checks that a server tells where its state is if that is no directory of the user's own, and
// that it does not start without a state directory.
func TestStateThatMayNotLast(t *testing.T) {
	dir, keys := prepare(t)
	t.Setenv("PATH", dir) // a look for Python takes time
	start := func() (log string, err error) {
		return serve(t.Context(), &cmdtest.Output{}, "--keys-file", keys, "--pyodide-dist", filepath.Join(dir, "none"))
	}
	const note = `"level":"WARN","msg":"the state directory may not last","directory":"`
	if log, err := start(); err == nil || strings.Contains(log, note) {
		t.Errorf("logged %s, got error %v", log, err)
	}
	t.Setenv("XDG_STATE_HOME", keys) // a file
	if log, err := start(); err == nil || !strings.Contains(log, note+filepath.Join(dir, "e2bctl", "serve")+`","note":"`) {
		t.Errorf("logged %s, got error %v, want the directory", log, err)
	}
	for _, name := range []string{"XDG_RUNTIME_DIR", "TMPDIR"} {
		t.Setenv(name, keys)
	}
	if log, err := start(); err == nil || !strings.HasPrefix(err.Error(), "the state directory of the server: ") || log != "" {
		t.Errorf("logged %s, got error %v, want one about the state directory", log, err)
	}
}
