//go:build unix

package cmdutil

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

// TestMain lets this binary be the user's local cloud, which is another process. As e2bctl, which a test must not start,
// it would run all tests again.
func TestMain(m *testing.M) {
	if url := os.Getenv(backgroundVariable); url != "" && len(os.Args) > 1 && os.Args[1] == "local" {
		// It plays `local up`, which says where it is. Its arguments stand in for a note.
		record := localcloud.Record{URL: url, Key: "e2b_local", Domain: "local.test", Engine: "room", IsolationNote: strings.Join(os.Args[2:], " ")}
		if url == "none" {
			localcloud.TellFailure(os.Stdout, "no place")
		} else if err := json.NewEncoder(os.Stdout).Encode(record); err != nil {
			panic(err)
		}
		return
	}
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		panic("this is no e2bctl: " + strings.Join(os.Args, " "))
	}
	url := os.Getenv("CMDUTIL_TEST_CLOUD")
	if url == "" {
		m.Run()
		return
	}
	place, err := localcloud.Find()
	if err == nil {
		_, err = place.Claim()
	}
	if err == nil {
		err = place.Publish(localcloud.Record{URL: url, Key: "e2b_local", Domain: "local.test", Engine: "room"})
	}
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString("ready\n")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// backgroundVariable contains the address of the local cloud that this binary plays, or "none" if it does not start.
const backgroundVariable = "CMDUTIL_TEST_BACKGROUND"

// recorder is a service that keeps the requests it was sent, and has the sandboxes of one ID.
type recorder struct {
	url, id string
	refuses string // the message of each answer; "": it refuses nothing

	mu    sync.Mutex
	calls []string
	keys  []string
}

func newRecorder(t *testing.T, id string) *recorder {
	t.Helper()
	r := &recorder{id: id}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, _ := io.ReadAll(request.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, request.Method+" "+request.URL.Path+" "+string(body))
	r.keys = append(r.keys, request.Header.Get("X-API-Key"))
	switch {
	case r.refuses != "":
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"code":400,"message":%q}`, r.refuses)
	case strings.HasSuffix(request.URL.Path, "/features"):
		_, _ = io.WriteString(w, `{"mounts":true,"image":true,"resources":true,"idle":true,"requests":true}`)
	case request.Method == http.MethodPost || strings.HasSuffix(request.URL.Path, "/"+r.id):
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"sandboxID":%q,"templateID":"t","envdVersion":"0.6.13","state":"running"}`, r.id)
	default:
		http.NotFound(w, request)
	}
}

// last returns the last request that creates or removes something.
func (r *recorder) last() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, call := range slices.Backward(r.calls) {
		if !strings.Contains(call, "/features") {
			return call
		}
	}
	return ""
}

// fresh makes the environment that of a user without a service, a local cloud and a CI system.
func fresh(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_STATE_HOME", "TMPDIR"} {
		t.Setenv(name, dir)
	}
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "E2B") || strings.HasPrefix(name, "GITHUB_") || strings.HasPrefix(name, "CI") || strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
	t.Chdir(dir)
}

// startCloud starts the user's local cloud, with the address of a service.
func startCloud(t *testing.T, url string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "CMDUTIL_TEST_CLOUD="+url)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	must.Do(t, err)
	stdout, err := cmd.StdoutPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the local cloud says %q (%v), want ready", line, err)
	}
}

// TestOpener checks which service a command uses, and which flags it refuses with it.
func TestOpener(t *testing.T) {
	fresh(t)
	for _, tt := range []struct {
		args    string
		limits  string // flags of the resources
		isLocal bool
		err     string
		want    error // of the connection
	}{
		{"", "", false, "", api.ErrNoAPIKey},
		{"--local", "", true, "", localcloud.ErrNone},
		{"", "", true, "", localcloud.ErrNone},
		{"--local=false", "", false, "", api.ErrNoAPIKey},
		{"--api-url=http://localhost:1", "", true, "", api.ErrNoAPIKey},
		{"--domain=x.test", "", true, "", api.ErrNoAPIKey},
		{"--local --api-url=http://localhost:1", "", true, "--local and an address (--api-url, --domain) exclude each other", nil},
		{"--local --domain=x.test", "", true, "--local and an address", nil},
		{"", "--pids=20", false, "--pids is a limit of the local cloud and needs --local; on a service the template decides", nil},
		{"", "--isolation=none", false, "--isolation is the isolation level of the local cloud and needs --local", nil},
		{"", "--runsc=/r", false, "--runsc is the gVisor program of the local cloud", nil},
		{"", "--engine=wasm", false, "--engine says what runs the sandboxes of the local cloud and needs --local", nil},
		{"", "--memory=1g", false, "", api.ErrNoAPIKey},
		{"--local", "--pids=20", true, "", localcloud.ErrNone},
		{"--local --env-file=none", "", true, "", os.ErrNotExist},
	} {
		f := NewFactory(NewIOStreams(nil, io.Discard, io.Discard), nil)
		limits := &ResourceFlags{ofSandbox: true}
		cmd := parsed(t, func(cmd *cobra.Command) {
			f.AddFlags(cmd)
			AddLocalFlag(cmd, new(bool))
			limits.Add(cmd)
		}, strings.Fields(tt.args+" "+tt.limits)...)
		if tt.limits == "" {
			limits = nil
		}
		open, err := f.Opener(cmd, tt.isLocal, LocalRunning, limits)
		if (err == nil) != (tt.err == "") || err != nil && !strings.HasPrefix(err.Error(), tt.err) {
			t.Errorf("%s %s: got error %v, want %q", tt.args, tt.limits, err, tt.err)
		}
		if err != nil {
			if _, ok := errors.AsType[*UsageError](err); !ok {
				t.Errorf("%s %s: %v is not a mistake in the command line", tt.args, tt.limits, err)
			}
			continue
		}
		_, err = open(t.Context())
		must.Is(t, err, tt.want)
		if f.usesRunning != errors.Is(tt.want, localcloud.ErrNone) && !errors.Is(tt.want, os.ErrNotExist) {
			t.Errorf("%s: uses the local cloud: %v", tt.args, f.UsesRunningLocalCloud())
		}
		if limits != nil && limits.started {
			t.Errorf("%s: the command has started a cloud", tt.args)
		}
	}
	for value, want := range map[string]bool{"1": true, "true": true, "YES": true, "on": true, "0": false, "": false, "no": false} {
		if t.Setenv("E2BCTL_LOCAL", value); LocalByDefault() != want {
			t.Errorf("E2BCTL_LOCAL=%s: got %v", value, !want)
		}
	}
	f := NewFactory(NewIOStreams(nil, io.Discard, io.Discard), nil)
	if !f.LacksKey() || f.LocalCloudRuns() {
		t.Error("it has a key, or a local cloud")
	}
	t.Setenv("E2B_API_KEY", "e2b_00")
	if f.LacksKey() {
		t.Error("it has no key")
	}
}

// TestServicesOfSandboxes checks which service is asked for a sandbox, and that no connection is left open.
func TestServicesOfSandboxes(t *testing.T) {
	fresh(t)
	ours, theirs := newRecorder(t, "ilocal"), newRecorder(t, "iremote")
	startCloud(t, ours.url)
	for _, tt := range []struct {
		args, key string
		isLocal   bool
		id        string
		want      string // the service; "": an error
		asked     bool   // the local cloud was asked
	}{
		{"", "e2b_00", false, "ilocal", ours.url, true},
		{"", "e2b_00", false, "iremote", theirs.url, true},
		{"", "", false, "iremote", ours.url, true}, // without a key, it can only be local
		{"--local", "", true, "iremote", ours.url, false},
		{"--local=false", "e2b_00", false, "ilocal", theirs.url, false},
		{"--local=false", "", false, "ilocal", "", false},
		{"--api-url=" + theirs.url, "e2b_00", false, "ilocal", theirs.url, false},
	} {
		t.Setenv("E2B_API_KEY", tt.key)
		t.Setenv("E2B_API_URL", theirs.url)
		ours.calls = nil
		f := NewFactory(NewIOStreams(nil, io.Discard, io.Discard), nil)
		cmd := parsed(t, func(cmd *cobra.Command) {
			f.AddFlags(cmd)
			AddLocalFlag(cmd, new(bool))
		}, strings.Fields(tt.args)...)
		s, err := f.Services(cmd, tt.isLocal)
		must.Do(t, err)
		conn, err := s.Of(t.Context(), tt.id)
		if err == nil {
			again, secondErr := s.Of(t.Context(), tt.id)
			if again != conn || secondErr != nil {
				t.Errorf("%s, %s: the second time got another connection (%v)", tt.args, tt.id, secondErr)
			}
		}
		if (err == nil) != (tt.want != "") || err == nil && conn.API().BaseURL() != tt.want || (len(ours.calls) > 0) != tt.asked {
			t.Errorf("%s, %s: got error %v, want %s; asked %q", tt.args, tt.id, err, tt.want, ours.calls)
		}
		if f.UsesRunningLocalCloud() != (tt.want == ours.url) {
			t.Errorf("%s, %s: uses the local cloud: %v", tt.args, tt.id, f.UsesRunningLocalCloud())
		}
		if err == nil && f.IsElsewhere(conn) != (tt.want == theirs.url) {
			t.Errorf("%s, %s: the local cloud is elsewhere: %v", tt.args, tt.id, f.IsElsewhere(conn))
		}
		must.Do(t, s.Close())
		for what, one := range map[string]*Connection{"local": s.local, "remote": s.remote} {
			if one == nil {
				continue
			}
			if _, err := one.Create(t.Context()); !errors.Is(err, sandbox.ErrClosed) {
				t.Errorf("%s: the %s connection is open: %v", tt.args, what, err)
			}
		}
	}
	if !slices.Contains(ours.keys, "e2b_local") || slices.Contains(ours.keys, "e2b_00") {
		t.Errorf("the local cloud was asked with the keys %q", ours.keys)
	}
}

// TestOtherServiceIsClosed checks that the search for a sandbox leaves no connection to the service that has it not.
func TestOtherServiceIsClosed(t *testing.T) {
	fresh(t)
	ours, theirs := newRecorder(t, "ilocal"), newRecorder(t, "iremote")
	startCloud(t, ours.url)
	t.Setenv("E2B_API_KEY", "e2b_00")
	t.Setenv("E2B_API_URL", theirs.url)
	before := goleak.IgnoreCurrent()
	for id, url := range map[string]string{"ilocal": ours.url, "iremote": theirs.url} {
		f := NewFactory(NewIOStreams(nil, io.Discard, io.Discard), nil)
		open, err := f.SandboxOpener(parsed(t, func(cmd *cobra.Command) { AddLocalFlag(cmd, new(bool)) }), false, id)
		must.Do(t, err)
		conn, err := open(t.Context())
		must.Do(t, err)
		if conn.API().BaseURL() != url || len(ours.calls) == 0 {
			t.Errorf("%s: got the service %s after the calls %q, want %s", id, conn.API().BaseURL(), ours.calls, url)
		}
		must.Do(t, conn.Close())
		goleak.VerifyNone(t, before)
	}
}

// TestRunningCloud checks the calls that connect to the cloud of the user, and the limits that come too late for it.
func TestRunningCloud(t *testing.T) {
	fresh(t)
	ours, theirs := newRecorder(t, "ilocal"), newRecorder(t, "iremote")
	startCloud(t, ours.url)
	t.Setenv("E2B_API_KEY", "e2b_00")
	t.Setenv("E2B_API_URL", theirs.url)
	for args, want := range map[string]string{
		"": "", "--memory=1g": "", "--pids=20": "--pids is a limit of all sandboxes of a local cloud, set when it starts", "--isolation=full": "--isolation is the isolation level of all sandboxes",
		"--engine=room": "", "--engine=wasm": "--engine wasm is set when a local cloud starts, and this one has room; with the template base-wasm",
	} {
		for _, start := range []Where{LocalRunning, LocalStarting} {
			f := NewFactory(NewIOStreams(nil, io.Discard, io.Discard), nil)
			limits := &ResourceFlags{ofSandbox: true}
			cmd := parsed(t, limits.Add, strings.Fields(args)...)
			open, err := f.Opener(cmd, true, start, limits)
			must.Do(t, err)
			conn, err := open(t.Context())
			_, conflict := errors.AsType[*localcloud.ConflictError](err)
			if conflict != (want != "") || err != nil && !conflict {
				t.Errorf("%s: got error %v, want %q", args, err, want)
			}
			if conflict && (!strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), ours.url)) {
				t.Errorf("%s: got error %v, want %q", args, err, want)
			}
			if err == nil {
				must.Do(t, conn.Close())
			}
		}
	}
	f := NewFactory(NewIOStreams(nil, io.Discard, io.Discard), nil)
	if !f.LocalCloudRuns() {
		t.Error("the local cloud does not run")
	}
	gone := errors.New("gone")
	for _, url := range []string{ours.url, theirs.url} {
		var used *sandbox.Sandbox
		cmd := parsed(t, func(cmd *cobra.Command) { AddLocalFlag(cmd, new(bool)) })
		cmd.SetContext(t.Context())
		id := map[string]string{ours.url: "ilocal", theirs.url: "iremote"}[url]
		err := f.WithSandbox(cmd, false, id, func(_ context.Context, sb *sandbox.Sandbox) error { used = sb; return gone })
		if !errors.Is(err, gone) || used.ID() != id {
			t.Errorf("got error %v and sandbox %v", err, used)
		}
		if _, err := used.Info(t.Context()); !errors.Is(err, sandbox.ErrClosed) {
			t.Errorf("the handle is open: %v", err)
		}
		if err := f.WithSandbox(cmd, false, id, func(context.Context, *sandbox.Sandbox) error { return nil }); err != nil {
			t.Errorf("got error %v", err)
		}
	}
	if call := theirs.last(); !strings.HasPrefix(call, "POST /v2/sandboxes/iremote/connect ") {
		t.Errorf("the last call is %s, which ends the sandbox or is another", call)
	}
	var seen []string
	list := func(_ context.Context, conn *Connection) ([]string, error) {
		seen = append(seen, conn.API().BaseURL())
		return []string{conn.API().BaseURL()[len("http://"):]}, gone
	}
	for args, want := range map[string][]string{"": {ours.url, theirs.url}, "--local": {ours.url}, "--local=false": {theirs.url}, "--api-url=" + theirs.url: {theirs.url}, "--local --domain=x.test": nil} {
		seen = nil
		f := NewFactory(NewIOStreams(nil, io.Discard, io.Discard), nil)
		cmd := parsed(t, func(cmd *cobra.Command) {
			f.AddFlags(cmd)
			AddLocalFlag(cmd, new(bool))
		}, strings.Fields(args)...)
		if got := f.Complete(t.Context(), cmd, list); !cmp.Equal(seen, want) || len(got) != len(want) || !f.Quiet() {
			t.Errorf("%s: asked %q for %q, want %q", args, seen, got, want)
		}
	}
}

// TestStartedCloud checks with which settings a command starts the cloud of the user, what it tells then, and a start that fails.
func TestStartedCloud(t *testing.T) {
	fresh(t)
	s := newRecorder(t, "i1")
	for _, url := range []string{s.url, "none"} {
		t.Setenv(backgroundVariable, url)
		for _, quiet := range []bool{false, true} {
			var errs bytes.Buffer
			f := NewFactory(NewIOStreams(nil, io.Discard, &errs), nil)
			f.flags.quiet = quiet
			limits := &ResourceFlags{ofSandbox: true}
			cmd := parsed(t, limits.Add, "--engine=wasm", "--pids=20")
			open, err := f.Opener(cmd, true, LocalStarting, limits)
			must.Do(t, err)
			limits.started = url == "none" // it says the opposite afterwards
			conn, err := open(t.Context())
			want := "starting a local cloud in the background; it ends 10m0s after its last sandbox, or with e2bctl local down\n"
			if url == "none" {
				if err == nil || !strings.Contains(err.Error(), "no place") || limits.started {
					t.Errorf("got error %v, started: %v", err, limits.started)
				}
			} else {
				must.Do(t, err)
				if conn.API().BaseURL() != url || !limits.started || !f.UsesRunningLocalCloud() {
					t.Errorf("got the cloud %s, started: %v", conn.API().BaseURL(), limits.started)
				}
				must.Do(t, conn.Close())
				want += "isolation: up --output json --port 0 --log "
				if !quiet && !strings.HasSuffix(errs.String(), " --engine wasm --idle 10m0s --pids 20\n") {
					t.Errorf("got %q, which ends with other settings", &errs)
				}
			}
			if quiet && errs.Len() > 0 || !quiet && !strings.HasPrefix(errs.String(), want) {
				t.Errorf("quiet %v: got %q, want %q", quiet, &errs, want)
			}
		}
	}
}

// TestConnected checks that the connection of a command lasts as long as its work, and the options of its requests.
func TestConnected(t *testing.T) {
	fresh(t)
	s := newRecorder(t, "i1")
	t.Setenv("E2B_API_KEY", "e2b_00")
	gone := errors.New("gone")
	for _, fails := range []error{nil, gone} {
		var log bytes.Buffer
		f := NewFactory(NewIOStreams(nil, io.Discard, &log), nil)
		var used *Connection
		cmd := f.Connected(&cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true}, LocalRunning, func(ctx context.Context, conn *Connection, args []string) error {
			used = conn
			_, _ = conn.Info(ctx, args[0])
			return fails
		})
		f.AddFlags(cmd)
		cmd.SetArgs([]string{"--api-url", s.url, "-v", "i1"})
		if err := cmd.ExecuteContext(t.Context()); !errors.Is(err, fails) || err != nil && fails == nil {
			t.Errorf("got error %v, want %v", err, fails)
		}
		if _, err := used.Create(t.Context()); !errors.Is(err, sandbox.ErrClosed) {
			t.Errorf("the connection is open: %v", err)
		}
		if !strings.Contains(log.String(), "/sandboxes/i1") {
			t.Errorf("-v logs %q", &log)
		}
		cmd.SetArgs([]string{"--api-url", s.url, "--local", "i1"})
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "--local and an address") {
			t.Errorf("got error %v", err)
		}
	}
	for args, want := range map[string]int{"": 0, "--domain=x.test": 1, "--api-url=http://x": 1, "--no-env-file": 1, "--env-file=x": 1, "--annotate": 0, "--domain=x --api-url=y --no-env-file": 3} {
		f := NewFactory(NewIOStreams(nil, io.Discard, io.Discard), nil)
		plain := len(f.ClientOptions())
		parsed(t, f.AddFlags, strings.Fields(args)...)
		if got := len(f.ClientOptions()) - plain; got != want {
			t.Errorf("%s: got %d options more, want %d", args, got, want)
		}
	}
	for note, want := range map[string]string{"": "", "no\x1b groups": "isolation: no groups\n"} {
		for _, quiet := range []bool{true, false} {
			var errs bytes.Buffer
			f := NewFactory(NewIOStreams(nil, io.Discard, &errs), nil)
			f.flags.quiet = quiet
			if f.WarnOfIsolation(note); errs.String() != want && !quiet || quiet && errs.Len() > 0 {
				t.Errorf("%q, quiet %v: got %q", note, quiet, &errs)
			}
		}
	}
}
