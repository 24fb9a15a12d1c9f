//go:build linux

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/kubetest"
	"github.com/e2bctl/e2bctl/internal/interop"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// officialScript is a program of a user of the official SDK for Python.
const officialScript = `
from e2b_code_interpreter import Sandbox
with Sandbox.create(metadata={"team": "red"}) as sb:
    assert sb.run_code("x = 6 * 7; x").text == "42"
    sb.files.write("/tmp/notes/one", "some text")
    assert sb.commands.run("cat /tmp/notes/one").stdout == "some text"
    assert sb.sandbox_id in [s.sandbox_id for s in Sandbox.list().next_items()]
print("done")
`

// officialSDK runs a script with the official SDK for Python.
func officialSDK(t *testing.T, u *user) {
	t.Helper()
	python, packages := interop.NewestPython.FindPython(t)
	cmd := exec.CommandContext(patience.Context(t), python, "-c", officialScript)
	cmd.Env = append(u.env, "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1", "NO_PROXY=*")
	if text, err := cmd.CombinedOutput(); err != nil || string(text) != "done\n" {
		t.Errorf("the official SDK: %v, %s", err, text)
	}
}

// TestCluster works with a cluster as a user does: by e2bctl alone.
func TestCluster(t *testing.T) {
	kubetest.Need(t)
	c := kubetest.Start(t)
	c.AddImage(t, kubetest.Program)
	c.AddImage(t, kubetest.Python)
	u := newUser(t, "KUBECONFIG=config")
	u.endWith(t)
	must.Do(t, os.WriteFile(filepath.Join(u.home, "config"), c.Kubeconfig(), 0o600))
	images := []string{"--namespace", c.Namespace, "--program-image", kubetest.Program, "--image", kubetest.Python}

	checks, status := u.doctor(patience.Context(t), t, images...)
	if status != 0 || !strings.Contains(checks["kernel"].Detail, "first result") || !strings.Contains(checks["kernel"].Detail, "ended in") {
		t.Fatalf("status %d, %+v", status, checks)
	}
	t.Logf("%+v", checks)

	up := func(flags []string) {
		t.Helper()
		stdout, stderr, status := u.run(patience.Context(t), t, append([]string{"local", "up", "--engine", "kubernetes", "--background", "-o", "json"}, flags...)...)
		if status != 0 {
			t.Fatalf("local up: status %d: %s", status, stderr)
		}
		var record struct{ Env []string }
		must.Do(t, json.Unmarshal([]byte(stdout), &record))
		u.env = append(u.env, record.Env...)
	}
	up(images)

	say := func(want string, args ...string) string {
		t.Helper()
		stdout, stderr, status := u.run(patience.Context(t), t, args...)
		if status != 0 || !strings.Contains(stdout, want) {
			t.Fatalf("%q: status %d, %q, want %q; %s", args, status, stdout, want, stderr)
		}
		return strings.TrimSpace(stdout)
	}
	refuse := func(want string, args ...string) {
		t.Helper()
		stdout, stderr, status := u.run(patience.Context(t), t, args...)
		if status == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%q: status %d, %q, %q, want %q", args, status, stdout, stderr, want)
		}
	}
	id := say("", "create")
	say("", "exec", id, "--", "sh", "-c", "test -z \"$HTTP_PROXY$http_proxy\"")
	say("42", "code", "run", "--sandbox", id, "-c", "6 * 7")
	say(id, "ls")
	say("hello\n", "run", "--", "echo", "hello")
	say("denied", "run", "--no-internet", "--", "python3", "-c", `
import errno, socket
s = socket.socket()
try:
    s.connect(("192.0.2.1", 80))
except OSError as e:
    print("denied" if e.errno == errno.EACCES else e)`)

	refuse("not supported by the kubernetes engine: network rules", "create", "--deny-out", "192.0.2.0/24")
	refuse("not supported by the kubernetes engine: network rules", "network", "set", id, "--deny-out", "192.0.2.0/24")
	refuse("pods have one if the server was started with --home SIZE", "pause", id)
	refuse("pods have one if the server was started with --home SIZE", "create", "--on-timeout", "pause")
	refuse("not found", "create", "--template", "none")
	refuse("not supported by the kubernetes engine", "fork", id)
	refuse("not supported by the kubernetes engine", "snapshot", "create", id)
	dockerfile := filepath.Join(t.TempDir(), "Dockerfile")
	must.Do(t, os.WriteFile(dockerfile, []byte("FROM e2bctl.test/python:1\nRUN true\n"), 0o600))
	refuse("building templates: a pod stands on its image only", "template", "build", "tools", filepath.Dir(dockerfile))

	t.Run("official SDK", func(t *testing.T) { officialSDK(t, u) })

	say("", "kill", id)
	second := say("", "create")
	say("", "local", "down")
	for _, name := range []string{id, second} {
		c.AwaitGone(t, "/api/v1/namespaces/"+c.Namespace+"/pods/sandbox-"+name)
	}

	// With homes, sandboxes can be paused. They end with their server.
	homes := append(images, "--home", "16MiB", "--template", "tools="+kubetest.Python)
	checks, status = u.doctor(patience.Context(t), t, homes[:len(homes)-2]...)
	if status != 0 || !strings.Contains(checks["storage class"].Detail, "node") {
		t.Errorf("status %d, %+v", status, checks)
	}
	up(homes)
	say("tools", "template", "ls")
	refuse("autoResume", "create", "--on-timeout", "pause", "--auto-resume")
	id = say("", "create", "--template", "tools", "--on-timeout", "pause")
	say("", "exec", id, "--", "sh", "-c", "echo kept > ~/file")
	say("", "pause", id)
	say("paused", "info", id)
	say("", "resume", id)
	say("kept", "exec", id, "--", "cat", "/home/user/file")
	say("", "pause", id)
	say("", "local", "down")
	c.AwaitGone(t, "/api/v1/namespaces/"+c.Namespace+"/persistentvolumeclaims/home-sandbox-"+id)
}
