//go:build linux

package local_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clienttest"
	"github.com/e2bctl/e2bctl/internal/cloud/control"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker/dockertest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// programs are the programs that this one can be, by the variable of the environment that contains their
// argument.
var programs = map[string]func(w io.Writer, argument string) error{
	refuseVariable: startRefused, pythonVariable: startWithPython, limitVariable: startLimited, crowdVariable: takeProcesses,
	boundVariable: useBounds, containerVariable: startContained, serveVariable: serveState,
}

func TestMain(m *testing.M) {
	for variable, start := range programs {
		if argument, set := os.LookupEnv(variable); set {
			if err := start(os.Stdout, argument); err != nil {
				log.Fatal(err)
			}
			return
		}
	}
	goleak.VerifyTestMain(dockertest.Ending{M: m})
}

// startsCold has a variable that keeps a kernel from being forked. A cloud that keeps no sandbox ready then
// loads no modules for kernels, which costs more than most tests.
var startsCold = map[string]string{"PYTHON_E2BCTL_TEST": "1"}

// TestSandbox covers everything: a sandbox, a command, files, code, and both kinds of routing.
func TestSandbox(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t)
	sb := cloud.Create(t, sandbox.WithEnvs(map[string]string{"GREETING": "hello", "E2B_SANDBOX_ID": "spoofed"}))
	if got := sandboxtest.Run(t, sb, `echo "$GREETING $USER $PWD $E2B_SANDBOX_ID"`); got != "hello user /home/user "+sb.ID() {
		t.Errorf("command: %q", got)
	}
	// This must hold also where user and root are one id.
	if got := sandboxtest.Run(t, sb, "whoami; stat -c '%U %G' /home/user"); got != "user\nuser user" {
		t.Errorf("names: %q", got)
	}
	want := bytes.Repeat([]byte{0, 255, 'x', '\n'}, 1<<18)
	must.Do(t, sb.Files.Write(t.Context(), "data.bin", want, nil))
	if got, err := sb.Files.Read(t.Context(), "/home/user/data.bin", nil); err != nil || !bytes.Equal(got, want) {
		t.Errorf("file: %d bytes, %v", len(got), err)
	}
	var stdout bytes.Buffer
	execution, err := sb.RunCode(t.Context(), "import os\nprint(os.environ['GREETING'])\nopen('data.bin', 'rb').read().count(b'x')", &sandbox.RunCodeParams{Stdout: &stdout})
	must.Do(t, err)
	if execution.Text() != fmt.Sprint(1<<18) || stdout.String() != "hello\n" {
		t.Errorf("code: %q, stdout %q", execution.Text(), stdout.String())
	}

	// A server inside, reached by its own host name.
	sandboxtest.Run(t, sb, `python3 -m http.server 3000 --bind 127.0.0.1 >/dev/null 2>&1 &`)
	must.Do(t, sb.WaitPort(t.Context(), 3000))
	if status := get(t, cloud, "3000-"+sb.ID()+".localhost", "/data.bin"); status != http.StatusOK {
		t.Errorf("port 3000: %d", status)
	}
	if status := get(t, cloud, "3001-"+sb.ID()+".localhost", "/"); status != http.StatusBadGateway {
		t.Errorf("port 3001: %d", status)
	}
}

func get(t *testing.T, cloud *sandboxtest.Cloud, host, path string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, cloud.URL()+path, nil)
	must.Do(t, err)
	r.Host = host
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(r)
	must.Do(t, err)
	_ = resp.Body.Close()
	return resp.StatusCode
}

// TestEgress checks that nothing of the machine's network is reachable, and that the
// answer says so.
func TestEgress(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Do(t, err)
	defer listener.Close()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	sb := cloud.Create(t)
	const ask = `import urllib.request, urllib.error, sys
opener = urllib.request.build_opener(urllib.request.ProxyHandler({'http': 'http://127.0.0.1:3128'}))
try:
    print(opener.open(sys.argv[1], timeout=20).status)
except urllib.error.HTTPError as e:
    print(e.code, e.read().decode())`
	must.Do(t, sb.Files.Write(t.Context(), "ask.py", []byte(ask), nil))
	for _, url := range []string{cloud.URL(), "http://" + listener.Addr().String(), "http://localhost:1", "http://169.254.169.254"} {
		got := sandboxtest.Run(t, sb, "env -u NO_PROXY -u no_proxy python3 ask.py "+url)
		if !strings.HasPrefix(got, "403 ") || !strings.Contains(got, strings.Split(strings.TrimPrefix(url, "http://"), ":")[0]) {
			t.Errorf("%s: %s", url, got)
		}
	}
	// Programs need not know of the proxy where all their traffic is redirected to it.
	direct := cloud.Report().Egress == "transparent" && os.Getenv("HTTPS_PROXY")+os.Getenv("https_proxy") == ""
	if got := sandboxtest.Run(t, sb, `echo $HTTPS_PROXY $http_proxy`); (got == "") != direct {
		t.Errorf("proxy variables %q", got)
	}

	offline := cloud.Create(t, sandbox.WithInternet(false))
	if got := sandboxtest.Run(t, offline, `echo $HTTPS_PROXY $http_proxy; curl -sS http://example.com`); !strings.HasPrefix(got, "http://127.0.0.1:3128 http://127.0.0.1:3128\nno connection to example.com") {
		t.Errorf("internet is off: %q", got)
	}
}

func TestLifetime(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	sb := cloud.Create(t, sandbox.WithExpiry(sandbox.Expiry{After: time.Minute}))
	cloud.Advance(59 * time.Second)
	sandboxtest.Run(t, sb, "true")
	cloud.Advance(time.Second)
	if _, err := sb.Commands.Run(t.Context(), "true", nil); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("after its time: %v", err)
	}
}

// TestLifetimeWithoutHandle sets the lifetime of a sandbox, and asks for the address of a port, by
// its id. Neither resumes it.
func TestLifetimeWithoutHandle(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	client, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	defer client.Close()
	sb := cloud.Create(t, sandbox.WithExpiry(sandbox.Expiry{After: time.Minute}))
	must.Do(t, client.SetLifetime(t.Context(), sb.ID(), time.Hour))
	cloud.Advance(59 * time.Minute)
	sandboxtest.Run(t, sb, "true")
	must.Do(t, client.Pause(t.Context(), sb.ID(), nil))
	info, err := client.Info(t.Context(), sb.ID())
	must.Do(t, err)
	if got, want := client.URL(info, 3000), sb.URL(3000); got != want {
		t.Errorf("the address of a port of a paused sandbox is %q, want %q", got, want)
	}
	gone, ok := errors.AsType[*sandbox.GoneError](client.SetLifetime(t.Context(), sb.ID(), time.Hour))
	if !ok || gone.State != sandbox.GonePaused {
		t.Errorf("set the lifetime of a paused sandbox: %v, want that it is paused", gone)
	}
	must.Do(t, client.Kill(t.Context(), sb.ID()))
	must.Is(t, client.SetLifetime(t.Context(), sb.ID(), time.Hour), sandbox.ErrGone)
}

// TestPublicTraffic checks that a secure sandbox, as every one is, has a token for its
// daemon only.
func TestPublicTraffic(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	sb := cloud.Create(t)
	for _, test := range []struct {
		port, path string
		want       int
	}{
		{"49999", "/contexts", http.StatusOK},
		{"49983", "/files?path=x", http.StatusUnauthorized},
	} {
		if status := get(t, cloud, test.port+"-"+sb.ID()+".localhost", test.path); status != test.want {
			t.Errorf("GET %s from port %s without a token: %d, want %d", test.path, test.port, status, test.want)
		}
	}
}

func TestPrivateTraffic(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	sb := cloud.Create(t, sandbox.WithPrivateTraffic(), sandbox.WithEnvs(startsCold))
	if execution, err := sb.RunCode(t.Context(), "6*7", nil); err != nil || execution.Text() != "42" {
		t.Errorf("with the token: %v", err)
	}
	if status := get(t, cloud, "49999-"+sb.ID()+".localhost", "/health"); status != http.StatusForbidden {
		t.Errorf("without the token: %d", status)
	}
}

func TestFault(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0))
	cloud.Inject(t, local.Fault{Operation: local.OpCreateSandbox, Status: 503, Message: "busy"})
	if _, err := sandbox.Create(t.Context(), cloud.Option()); !errors.Is(err, api.ErrUnavailable) {
		t.Errorf("want unavailable: %v", err)
	}
	sb := cloud.Create(t)
	cloud.Inject(t, local.Fault{Path: "/files", Status: 507, Message: "full"})
	if err := sb.Files.WriteText(t.Context(), "x", "x", nil); err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("a request into the sandbox: got %v, want the fault", err)
	}
	for want, wrong := range map[string]local.Fault{
		`there is no operation "MakeSandbox"`: {Operation: "MakeSandbox"},
		"syntax error in pattern":             {Path: "/sandboxes/["},
		"the status 99":                       {Status: 99},
		`the header "a b"`:                    {Status: 500, Header: http.Header{"a b": {"x"}}},
		`"x\r\nSet-Cookie: y" cannot be`:      {Status: 500, Header: http.Header{"A": {"x\r\nSet-Cookie: y"}}},
	} {
		if err := cloud.Cloud.Inject(wrong); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got error %v, want %q", wrong, err, want)
		}
	}
	cloud.Inject(t, local.Fault{Path: "/health", Status: 502, Header: http.Header{"content-type": {"text/html"}}})
	response, err := clienttest.New(t).Get(cloud.URL() + "/health")
	must.Do(t, err)
	defer response.Body.Close()
	if got := response.Header["Content-Type"]; len(got) != 1 || got[0] != "text/html" || response.StatusCode != 502 {
		t.Errorf("the answer has the status %d and the types %q, want those of the fault", response.StatusCode, got)
	}
	never := local.Fault{Operation: local.OpDeleteSecret, Times: -1}
	cloud.Inject(t, never)
	if diff := cmp.Diff([]local.Fault{never}, cloud.UnmetFaults()); diff != "" {
		t.Errorf("unmet (-want +got):\n%s", diff)
	}
	client, err := api.NewClient(api.WithAPIKey(cloud.APIKey()), api.WithBaseURL(cloud.URL()), api.WithMaxRetries(0))
	must.Do(t, err)
	for range 2 {
		if err := client.Secrets.Delete(t.Context(), "nosuch"); err == nil || errors.Is(err, api.ErrNotFound) {
			t.Errorf("got %v, want a connection that is cut each time", err)
		}
	}
	if left := cloud.UnmetFaults(); len(left) != 0 {
		t.Errorf("unmet are %+v, want none", left)
	}
}

// TestOperations checks that there is a constant for each operation, and no other.
func TestOperations(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "operations.go", nil, 0)
	must.Do(t, err)
	var constants []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		name, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil || spec.Names[0].Name != "Op"+name {
			t.Errorf("the constant %s has the value %q", spec.Names[0].Name, name)
		}
		constants = append(constants, name)
		return true
	})
	slices.Sort(constants)
	if diff := cmp.Diff(control.Operations(), constants); diff != "" {
		t.Errorf("(-of the cloud +constants):\n%s", diff)
	}
}

// TestTwoClouds checks that clouds share nothing, and that each has its own limits.
func TestTwoClouds(t *testing.T) {
	t.Parallel()
	one := sandboxtest.New(t, local.WithWarm(0), local.WithMaxSandboxes(1))
	two := sandboxtest.New(t, local.WithWarm(0))
	if one.APIKey() == two.APIKey() || one.URL() == two.URL() {
		t.Error("not two")
	}
	sb := one.Create(t)
	if _, err := sandbox.Create(t.Context(), one.Option()); !errors.Is(err, api.ErrRateLimited) {
		t.Errorf("second sandbox: %v", err)
	}
	if _, err := sandbox.Connect(t.Context(), sb.ID(), two.Option()); !errors.Is(err, sandbox.ErrGone) && !errors.Is(err, api.ErrNotFound) {
		t.Errorf("through the other cloud: %v", err)
	}
	if _, err := sandbox.Create(t.Context(), two.Option(), sandbox.WithAPIKey(one.APIKey())); !errors.Is(err, api.ErrUnauthorized) {
		t.Errorf("with the other key: %v", err)
	}
}

func TestWarmCount(t *testing.T) {
	t.Parallel()
	for _, count := range []int{-1, local.MaxWarm + 1} {
		cloud, err := local.Start(t.Context(), local.WithWarm(count))
		if err == nil || !strings.Contains(err.Error(), "WithWarm takes 0 to 64") {
			t.Errorf("%d: got %v, %v, want what is allowed", count, cloud, err)
		}
	}
	for _, count := range []int{0, 3} {
		sandboxtest.New(t, local.WithWarm(count)).Create(t)
	}
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t)
	client, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	defer client.Close()
	var work sync.WaitGroup
	for i := range 100 {
		work.Go(func() {
			sb, err := client.Create(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			defer sb.Close()
			result, err := sb.Commands.Run(t.Context(), fmt.Sprintf("echo %d; hostname", i), nil)
			if err != nil || !strings.HasPrefix(result.Stdout, fmt.Sprintln(i)) {
				t.Error(err)
			}
		})
	}
	work.Wait()
}

// TestEnv checks that the variables are enough for a program that knows nothing else.
func TestEnv(t *testing.T) {
	cloud := sandboxtest.New(t, local.WithWarm(0))
	cloud.Setenv(t)
	sb, err := sandbox.Create(t.Context())
	must.Do(t, err)
	defer sb.Close()
	if got := sandboxtest.Run(t, sb, "echo works"); got != "works" {
		t.Error(got)
	}
	if host, port, _ := net.SplitHostPort(strings.TrimPrefix(cloud.URL(), "http://")); host != "127.0.0.1" || sb.Host(3000) != "3000-"+sb.ID()+".localhost:"+port {
		t.Errorf("host %q", sb.Host(3000))
	}
}

// TestEnvOfTLS checks that the domain, the key and the bundle are enough for a program
// that knows neither URL, as later releases of the SDKs will.
func TestEnvOfTLS(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, local.WithWarm(0), local.WithDomain("e2b.localhost"))
	env := map[string]string{}
	for _, pair := range cloud.Env() {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	bundle, err := os.ReadFile(env["SSL_CERT_FILE"])
	must.Do(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	// This test does not depend on the resolver's answer to names below localhost.
	transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, strings.TrimPrefix(cloud.URL(), "http://"))
	}
	sb, err := sandbox.Create(t.Context(), sandbox.WithAPIKey(api.Key(env["E2B_API_KEY"])), sandbox.WithDomain(env["E2B_DOMAIN"]),
		sandbox.WithTransport(transport), sandbox.WithEnvFile(""), sandbox.WithEnvs(startsCold))
	must.Do(t, err)
	defer sb.Close()
	if got := sandboxtest.Run(t, sb, "echo works"); got != "works" {
		t.Errorf("a command: got %q, want %q", got, "works")
	}
	execution, err := sb.RunCode(t.Context(), "6 * 7", nil)
	if err != nil || execution.Text() != "42" {
		t.Errorf("code: got %q and error %v, want 42", execution.Text(), err)
	}
	if want := "3000-" + sb.ID() + "." + env["E2B_DOMAIN"]; sb.Host(3000) != want || !strings.Contains(want, ".e2b.localhost:") {
		t.Errorf("host: got %q, want %q", sb.Host(3000), want)
	}
}

func TestStart(t *testing.T) {
	t.Parallel()
	var none *local.Cloud
	if err := none.Close(); err != nil {
		t.Error(err)
	}
	if _, err := local.Start(t.Context(), local.WithAddress("0.0.0.0:0")); err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("not loopback: %v", err)
	}
	if _, err := local.Start(t.Context(), local.WithBinary("/nonexistent")); err == nil || !strings.Contains(err.Error(), "/nonexistent") {
		t.Errorf("no binary: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if c, err := local.Start(ctx); err == nil {
		_ = c.Close()
		t.Error("started with a cancelled context")
	}
	cloud := sandboxtest.New(t, local.WithWarm(0), local.WithAPIKey("e2b_00"))
	report := cloud.Report()
	if cloud.APIKey() != "e2b_00" || report.Isolation != cloud.Isolation() || report.Python == "" || report.UserIDs == 0 {
		t.Errorf("%+v", report)
	}
	if os.Getenv("CI") == "true" && cloud.Isolation() != local.Full {
		t.Errorf("isolation is %q", cloud.Isolation())
	}
	for range 2 {
		if err := cloud.Close(); err != nil {
			t.Error(err)
		}
	}
}
