//go:build linux

package e2e

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// A sandbox reaches allowed hosts through its proxy, also after a pause and in a fork, until the
// rules change. The proxy is found through the host's proxy, and its password is nowhere to be
// read.
func TestEgressProxy(t *testing.T) {
	const password = "open sesame"
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "origin of "+r.Host) }))
	defer origin.Close()
	asked := make(chan string, 100)
	lead := leadTo(t, origin.Listener.Addr().String())
	own := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		credentials := &http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
		if user, given, ok := credentials.BasicAuth(); !ok || user != "someone" || given != password {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		asked <- r.Host
		lead.ServeHTTP(w, r)
	}))
	defer own.Close()
	host := httptest.NewServer(leadTo(t, own.Listener.Addr().String())) // so connections past the sandbox's proxy arrive there, too
	defer host.Close()
	t.Setenv("HTTPS_PROXY", host.URL)
	state := t.TempDir()
	cloud := sandboxtest.New(t, local.WithWarm(0), local.WithStateDir(state))
	rules := sandbox.Network{
		DenyOut:     []string{"203.0.113.66"},
		EgressProxy: &sandbox.EgressProxy{Address: "http://198.51.100.1:8080", Username: "someone", Password: password},
	}
	sb := cloud.Create(t, sandbox.WithNetwork(rules))
	check := func(when string, sb *sandbox.Sandbox) {
		t.Helper()
		if got := sandboxtest.Run(t, sb, "curl -sS -m 20 http://203.0.113.5:8000/"); got != "origin of 203.0.113.5:8000" {
			t.Errorf("%s: got %q", when, got)
		}
		select {
		case got := <-asked:
			if got != "203.0.113.5:8000" {
				t.Errorf("%s: the proxy was asked for %q", when, got)
			}
		default:
			t.Errorf("%s: the proxy was not asked", when)
		}
		if got := sandboxtest.Run(t, sb, "curl -sS -m 20 http://203.0.113.66:8000/ 2>&1 || true"); strings.Contains(got, "origin") || len(asked) > 0 {
			t.Errorf("%s: what is denied: got %q", when, got)
		}
	}
	check("at first", sb)
	for _, mode := range []sandbox.PauseMode{sandbox.PauseFull, sandbox.PauseFilesystem} {
		must.Do(t, sb.Pause(t.Context(), &sandbox.PauseParams{Mode: mode}))
		if mode == sandbox.PauseFilesystem {
			checkRecorded(t, state, "198.51.100.1:8080", password)
		}
		must.Do(t, sb.Resume(t.Context(), nil))
		check("after a pause that keeps "+string(mode), sb)
	}
	forks, err := sb.Fork(t.Context(), nil)
	if err != nil || forks[0].Err != nil {
		t.Fatal(err, forks)
	}
	check("in a fork", forks[0].Sandbox)
	if err := forks[0].Sandbox.Close(); err != nil {
		t.Error(err)
	}
	must.Do(t, sb.SetNetwork(t.Context(), sandbox.Network{}))
	if got := sandboxtest.Run(t, sb, "curl -sS -m 20 http://203.0.113.5:8000/ 2>&1 || true"); strings.Contains(got, "origin") || len(asked) > 0 {
		t.Errorf("without the proxy: got %q", got)
	}
}

// checkRecorded checks that a state directory has one text and not another.
func checkRecorded(t *testing.T, state, has, hasNot string) {
	t.Helper()
	found := false
	err := filepath.WalkDir(state, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // it was just being removed
			return nil
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		found = found || bytes.Contains(text, []byte(has))
		if bytes.Contains(text, []byte(hasNot)) {
			t.Errorf("%s has %q", path, hasNot)
		}
		return err
	})
	if err != nil || !found {
		t.Errorf("%s: %v; it has %q: %v", state, err, has, found)
	}
}

// A paused sandbox keeps its proxy and its rules when another cloud takes over its state
// directory. No log of either cloud has the password; the sandbox's own log has the reason why
// the proxy fails.
func TestEgressProxyOfNextCloud(t *testing.T) {
	const password = "open sesame"
	sandboxtest.New(t, local.WithWarm(0)) // skips on a machine that cannot run one
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "origin of "+r.Host) }))
	defer origin.Close()
	lead := leadTo(t, origin.Listener.Addr().String())
	asked := make(chan string, 100)
	own := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		credentials := &http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
		if _, given, _ := credentials.BasicAuth(); given != password {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		asked <- r.Host
		lead.ServeHTTP(w, r)
	}))
	defer own.Close()
	host := httptest.NewServer(leadTo(t, own.Listener.Addr().String()))
	defer host.Close()
	t.Setenv("HTTPS_PROXY", host.URL)
	state := t.TempDir()
	var log bytes.Buffer
	cloud := func() *local.Cloud {
		c, err := local.Start(t.Context(), local.WithWarm(0), local.WithStateDir(state), local.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
		must.Do(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	first := cloud()
	sb, err := sandbox.Create(t.Context(), first.Option(), sandbox.WithNetwork(sandbox.Network{
		DenyOut:     []string{"203.0.113.66"},
		EgressProxy: &sandbox.EgressProxy{Address: "http://198.51.100.1:8080", Username: "someone", Password: password},
	}))
	must.Do(t, err)
	must.Do(t, sb.Pause(t.Context(), &sandbox.PauseParams{Mode: sandbox.PauseFilesystem}))
	must.Do(t, errors.Join(sb.Detach(), first.Close()))
	checkRecorded(t, state, "198.51.100.1:8080", password)
	next := cloud()
	again, err := sandbox.Connect(t.Context(), sb.ID(), next.Option())
	must.Do(t, err)
	if got := sandboxtest.Run(t, again, "curl -sS -m 20 http://203.0.113.5:8000/"); got != "origin of 203.0.113.5:8000" || len(asked) != 1 {
		t.Errorf("got %q, and the proxy was asked %d times", got, len(asked))
	}
	if got := sandboxtest.Run(t, again, "curl -sS -m 20 http://203.0.113.66:8000/ 2>&1 || true"); strings.Contains(got, "origin") || len(asked) != 1 {
		t.Errorf("what is denied: got %q", got)
	}
	err = again.SetNetwork(t.Context(), sandbox.Network{EgressProxy: &sandbox.EgressProxy{Address: "http://198.51.100.1:8080", Username: "someone", Password: "wrong"}})
	must.Do(t, err)
	if got := sandboxtest.Run(t, again, "curl -sS -m 20 http://203.0.113.5:8000/ 2>&1 || true"); strings.Contains(got, "origin") || len(asked) != 1 {
		t.Errorf("with a wrong password: got %q", got)
	}
	told := false
	for entry, err := range again.Logs(t.Context(), nil) {
		told = told || err == nil && strings.Contains(entry.Fields["error"], "407 Proxy Authentication Required")
	}
	if !told {
		t.Error("the log of the sandbox does not say why its proxy failed")
	}
	if err := errors.Join(again.Kill(t.Context()), again.Close(), next.Close()); err != nil {
		t.Error(err)
	}
	if strings.Contains(log.String(), password) {
		t.Errorf("the log has the password:\n%s", log.String())
	}
}
