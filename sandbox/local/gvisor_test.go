//go:build linux

package local_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker/dockertest"
	"github.com/e2bctl/e2bctl/internal/cloud/gvisorenv/gvisortest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
	"github.com/e2bctl/e2bctl/sandbox/template"
)

// gvisorOptions are those of a cloud of gVisor.
func gvisorOptions(t *testing.T) []local.Option {
	t.Helper()
	gvisortest.Need(t)
	return []local.Option{local.WithEngine(local.EngineGVisor), local.WithBinary(dockertest.Program(t))}
}

// TestGVisor checks that programs of a sandbox run in gVisor, with the users, the files, the
// Python and the ports of any sandbox.
func TestGVisor(t *testing.T) {
	t.Parallel()
	sb := sandboxtest.New(t, gvisorOptions(t)...).Create(t, sandbox.WithEnvs(map[string]string{"GREETING": "hello"}))
	for command, want := range map[string]string{
		"cat /proc/gvisor/kernel_is_gvisor":                                             "gvisor",
		"id -un; sudo -n id -un; pwd; echo $GREETING":                                   "user\nroot\n/home/user\nhello",
		"hostname; grep -c $(hostname) /etc/hosts":                                      sb.ID() + "\n1",
		"touch /usr/bin/mine /opt/mine || sudo touch /usr/bin/mine && ls /usr/bin/mine": "/usr/bin/mine",
		"ls -d /gvisor /program /upper /proc/1/root/gvisor 2>/dev/null":                 "",
		"stat -c %U /usr/bin/env /home/user":                                            "root\nuser",
	} {
		if got := output(t, sb, "user", command); got != want {
			t.Errorf("%s: got %q, want %q", command, got, want)
		}
	}
	must.Do(t, sb.Files.Write(t.Context(), "/home/user/in.txt", []byte("six"), nil))
	if got := sandboxtest.RunCode(t, sb, "x = open('in.txt').read()\nopen('/tmp/out.txt', 'w').write(x * 2)\nx", nil).Text(); got != "six" {
		t.Errorf("got %q, want what was written", got)
	}
	if got, err := sb.Files.Read(t.Context(), "/tmp/out.txt", nil); err != nil || string(got) != "sixsix" {
		t.Errorf("got %q, %v, want what code wrote", got, err)
	}
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	must.Do(t, sb.Files.Write(t.Context(), "big", big, nil))
	if got, err := sb.Files.Read(t.Context(), "big", nil); err != nil || !bytes.Equal(got, big) {
		t.Errorf("got %d bytes, %v, want those that were written", len(got), err)
	}
	server, err := sb.Commands.Start(t.Context(), "exec python3 -u -m http.server 3000 --bind 127.0.0.1", nil)
	must.Do(t, err)
	must.Do(t, sb.WaitPort(t.Context(), 3000))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, sb.URL(3000)+"/in.txt", nil)
	must.Do(t, err)
	answer, err := (&http.Client{Transport: sb.Transport(3000)}).Do(request)
	must.Do(t, err)
	defer answer.Body.Close()
	if body, err := io.ReadAll(answer.Body); err != nil || string(body) != "six" {
		t.Errorf("got %q, %v, want the file from the port", body, err)
	}
	if err := server.Kill(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestGVisorEgress checks that programs are under the rules of the sandbox, with the proxy and
// without it.
func TestGVisorEgress(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, gvisorOptions(t)...)
	sb := cloud.Create(t, sandbox.WithNetwork(sandbox.Network{DenyOut: []string{sandbox.AllTraffic}}))
	got := output(t, sb, "user", `python3 -c '
import urllib.request, urllib.error
try: urllib.request.urlopen("http://a.test/")
except urllib.error.HTTPError as e: print(e.code)'`)
	if got != "403" {
		t.Errorf("through the proxy: got %q, want 403", got)
	}
	if !slices.ContainsFunc(cloud.Requests(), func(r local.Request) bool { return r.Method == local.MethodEgress && r.Path == "a.test" }) {
		t.Error("the cloud knows of no denied connection")
	}
	if got := output(t, sb, "user", `python3 -c 'import socket; socket.create_connection(("192.0.2.9", 80), 5); print("connected")' 2>&1`); got == "connected" {
		t.Errorf("without the proxy: got %q, want that it is refused", got)
	}
}

// TestGVisorTemplate checks that one cloud has both kinds of sandboxes, that templates are built
// in gVisor, and that sandboxes and templates made from them stay there.
func TestGVisorTemplate(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, append(gvisorOptions(t), local.WithEngine(local.EngineRoom))...)
	client, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	defer client.Close()
	built, err := template.Build(t.Context(), client.Templates, "made", template.FromTemplate("base-gvisor").Run("cat /proc/gvisor/kernel_is_gvisor >/opt/made", &template.RunParams{User: "root"}), nil)
	must.Do(t, err)
	const inGVisor = "test -e /proc/gvisor/kernel_is_gvisor && echo yes || echo no; cat /opt/made 2>/dev/null"
	for name, want := range map[string]string{"base": "no", "base-gvisor": "yes", built.Name: "yes\ngvisor"} {
		if got := output(t, cloud.Create(t, sandbox.WithTemplate(name)), "user", inGVisor); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

// TestGVisorKernelUser checks that commands run as the last user of a template, and kernels as
// root.
func TestGVisorKernelUser(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, gvisorOptions(t)...)
	client, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	defer client.Close()
	built, err := template.Build(t.Context(), client.Templates, "made", template.FromTemplate("code-interpreter-v1").User("nobody"), nil)
	must.Do(t, err)
	sb := cloud.Create(t, sandbox.WithTemplate(built.Name))
	if got := sandboxtest.Run(t, sb, "id -u"); got != "65534" {
		t.Errorf("commands run as %q, want nobody", got)
	}
	ex, err := sb.RunCode(t.Context(), "import os; os.getuid()", nil)
	if err != nil || ex.Text() != "0" {
		t.Errorf("kernels run as %+v, %v, want root", ex, err)
	}
}

// TestGVisorDies checks that the end of gVisor ends its sandbox, with a reason, and no other.
func TestGVisorDies(t *testing.T) {
	t.Parallel()
	ends := make(chan string, 2) // of sandboxes, as the log has them
	logger := slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		if bytes.Contains(p, []byte("sandbox ended")) {
			ends <- string(p)
		}
		return len(p), nil
	}), nil))
	cloud := sandboxtest.New(t, append(gvisorOptions(t), local.WithLogger(logger))...)
	other := cloud.Create(t)
	before := sentries(t, os.Getpid())
	sb, err := sandbox.Create(t.Context(), cloud.Option())
	must.Do(t, err)
	defer func() { _ = sb.Close() }() // it has died
	name := sb.ID()
	for _, pid := range sentries(t, os.Getpid()) {
		if !slices.Contains(before, pid) && hostnameOf(pid) == name {
			must.Do(t, unix.Kill(pid, unix.SIGKILL))
		}
	}
	if got := <-ends; !strings.Contains(got, name) || !strings.Contains(got, "gVisor ended") {
		t.Errorf("got %q, want the end of %s because gVisor ended", got, name)
	}
	if _, err := sb.Commands.Run(t.Context(), "true", nil); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("got %v, want %v", err, sandbox.ErrGone)
	}
	if got := output(t, other, "user", "echo lives"); got != "lives" {
		t.Errorf("the other sandbox: got %q, want that it lives", got)
	}
}

// TestGVisorFaults has programs in place of runsc that are none, and one that is not there.
func TestGVisorFaults(t *testing.T) {
	t.Parallel()
	options := gvisorOptions(t)
	fake := filepath.Join(t.TempDir(), "fake")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", fake, "./testdata/runsc")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, want := range map[string]string{
		"dies":    "it broke",
		"babbles": "begin a tunnel",
		"hangs":   context.DeadlineExceeded.Error(),
		"none":    "no such file",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(filepath.Dir(fake), name)
			if name != "none" {
				must.Do(t, os.Link(fake, path))
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			if name != "hangs" {
				ctx, cancel = context.WithCancel(t.Context())
			}
			defer cancel()
			cloud, err := local.Start(ctx, append(slices.Clone(options), local.WithRunsc(path))...)
			if err == nil {
				err = cloud.Close()
				t.Fatalf("it started, and ended with %v", err)
			}
			if !strings.Contains(err.Error(), want) || name != "hangs" && !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want %q and the path", err, want)
			}
		})
	}
}

// TestGVisorKilledServer kills a server, and checks that nothing of gVisor runs on.
func TestGVisorKilledServer(t *testing.T) {
	t.Parallel()
	program := gvisorServer(t)
	server := exec.CommandContext(t.Context(), program, "local", "up", "-o", "json", "--port", "0", "--engine", "gvisor", "--state-dir", t.TempDir())
	server.Env = append(os.Environ(), "E2BCTL_LOCAL=")
	out, err := server.StdoutPipe()
	must.Do(t, err)
	var said bytes.Buffer
	server.Stderr = &said
	must.Do(t, server.Start())
	defer func() { _ = server.Wait() }() // it is killed
	defer func() { _ = server.Process.Kill() }()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatalf("%v: %s", err, &said)
	}
	all := descendants(t, server.Process.Pid)
	if len(all) == 0 {
		t.Fatal("the server has no processes")
	}
	var left []unix.PollFd
	for _, pid := range all {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil { // otherwise it has ended
			defer unix.Close(fd)
			left = append(left, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		}
	}
	must.Do(t, server.Process.Kill())
	for _, process := range left {
		for ended := false; !ended; { // for as long as the test may take
			n, err := unix.Poll([]unix.PollFd{process}, -1)
			if err != nil && !errors.Is(err, unix.EINTR) {
				t.Fatal(err)
			}
			ended = n == 1
		}
	}
}

// gvisorServer returns the program that serves.
func gvisorServer(t *testing.T) string {
	t.Helper()
	gvisortest.Need(t)
	return dockertest.Program(t)
}

// sentries returns the processes below one that are gVisor's kernels.
func sentries(t *testing.T, ancestor int) (pids []int) {
	t.Helper()
	for _, pid := range descendants(t, ancestor) {
		if line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline"); err == nil && bytes.HasPrefix(line, []byte("runsc-sandbox")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// hostnameOf returns the sandbox that a process is of.
func hostnameOf(pid int) string {
	environ, _ := exec.Command("nsenter", "--uts", "--target", strconv.Itoa(pid), "hostname").Output()
	return strings.TrimSpace(string(environ))
}

// descendants returns the processes below one.
func descendants(t *testing.T, ancestor int) (pids []int) {
	t.Helper()
	parents := map[int]int{}
	names, err := filepath.Glob("/proc/[0-9]*/stat")
	must.Do(t, err)
	for _, name := range names {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name))) // the kernel's own numbers
		parents[pid], _ = strconv.Atoi(strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))[1])
	}
	for pid := range parents {
		for above := parents[pid]; above != 0; above = parents[above] {
			if above == ancestor {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
