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
	if stopping.Allowed() != 3*time.Second || strings.Contains(log, `"level":"DEBUG"`) {
		t.Errorf("it may take %v to end, and logged %s", stopping.Allowed(), log)
	}
	cmdtest.Refuses(t, got.URL)
	cmdtest.Refuses(t, got.MetricsURL)
}

// TestServerWithoutOutput checks that a server ends that cannot say where it is.
func TestServerWithoutOutput(t *testing.T) {
	_, keys := prepare(t)
	ctx, cancel := context.WithCancel(t.Context())
	out := &cmdtest.Output{Err: syscall.ENOSPC, Seen: cancel}
	log, err := serve(ctx, out, "--keys-file", keys, "--ephemeral", "-v")
	must.Is(t, err, syscall.ENOSPC)
	_, url, _ := strings.Cut(log, `"msg":"the server is ready","url":"`)
	url, rest, _ := strings.Cut(url, `"`)
	if !strings.Contains(rest, `"state":"none"`) || strings.Contains(log, "public-code") {
		t.Errorf("logged %s", log)
	}
	cmdtest.Refuses(t, url)
}
