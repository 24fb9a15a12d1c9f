//go:build unix

package cmdutil

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// TestNewSandboxes checks the request that the flags of a new sandbox make, and which of them need a new sandbox or an own cloud.
func TestNewSandboxes(t *testing.T) {
	fresh(t)
	s := newRecorder(t, "i1")
	t.Setenv("E2B_API_KEY", "e2b_00")
	dir := t.TempDir()
	for _, tt := range []struct{ args, has, lacks, changed, own string }{
		{"", `"templateID":"code-interpreter-v1"`, `metadata`, "", ""},
		{"-t base", `"templateID":"base"`, `volume`, "template", ""},
		{"--image python:3", `"image":"python:3"`, `metadata`, "image", ""},
		{"--lifetime 90", `"timeout":90`, `autoPause`, "lifetime", ""},
		{"--idle 60", `"idleTimeout":60`, `"timeout":90`, "idle", ""},
		{"--lifetime 90 --idle 60", `"timeout":90`, `metadata`, "idle", ""},
		{"-m a=b -m c=d", `"metadata":{"a":"b","c":"d"}`, `timeout":90`, "metadata", ""},
		{"--volume v:/data", `"volumeMounts":[{"name":"v","path":"/data"}]`, `metadata`, "volume", ""},
		{"--mount " + dir + ":/m:rw", dir, `metadata`, "mount", "mount"},
		{"--memory 1g", `1073741824`, `metadata`, "memory", "memory"},
		{"--no-internet", `"allow_internet_access":false`, `allowOut`, "no-internet", ""},
		{"--allow-out a.test --deny-out 0.0.0.0/0", `"allowOut":["a.test"],"denyOut":["0.0.0.0/0"]`, `internet_access`, "allow-out", ""},
		{"--header a.test:X=y", `"X":"y"`, `metadata`, "header", ""},
		{"--allow-request GET_a.test/x --deny-out 0.0.0.0/0", `"/x"`, `"X"`, "allow-request", ""},
		{"--engine wasm", `"templateID":"code-interpreter-v1"`, `metadata`, "engine", ""},
		{"--package numpy", `"templateID":"code-interpreter-v1"`, `numpy`, "", ""},
	} {
		var n NewSandboxFlags
		args := strings.Fields(tt.args)
		for i := range args {
			args[i] = strings.Replace(args[i], "GET_", "GET ", 1)
		}
		cmd := parsed(t, func(cmd *cobra.Command) { n.Add(cmd, "the lifetime") }, args...)
		if n.Changed() != tt.changed || n.NeedsOwnCloud() != tt.own || n.Idle() != cmd.Flags().Changed("idle") || len(n.Mounts()) != strings.Count(tt.args, "--mount") {
			t.Errorf("%s: changed %s, needs %s, idle %v, mounts %v", tt.args, n.Changed(), n.NeedsOwnCloud(), n.Idle(), n.Mounts())
		}
		asked := strings.Contains(tt.args, "internet") || strings.Contains(tt.args, "-out") || strings.Contains(tt.args, "header") || strings.Contains(tt.args, "request")
		if n.Network.Given() != asked {
			t.Errorf("%s: flags of the network are given: %v", tt.args, n.Network.Given())
		}
		conn := s.connection(t)
		sb, err := n.Create(t.Context(), conn)
		if err != nil {
			t.Errorf("%s: %v", tt.args, err)
			continue
		}
		if call := s.last(); !strings.HasPrefix(call, "POST ") || !strings.Contains(call, tt.has) || strings.Contains(call, tt.lacks) {
			t.Errorf("%s: sent %s, want %s and not %s", tt.args, call, tt.has, tt.lacks)
		}
		must.Do(t, sb.Detach())
	}
	// A lifetime that the command has by default ends no sandbox that is to live as long as it is used.
	for args, want := range map[string]bool{"": true, "--idle 60": false, "--lifetime 77 --idle 60": true} {
		n := NewSandboxFlags{Lifetime: 77e9}
		parsed(t, func(cmd *cobra.Command) { n.Add(cmd, "the lifetime") }, strings.Fields(args)...)
		sb, err := n.Create(t.Context(), s.connection(t))
		must.Do(t, err)
		must.Do(t, sb.Detach())
		if call := s.last(); strings.Contains(call, `"timeout":77`) != want {
			t.Errorf("%s: sent %s, with the default lifetime: %v", args, call, want)
		}
	}
	var n NewSandboxFlags
	parsed(t, func(cmd *cobra.Command) { n.AddNew(cmd, "the lifetime") }, "--new", "base")
	if n.Changed() != "new" || n.Template != "base" {
		t.Errorf("--new: changed %s, template %s", n.Changed(), n.Template)
	}
	var many NewSandboxFlags
	cmd := parsed(t, func(cmd *cobra.Command) { many.AddMany(cmd, "the lifetime") })
	for _, name := range []string{"name-file", "idle"} {
		if cmd.Flags().Lookup(name) != nil {
			t.Errorf("a command of many sandboxes has --%s", name)
		}
	}
	if n := (&NetworkFlags{DenyPrivate: true}); len(n.options()) != 1 || n.Given() || len((&NetworkFlags{}).options()) != 0 {
		t.Error("denied private networks are no option, or a flag")
	}
}

// connection returns a connection to the service.
func (r *recorder) connection(t *testing.T) *Connection {
	t.Helper()
	client, err := sandbox.NewClient(sandbox.WithAPIKey("e2b_00"), sandbox.WithAPIURL(r.url), sandbox.WithMaxRetries(0))
	must.Do(t, err)
	t.Cleanup(func() { client.Close() })
	return &Connection{Client: client}
}

// TestLabelsOfJobs checks the metadata of sandboxes of a CI job, the advice when they are refused, and files for the ID.
func TestLabelsOfJobs(t *testing.T) {
	fresh(t)
	t.Setenv("GITHUB_ACTIONS", "true")
	t.Setenv("GITHUB_REPOSITORY", "a/b")
	t.Setenv("GITHUB_RUN_ID", "7")
	s := newRecorder(t, "i1")
	for args, want := range map[string]struct {
		labels, hint bool
	}{"": {true, true}, "--no-ci-metadata": {}, "-m a=b": {true, true}, "-m a=b --no-ci-metadata": {}} {
		var n NewSandboxFlags
		parsed(t, func(cmd *cobra.Command) { n.Add(cmd, "the lifetime") }, strings.Fields(args)...)
		s.refuses = ""
		sb, err := n.Create(t.Context(), s.connection(t))
		must.Do(t, err)
		must.Do(t, sb.Detach())
		if call := s.last(); strings.Contains(call, "a/b") != want.labels || strings.Contains(call, `"a":"b"`) != strings.Contains(args, "a=b") {
			t.Errorf("%s: sent %s, labels %v", args, call, want.labels)
		}
		for message, about := range map[string]bool{"bad metadata": true, "bad template": false} {
			s.refuses = message
			_, err = n.Create(t.Context(), s.connection(t))
			hinted, ok := errors.AsType[HintedError](err)
			if !errors.Is(err, api.ErrInvalidArgument) || ok != (want.hint && about) || ok && !strings.Contains(hinted.Hint(), "--no-ci-metadata") {
				t.Errorf("%s, %s: got error %v with a hint %v", args, message, err, ok)
			}
		}
	}
	s.refuses = ""
	n := NewSandboxFlags{id: idFlags{file: "no/such"}}
	parsed(t, func(cmd *cobra.Command) { n.Add(cmd, "the lifetime") })
	n.id.file = "no/such"
	s.calls = nil
	if _, err := n.Create(t.Context(), s.connection(t)); !errors.Is(err, os.ErrNotExist) || len(s.calls) > 0 {
		t.Errorf("got error %v after %q, want no sandbox without its file", err, s.calls)
	}
	n.id.file = "id"
	sb, err := n.Create(t.Context(), s.connection(t), sandbox.WithMetadata(map[string]string{"further": "yes"}))
	must.Do(t, err)
	must.Do(t, sb.Detach())
	if text, err := os.ReadFile("id"); err != nil || string(text) != "i1\n" || !strings.Contains(s.last(), "further") {
		t.Errorf("the file has %q (%v), after %s", text, err, s.last())
	}
	var progress bytes.Buffer
	if must.Do(t, n.Install(t.Context(), nil, &progress)); progress.Len() > 0 {
		t.Errorf("without packages it prints %q", &progress)
	}
	n.packages = []string{"numpy", "six"}
	if err := n.Install(t.Context(), sb, &progress); !errors.Is(err, sandbox.ErrClosed) || progress.String() != "installing numpy, six\n" {
		t.Errorf("got error %v after %q", err, &progress)
	}
}

// TestSandboxWithoutItsFile checks that a sandbox whose ID cannot be written is killed, and that no temporary file is left
// after any failure.
func TestSandboxWithoutItsFile(t *testing.T) {
	fresh(t)
	s := newRecorder(t, "i1")
	inTheWay := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && inTheWay {
			_ = os.MkdirAll("id/x", 0o700)
		}
		s.ServeHTTP(w, r)
	}))
	defer server.Close()
	n := NewSandboxFlags{Network: NetworkFlags{DenyPrivate: true}}
	parsed(t, func(cmd *cobra.Command) { n.Add(cmd, "the lifetime") }, "--name-file=id")
	to := &recorder{url: server.URL}
	for _, refuses := range []string{"no", ""} {
		s.refuses, inTheWay = refuses, true
		sb, err := n.Create(t.Context(), to.connection(t))
		if killed := strings.HasPrefix(s.last(), "DELETE "); sb != nil || err == nil || killed != (refuses == "") {
			t.Errorf("refused %q: got %v and error %v, the last request is %s", refuses, sb, err, s.last())
		}
		if refuses == "" && !strings.HasPrefix(err.Error(), "the sandbox is killed: writing its ID to --name-file id: ") {
			t.Errorf("got error %v", err)
		}
		must.Do(t, os.RemoveAll("id"))
		if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
			t.Errorf("refused %q: left are %v (%v)", refuses, left, err)
		}
	}
	if !slices.ContainsFunc(s.calls, func(call string) bool { return strings.Contains(call, `"10.0.0.0/8"`) }) {
		t.Errorf("private networks are not denied: %q", s.calls)
	}
}

// TestEphemeralCloud checks that a local cloud that does not start leaves the error to the command.
func TestEphemeralCloud(t *testing.T) {
	fresh(t)
	f := NewFactory(NewIOStreams(nil, io.Discard, io.Discard), nil)
	limits := &ResourceFlags{ofSandbox: true}
	cmd := parsed(t, limits.Add, "--memory=1g", "--pids=20")
	open, err := f.Opener(cmd, true, LocalEphemeral, limits)
	must.Do(t, err)
	if !limits.started || limits.sandboxOptions() != nil {
		t.Error("its sandboxes have limits besides those of the cloud")
	}
	limits.isolation = "unknown"
	if _, err := open(t.Context()); err == nil || f.UsesRunningLocalCloud() {
		t.Errorf("got error %v", err)
	}
	if local.Isolation(limits.Isolation()) != "unknown" {
		t.Errorf("got the isolation %s", limits.Isolation())
	}
}
