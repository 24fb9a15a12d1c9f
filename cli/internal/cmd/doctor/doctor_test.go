//go:build linux

package doctor

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// fresh makes the environment that of a new user.
func fresh(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "TMPDIR"} {
		t.Setenv(name, dir)
	}
	t.Setenv("GITHUB_ACTIONS", "")
	t.Setenv("E2B_API_KEY", "")
	t.Setenv("E2B_API_URL", "")
	t.Setenv("E2B_DOMAIN", "")
}

// TestCheckService checks what the report has about the key and its service.
func TestCheckService(t *testing.T) {
	fresh(t)
	status, asked := 0, ""
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked += r.Method + " " + r.URL.RequestURI() + " " + r.Header.Get("X-API-Key") + "\n"
		w.WriteHeader(status)
		if status == http.StatusOK {
			_, _ = w.Write([]byte("[]"))
		}
	}))
	var open atomic.Int64 // connections
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed, http.StateHijacked:
			open.Add(-1)
		}
	}
	server.Start()
	defer server.Close()
	for _, tt := range []struct {
		key    string
		status int
		want   []check // their details are the beginnings
	}{
		{"", 0, []check{{"key", checkWarning, "none: only the local cloud can be used", "set E2B_API_KEY to use a remote service"}}},
		{"\x01", 0, []check{{"key", checkFailed, "invalid API key", ""}}},
		{"e2b_00", 200, []check{{"key", checkOK, "from the environment", ""}, {"service", checkOK, server.URL + " (from the environment) answered in ", ""}}},
		{"e2b_00", 401, []check{{"key", checkFailed, "from the environment, refused by the service", "check that the key is one of " + server.URL}, {"service", checkOK, server.URL + " answers", ""}}},
		{"e2b_00", 403, []check{{"key", checkFailed, "from the environment, refused by the service", "check that the key is one of " + server.URL}, {"service", checkOK, server.URL + " answers", ""}}},
		{"e2b_00", 503, []check{{"key", checkOK, "from the environment", ""}, {"service", checkFailed, "", "check the address (" + server.URL + ") and the proxy variables"}}},
	} {
		status, asked = tt.status, ""
		t.Setenv("E2B_API_KEY", tt.key)
		t.Setenv("E2B_API_URL", server.URL)
		got := checkService(t.Context(), cmdutil.NewFactory(cmdutil.NewIOStreams(nil, nil, nil), nil))
		patience.Until(t, "the connections of the check are closed", func() bool { return open.Load() == 0 })
		for i, c := range got {
			if i < len(tt.want) && strings.HasPrefix(c.Detail, tt.want[i].Detail) && c.Detail != "" {
				got[i].Detail = tt.want[i].Detail
			}
		}
		requests := map[bool]string{true: "GET /v2/sandboxes?limit=1 e2b_00\n"}[tt.status > 0]
		if !slices.Equal(got, tt.want) || asked != requests {
			t.Errorf("%q, %d: got %+v after %s, want %+v", tt.key, tt.status, got, asked, tt.want)
		}
	}
}

// TestWrittenChecks checks the table of checks, and that remedies follow it.
func TestWrittenChecks(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	f := cmdutil.NewFactory(cmdutil.NewIOStreams(nil, &out, &errs), nil)
	must.Do(t, writeChecks(f, []check{{"key", checkOK, "from here", ""}, {"kernel", checkFailed, "no answer", "start\x1b it"}}))
	if got, want := out.String(), "CHECK    STATUS   DETAIL\nkey      ok       from here\nkernel   failed   no answer\n"; got != want || strings.Contains(errs.String(), "\x1b") || !strings.HasPrefix(errs.String(), "kernel: start") || strings.Contains(errs.String(), "key") {
		t.Errorf("got\n%s%s, want\n%s", got, &errs, want)
	}
	f = cmdutil.NewFactory(cmdutil.NewIOStreams(nil, &cmdtest.Output{Err: syscall.ENOSPC}, &errs), nil)
	must.Is(t, writeChecks(f, []check{{"key", checkOK, "from here", ""}}), syscall.ENOSPC)
	for ids, want := range map[int]string{1: "root and user are one id inside", 65536: "65536 user ids inside"} {
		if got := users(ids); got != want {
			t.Errorf("%d ids: got %s", ids, got)
		}
	}
	for egress, want := range map[string]string{"transparent": "every program reaches the network through the rules", "proxy only: no device": "proxy only: no device"} {
		if got := network(egress); got != want {
			t.Errorf("%s: got %s", egress, got)
		}
	}
}

// TestDoctor checks that the report has each check once, and that its status follows from them. The service refuses
// the key.
func TestDoctor(t *testing.T) {
	fresh(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer server.Close()
	t.Setenv("E2B_API_KEY", "e2b_00")
	var out, errs bytes.Buffer
	err := cmdtest.Execute(t, cmdutil.NewIOStreams(nil, &out, &errs), func(f *cmdutil.Factory) []*cobra.Command { return []*cobra.Command{NewCmdDoctor(f)} },
		"--api-url", server.URL, "doctor", "-o", "json")
	must.Is(t, err, errUnhealthy)
	var got []check
	must.Do(t, json.Unmarshal(out.Bytes(), &got))
	var names []string
	for _, c := range got {
		names = append(names, c.Name)
		if !slices.Contains([]string{checkOK, checkWarning, checkFailed, checkAbsent}, c.Status) || c.Detail == "" {
			t.Errorf("got the check %+v", c)
		}
		if limited := strings.HasSuffix(c.Name, " limit"); limited && !strings.Contains(c.Detail, "; ") {
			t.Errorf("got %+v, want the limit and what enforces it", c)
		}
	}
	want := []string{
		"key", "service", "python", "state", "isolation", "names", "network", "memory limit", "CPU limit", "process limit", "disk limit",
		"room engine", "docker engine", "wasm engine", "gvisor engine", "kernel",
	}
	if !slices.Equal(names, want) || got[0].Status != checkFailed || got[1].Status != checkOK {
		t.Errorf("got the checks %q, want %q", names, want)
	}
}
