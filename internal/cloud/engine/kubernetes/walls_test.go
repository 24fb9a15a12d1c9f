//go:build linux

package kubernetes

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/kubetest"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// run runs a command as root with /bin/sh, and returns its output.
func run(t testing.TB, s engine.Sandbox, command string) string {
	t.Helper()
	out, err := output(patience.Context(t), s, command)
	must.Do(t, err)
	return out
}

// output does the same for goroutines of a test.
func output(ctx context.Context, s engine.Sandbox, command string) (string, error) {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Dial(ctx, protocol.PortEnvd) }}
	defer transport.CloseIdleConnections()
	client := processconnect.NewProcessClient(&http.Client{Transport: transport}, "http://envd")
	request := connect.NewRequest(&process.StartRequest{Process: &process.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", command}}})
	request.Header().Set("Authorization", "Basic cm9vdDo=") // root, without a password
	stream, err := client.Start(ctx, request)
	if err != nil {
		return "", err
	}
	defer stream.Close()
	var out strings.Builder
	for stream.Receive() {
		out.Write(stream.Msg().GetEvent().GetData().GetStdout())
		out.Write(stream.Msg().GetEvent().GetData().GetStderr())
	}
	return strings.TrimSpace(out.String()), stream.Err()
}

// dialling is a program that connects to an address, and writes "refused by the kernel" if a rule of
// its own network forbids it, and how it went otherwise.
const dialling = `python3 -c '
import errno, socket, sys
s = socket.socket(socket.AF_INET)
s.settimeout(2)
try:
    s.connect((sys.argv[1], int(sys.argv[2])))
    print("connected")
except OSError as e:
    print("denied" if e.errno == errno.EACCES else "failed")
' %s %s`

// TestWalls checks what programs in a pod can reach and see, as root of the sandbox.
func TestWalls(t *testing.T) {
	kubetest.Need(t)
	c := kubetest.Start(t)
	c.AddImage(t, kubetest.Program)
	c.AddImage(t, kubetest.Python)
	e := open(t, c, nil)
	const secret = "a-value-that-only-envd-knows"
	s, err := e.NewSandbox(patience.Context(t), engine.SandboxOptions{ID: "one", Config: guest.Config{SandboxID: "one", Envs: map[string]string{"ANSWER": secret}}})
	must.Do(t, err)
	start(t, e, "neighbour")
	neighbour, _ := e.watch.pod("sandbox-neighbour")

	for name, at := range map[string][2]string{
		"API server":            {"10.77.0.1", "6443"},
		"kubelet":               {"10.77.0.1", "10250"},
		"service of the API":    {"10.79.0.1", "443"},
		"metadata of the node":  {"169.254.169.254", "80"},
		"metadata of Azure":     {"168.63.129.16", "80"}, // not a private address
		"neighbour":             {neighbour.Status.PodIP, "49983"},
		"envd of the neighbour": {neighbour.Status.PodIP, "49980"},
	} {
		if got := run(t, s, fmt.Sprintf(dialling, at[0], at[1])); got != "denied" {
			t.Errorf("%s at %v: %s, want denied", name, at, got)
		}
	}
	// The cluster of the test leads nowhere, but nothing forbids it.
	if got := run(t, s, fmt.Sprintf(dialling, "203.0.113.1", "443")); got != "failed" {
		t.Errorf("the internet: %s, want failed", got)
	}
	// CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, NET_BIND_SERVICE and SYS_CHROOT: none
	// that changes the rules of the network.
	if got := run(t, s, "sed -n 's/^\\(CapBnd\\|NoNewPrivs\\|Seccomp\\):[^0-9]*//p' /proc/self/status"); got != "00000000000404fb\n1\n2" {
		t.Errorf("the capabilities, and whether privileges and system calls are bounded, are %q", got)
	}
	if got := run(t, s, `echo "$ANSWER$`+guest.PodUIDVariable+`"; ls /var/run/secrets 2>/dev/null; env | grep KUBERNETES`); got != secret {
		t.Errorf("the environment and the secrets are %q, want the variable alone", got)
	}
	checkNothingTold(t, e, secret)
	checkProtected(t, s)
}

// checkNothingTold checks that the cluster's API does not have the secret of a sandbox.
func checkNothingTold(t *testing.T, e *Engine, secret string) {
	t.Helper()
	for _, kind := range []string{"pods", "sandboxes"} {
		resource := pods
		if kind == "sandboxes" {
			resource = sandboxes
		}
		content, err := e.client.Resource(resource).Namespace(e.options.Namespace).Get(t.Context(), "sandbox-one", metav1.GetOptions{})
		must.Do(t, err)
		text, err := content.MarshalJSON()
		must.Do(t, err)
		if bytes.Contains(text, []byte(secret)) {
			t.Errorf("the object in %s has the variables of the sandbox", kind)
		}
	}
	content, err := e.client.Resource(pods).Namespace(e.options.Namespace).Get(t.Context(), "sandbox-one", metav1.GetOptions{}, "log")
	if err == nil && strings.Contains(fmt.Sprint(content.Object), secret) {
		t.Error("the log of the pod has the variables of the sandbox")
	}
}

// checkProtected checks that a program inside gets nothing from envd's port but a challenge, and
// that the server is still connected after that.
func checkProtected(t *testing.T, s engine.Sandbox) {
	t.Helper()
	got := run(t, s, `python3 -c '
import socket
s = socket.create_connection(("127.0.0.1", 49980))
n = len(s.recv(4096))
s.sendall(b"x" * 64)
print(n, len(s.recv(4096)))'`)
	if got != "32 0" {
		t.Errorf("envd sent %s bytes before and after a wrong proof, want 32 and 0", got)
	}
	must.Do(t, healthy(patience.Context(t), s))
}
