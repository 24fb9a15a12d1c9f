//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/e2bctl/e2bctl/cli"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestMain makes the test binary both programs: e2bctl, which lacks the engine, and this one.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"e2bctl":            whileTested(func() { os.Exit(cli.Main()) }), //nolint:forbidigo // this is the main function of that process
		"e2bctl-kubernetes": whileTested(main),
	})
}

// testedEnv names the socket of a test. A program that has it ends when the test ends, or is killed.
const testedEnv = "E2BCTL_TEST_SOCKET"

// whileTested returns main, which ends with the test whose socket is in the environment. A cloud in the
// background has a session of its own, and nothing else would end it.
func whileTested(main func()) func() {
	return func() {
		if path := os.Getenv(testedEnv); path != "" {
			conn, err := (&net.Dialer{}).DialContext(context.Background(), "unix", path)
			if err != nil {
				fmt.Fprintln(os.Stderr, "the test has ended:", err)
				os.Exit(1) //nolint:forbidigo // this process is not the test program
			}
			go func() {
				_, _ = io.Copy(io.Discard, conn)
				os.Exit(1) //nolint:forbidigo // this process is not the test program
			}()
		}
		main()
	}
}

// endWith makes the programs that the user starts from now on end with the test.
func (u *user) endWith(t *testing.T) {
	t.Helper()
	path := filepath.Join(u.home, "test")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	must.Do(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	u.env = append(u.env, testedEnv+"="+path)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(t.Context(), func() { _ = conn.Close() })
			go func() {
				defer stop()
				_, _ = io.Copy(io.Discard, conn)
			}()
		}
	}()
}

// user is somebody who runs e2bctl, with a home of their own.
type user struct {
	env  []string
	home string // its current directory
}

func newUser(t *testing.T, env ...string) *user {
	t.Helper()
	home := t.TempDir()
	for _, dir := range []string{"state", "run"} {
		must.Do(t, os.Mkdir(filepath.Join(home, dir), 0o700))
	}
	return &user{home: home, env: append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "XDG_STATE_HOME=" + home + "/state", "XDG_RUNTIME_DIR=" + home + "/run", "KUBECONFIG=", "TMPDIR=" + home,
	}, env...)}
}

// run runs e2bctl, and returns its output on stdout and stderr, and its status.
func (u *user) run(ctx context.Context, t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, text bytes.Buffer
	cmd := exec.CommandContext(ctx, "e2bctl", args...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.Dir = u.env, &out, &text, u.home
	err := cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); !ended {
		must.Do(t, err)
	}
	return out.String(), text.String(), cmd.ProcessState.ExitCode()
}

// kubeconfig writes a kubeconfig with the API server at url, and returns its path.
func kubeconfig(t *testing.T, url string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	must.Do(t, os.WriteFile(path, fmt.Appendf(nil, `
current-context: office
contexts: [{name: office, context: {cluster: office, user: me, namespace: agents}}]
clusters: [{name: office, cluster: {server: %q}}]
users: [{name: me, user: {token: old}}]
`, url), 0o600))
	return path
}

// expired answers as an API server does when credentials have expired.
func expired(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusUnauthorized)
	fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}`)
}

// TestRefusals checks errors that need no cluster. e2bctl reports them through the program that it
// starts in its own place.
func TestRefusals(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(expired))
	t.Cleanup(server.Close)
	up := []string{"local", "up", "--engine", "kubernetes", "--ephemeral"}
	for _, test := range []struct {
		name string
		env  string
		args []string
		want string
	}{
		{"no cluster", "", append(up, "--program-image", "x"), "no cluster is configured: name a file with --kubeconfig or KUBECONFIG"},
		{"no program image", "", up, "--program-image"},
		{"pools without a secret", "", []string{"serve", "--engine", "kubernetes", "--behind-proxy", "--keys-file", "none", "--program-image", "x", "--pool", "base=1"}, "add --secret-file FILE"},
		{"no such file", "", append(up, "--program-image", "x", "--kubeconfig", "none"), "none: no such file"},
		{"no such context", "", append(up, "--program-image", "x", "--kubeconfig", kubeconfig(t, server.URL), "--context", "home"), `context "home" does not exist`},
		{"no API server", "", append(up, "--program-image", "x", "--kubeconfig", kubeconfig(t, "http://127.0.0.1:1")), "check the address in the kubeconfig"},
		{"expired credentials", "", append(up, "--program-image", "x", "--kubeconfig", kubeconfig(t, server.URL)), "which may have expired: log in to it again"},
		{"expired credentials, in the background", "", append(up, "--background", "--program-image", "x", "--kubeconfig", kubeconfig(t, server.URL)), "which may have expired: log in to it again"},
		{"another version", "E2BCTL_HANDED_OVER=v0.0.1", []string{"version"}, "has no engine kubernetes"},
		{"flags of another engine", "", []string{"local", "up", "--namespace", "agents"}, "--namespace is about sandboxes in pods: it needs --engine kubernetes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			stdout, stderr, status := newUser(t, test.env).run(t.Context(), t, test.args...)
			if status == 0 || !strings.Contains(stderr, test.want) || stdout != "" {
				t.Errorf("status %d, %q on stdout, and on stderr, where %q is missing:\n%s", status, stdout, test.want, stderr)
			}
			if strings.Contains(stderr, "klog") || strings.Count(stderr, "\n") > 3 {
				t.Errorf("it writes the log of the client to stderr:\n%s", stderr)
			}
		})
	}
}

// TestOtherVersion checks that this program takes the place only of an e2bctl of its own version.
func TestOtherVersion(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "e2bctl-kubernetes", "create", "--local", "--engine", "kubernetes")
	cmd.Env = append(newUser(t).env, "E2BCTL_HANDED_OVER=v0.0.1")
	text, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(text), "and e2bctl of version v0.0.1") {
		t.Errorf("got %v, %s", err, text)
	}
}

// check is a line of the doctor's report.
type check struct{ Name, Status, Detail, Hint string }

// doctor examines the cluster, and returns the checks by name.
func (u *user) doctor(ctx context.Context, t *testing.T, flags ...string) (checks map[string]check, status int) {
	t.Helper()
	stdout, stderr, status := u.run(ctx, t, append([]string{"doctor", "--local", "--engine", "kubernetes", "-o", "json"}, flags...)...)
	var list []check
	if err := json.Unmarshal([]byte(stdout), &list); err != nil {
		t.Fatalf("%v: %s%s", err, stdout, stderr)
	}
	checks = map[string]check{}
	for _, c := range list {
		checks[c.Name] = c
	}
	return checks, status
}

// bare answers as the API server of a cluster without agent-sandbox, whose user may do nothing.
func bare(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == "/version":
		fmt.Fprint(w, `{"major":"1","minor":"35+","gitVersion":"v1.35.1"}`)
	case r.URL.Path == "/api":
		fmt.Fprint(w, `{"kind":"APIVersions","versions":["v1"]}`)
	case r.URL.Path == "/apis":
		fmt.Fprint(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":false}}`)
	case strings.HasSuffix(r.URL.Path, "/runtimeclasses"):
		fmt.Fprint(w, `{"kind":"RuntimeClassList","apiVersion":"node.k8s.io/v1","items":[{"kind":"RuntimeClass","apiVersion":"node.k8s.io/v1","metadata":{"name":"kata"},"handler":"kata"}]}`)
	case strings.HasSuffix(r.URL.Path, "/sandboxwarmpools"):
		fmt.Fprint(w, `{"kind":"SandboxWarmPoolList","apiVersion":"extensions.agents.x-k8s.io/v1beta1","items":[
			{"kind":"SandboxWarmPool","apiVersion":"extensions.agents.x-k8s.io/v1beta1","metadata":{"name":"tools"},"spec":{"replicas":3},"status":{"readyReplicas":1}}]}`)
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"not found","reason":"NotFound","code":404}`)
	}
}

// older answers as the API server of a cluster with an older agent-sandbox, whose user may do all but watch
// events.
func older(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/apis":
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"agents.x-k8s.io",
			"versions":[{"groupVersion":"agents.x-k8s.io/v1alpha1","version":"v1alpha1"}],"preferredVersion":{"groupVersion":"agents.x-k8s.io/v1alpha1","version":"v1alpha1"}}]}`)
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		var review struct {
			Spec struct {
				ResourceAttributes struct{ Resource, Verb string }
			}
		}
		err := json.NewDecoder(r.Body).Decode(&review)
		of := review.Spec.ResourceAttributes
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":%t}}`, err == nil && (of.Resource != "events" || of.Verb != "watch"))
	default:
		bare(w, r)
	}
}

// TestDoctorOfOlder checks the report about a cluster with another version of agent-sandbox, and that the one
// right which a user lacks is named alone.
func TestDoctorOfOlder(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(older))
	t.Cleanup(server.Close)
	u, config := newUser(t), kubeconfig(t, server.URL)
	checks, status := u.doctor(t.Context(), t, "--kubeconfig", config)
	if got := checks["agent-sandbox"]; got.Status != "failed" || got.Detail != "the cluster has agents.x-k8s.io in v1alpha1, want v1beta1" || !strings.Contains(got.Hint, "install agent-sandbox 0.5") {
		t.Errorf("agent-sandbox: got %+v", got)
	}
	if got := checks["rights"]; status != 1 || got.Status != "failed" || got.Detail != "missing in agents: watch events" {
		t.Errorf("status %d, rights: got %+v", status, got)
	}
	stdout, stderr, status := u.run(t.Context(), t, "local", "up", "--engine", "kubernetes", "--ephemeral", "--program-image", "x", "--kubeconfig", config)
	if want := "no sandboxes.agents.x-k8s.io in the version v1beta1: install agent-sandbox 0.5"; status == 0 || !strings.Contains(stderr, want) {
		t.Errorf("local up: status %d, %q, and on stderr, where %q is missing: %s", status, stdout, want, stderr)
	}
}

// TestDoctor checks that each fault of a cluster has its remedy.
func TestDoctor(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(bare))
	t.Cleanup(server.Close)
	checks, status := newUser(t).doctor(t.Context(), t, "--kubeconfig", kubeconfig(t, server.URL), "--runtime-class", "gvisor")
	if status != 1 || checks["cluster"].Status != "ok" || !strings.Contains(checks["cluster"].Detail, "office at "+server.URL+", Kubernetes v1.35.1") {
		t.Errorf("status %d, %+v", status, checks)
	}
	for name, want := range map[string]check{
		"namespace":     {Detail: "agents does not exist", Hint: "kubectl create namespace agents"},
		"agent-sandbox": {Detail: "the cluster has no sandboxes.agents.x-k8s.io", Hint: "install agent-sandbox 0.5"},
		"rights":        {Detail: "get, create pods/portforward; list, watch events", Hint: "bind this user to a Role"},
		"runtime class": {Detail: "gvisor does not exist; the cluster has kata", Hint: "--runtime-class"},
	} {
		if got := checks[name]; got.Status != "failed" || !strings.Contains(got.Detail, want.Detail) || !strings.Contains(got.Hint, want.Hint) {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
	if got := checks["pools"]; got.Status == "failed" || got.Detail != "tools, 1 of 3 pods ready" || !strings.Contains(got.Hint, "kubectl -n agents get pods,events") {
		t.Errorf("pools: got %+v", got)
	}
}
