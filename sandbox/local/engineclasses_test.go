//go:build linux

package local_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker/dockertest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// classes are the kinds of harm that every engine must withstand, in the order of the table. Each
// returns why it cannot be tried in an engine; "" if it was tried.
var classes = []struct {
	name string
	try  func(*promised, *testing.T) (notApplicable string)
}{
	{"rules by name", (*promised).rulesByName},
	{"mounts", (*promised).mountsHold},
	{"memory", (*promised).memoryEnds},
	{"disk", (*promised).diskEnds},
	{"signals", (*promised).signalsToFirst},
	{"interrupts", (*promised).interruptsEnd},
	{"connections", (*promised).manyConnections},
	{"kill of its daemon", (*promised).daemonKilled},
}

// TestEngineClasses tries each class on each engine that this machine has. Its log has the table.
func TestEngineClasses(t *testing.T) { //nolint:paralleltest // it sets the proxy of the host
	t.Setenv("HTTPS_PROXY", echoingProxy(t))
	var mu sync.Mutex
	var table []string
	t.Cleanup(func() {
		slices.Sort(table)
		t.Log("engine × class:\n" + strings.Join(table, "\n"))
	})
	for _, engine := range engineCases() {
		t.Run(strings.Trim(engine.name, "`"), func(t *testing.T) {
			t.Parallel()
			w := tryOut(t, engine, local.WithProxyNames()) // no other resolver knows the names
			for _, class := range classes {
				t.Run(class.name, func(t *testing.T) {
					cell := "tried"
					if why := class.try(w, t); why != "" {
						cell = "n.a.: " + why
					}
					mu.Lock()
					defer mu.Unlock()
					table = append(table, engine.name+" | "+class.name+" | "+cell)
				})
			}
		})
	}
}

// echoingProxy returns the address of a proxy that leads to an echo, whatever the name.
func echoingProxy(t *testing.T) string {
	t.Helper()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n"); err == nil {
			_, _ = io.Copy(conn, conn) // until the other end has gone
		}
	}))
	t.Cleanup(proxy.Close)
	return proxy.URL
}

const (
	noCommands   = "code in WebAssembly has no processes and no sockets"
	noNamespaces = "without namespaces there is no process 1 of its own"
)

func (w *promised) isWasm() bool { return w.cloud.Report().Engine == local.EngineWasm }

// inPlace reports whether sandboxes have no namespaces.
func (w *promised) inPlace() bool {
	return w.cloud.Report().Engine == local.EngineRoom && w.cloud.Isolation() != local.Full
}

// says runs code and returns its output.
func says(t *testing.T, sb *sandbox.Sandbox, program string) string {
	t.Helper()
	e := sandboxtest.RunCode(t, sb, program, nil)
	if e.Error != nil {
		t.Errorf("%s: %+v", program, e.Error)
	}
	return strings.TrimSpace(e.Stdout)
}

// alive checks that a sandbox runs code.
func alive(t *testing.T, sb *sandbox.Sandbox) {
	t.Helper()
	if got := says(t, sb, "print('alive')"); got != "alive" {
		t.Errorf("%s: got %q, want that it lives", sb.ID(), got)
	}
}

// rulesByName asks the proxy for an allowed name, and then speaks to another one.
func (w *promised) rulesByName(t *testing.T) string {
	switch {
	case w.isWasm():
		return noCommands
	case w.inPlace():
		return "without namespaces there is no proxy in the sandbox"
	}
	sb := w.cloud.Create(t, sandbox.WithNetwork(sandbox.Network{AllowOut: []string{"allowed.test"}, DenyOut: []string{sandbox.AllTraffic}}))
	out := says(t, sb, `
import os, socket, ssl, urllib.parse
proxy = urllib.parse.urlsplit(os.environ["http_proxy"])
with socket.create_connection((proxy.hostname, proxy.port), 30) as s:
    s.sendall(b"CONNECT allowed.test:443 HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n")
    s.recv(1000)
    try: ssl.create_default_context().wrap_socket(s, server_hostname="another.test")
    except OSError as error: print(error)`)
	if !slices.ContainsFunc(w.cloud.Requests(), func(r local.Request) bool {
		return r.Method == local.MethodEgress && r.Sandbox == sb.ID() && r.Path == "another.test" && r.Status == http.StatusForbidden
	}) {
		t.Errorf("a connection to allowed.test was used for another.test, and the cloud knows nothing of it: %+v %s", w.cloud.Requests(), out)
	}
	return ""
}

// mountsHold writes to a directory that is shown for reading.
func (w *promised) mountsHold(t *testing.T) string {
	if missing := w.missing("mounts of host directories"); missing != "" {
		return missing
	}
	sb := w.cloud.Create(t, sandbox.WithMount(sandbox.Mount{Dir: w.shown, Path: "/shown"}))
	const write = "print(open('/shown/file').read())\ntry: open('/shown/new', 'w')\nexcept OSError: print('refused')"
	if got := says(t, sb, write); got != "of the host\nrefused" {
		t.Errorf("got %q, want what the host has and no way to write", got)
	}
	other, err := sandbox.Create(t.Context(), w.cloud.Option(), sandbox.WithMount(sandbox.Mount{Dir: t.TempDir(), Path: "/other"}))
	if err == nil {
		t.Errorf("a directory that is not allowed: got no error, %v", other.Close())
	}
	return ""
}

// memoryEnds has code take all memory that there is.
func (w *promised) memoryEnds(t *testing.T) string {
	if missing := w.missing("memory limit"); missing != "" {
		return missing
	}
	sb, err := sandbox.Create(t.Context(), w.small.Option())
	must.Do(t, err)
	defer func() { _ = sb.Close() }() // it may have died
	_, err = sb.RunCode(t.Context(), "all = []\nwhile True: all.append(b'x' * (1 << 24))", nil)
	failed, _ := errors.AsType[*sandbox.ExecutionError](err)
	if (failed == nil || failed.Name != "MemoryError") && (err == nil || !strings.Contains(err.Error(), "out of memory")) {
		t.Errorf("got %v, want that memory ran out", err)
	}
	return ""
}

// diskEnds has code write more than the disk has.
func (w *promised) diskEnds(t *testing.T) string {
	if missing := w.missing("disk limit"); missing != "" {
		return missing
	}
	sb := w.small.Create(t)
	const write = "try:\n    with open('big', 'wb') as f:\n        for _ in range(32): f.write(bytes(1 << 20))\nexcept OSError: print('full')"
	if got := says(t, sb, write); got != "full" {
		t.Errorf("got %q, want that the disk is full", got)
	}
	alive(t, sb)
	return ""
}

// signalsToFirst has root end and stop process 1.
func (w *promised) signalsToFirst(t *testing.T) string {
	switch {
	case w.isWasm():
		return noCommands
	case w.inPlace(): // process 1 is that of the machine
		return noNamespaces
	}
	sb := w.cloud.Create(t)
	output(t, sb, "root", "kill -9 1; kill -STOP 1; kill -TERM 1")
	alive(t, sb)
	return ""
}

// interruptsEnd cancels code that catches interrupts.
func (w *promised) interruptsEnd(t *testing.T) string {
	sb := w.cloud.Create(t)
	err := cutOff(t, sb, "while True:\n    try:\n        while True: pass\n    except BaseException: pass")
	if _, ok := errors.AsType[*sandbox.InterruptedError](err); !ok {
		t.Errorf("got %v, want that it was interrupted", err)
	}
	if _, err := sb.RunCode(t.Context(), "1", nil); err != nil && !errors.Is(err, sandbox.ErrKernelRestarted) {
		t.Errorf("the next call: got %v", err)
	}
	alive(t, sb)
	return ""
}

// manyConnections opens many connections to a port, which anybody can who knows the sandbox.
func (w *promised) manyConnections(t *testing.T) string {
	switch {
	case w.isWasm():
		return noCommands
	case w.cloud.Isolation() == local.Restricted:
		return "at the isolation level restricted there are no sockets"
	}
	sb := w.cloud.Create(t)
	listen(t, sb, "many.py", manyWebsockets)
	for i := range 250 {
		conn, _, err := sb.DialWebsocket(t.Context(), 3000, "/", nil)
		if err != nil {
			t.Errorf("connection %d: %v", i, err)
			break
		}
		defer conn.Close()
	}
	alive(t, sb)
	return ""
}

// daemonKilled kills the first process of a sandbox, and looks at another sandbox.
func (w *promised) daemonKilled(t *testing.T) string {
	other := w.cloud.Create(t)
	sb, err := sandbox.Create(t.Context(), w.cloud.Option())
	must.Do(t, err)
	defer func() { _ = sb.Close() }() // it has died
	switch {
	case w.cloud.Report().Engine == local.EngineDocker:
		d := dockertest.Shared(t)
		d.Docker(t, "kill", d.Docker(t, "ps", "--quiet", "--filter", "label=e2bctl.sandbox="+sb.ID()))
	case w.inPlace():
		kill(t, output(t, sb, "user", "echo $PPID"))
	case w.cloud.Report().Engine == local.EngineRoom:
		mark := "mark-" + sb.ID()
		output(t, sb, "user", "(exec -a "+mark+" sleep 1000) >/dev/null 2>&1 & until grep -q "+mark+" /proc/$!/cmdline; do sleep 0.01; done")
		kill(t, strconv.Itoa(daemonOf(t, mark)))
	default: // processes of the sandbox are none of this machine, or have no names
		kill(t, firstOf(t, sb.ID()))
	}
	_, err = sb.RunCode(t.Context(), "1", nil)
	if gone, ok := errors.AsType[*sandbox.GoneError](err); !ok || gone.Reason == "" {
		t.Errorf("got %v, want that it is gone, and why", err)
	}
	alive(t, other)
	return ""
}

// kill kills a process of this machine.
func kill(t *testing.T, number string) {
	t.Helper()
	pid, err := strconv.Atoi(number)
	if err == nil {
		err = unix.Kill(pid, unix.SIGKILL)
	}
	if err != nil {
		t.Fatalf("kill process %q: %v", number, err)
	}
}

// firstOf returns the number that process 1 of a room has on this machine.
func firstOf(t *testing.T, hostname string) string {
	t.Helper()
	for _, pid := range descendants(t, os.Getpid()) {
		status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
		if err != nil {
			continue // it has ended
		}
		_, ids, _ := strings.Cut(string(status), "\nNSpid:")
		ids, _, _ = strings.Cut(ids, "\n")
		if strings.HasSuffix(ids, "\t1") && hostnameOf(pid) == hostname {
			return strconv.Itoa(pid)
		}
	}
	t.Fatalf("no process is the first one of %s", hostname)
	return ""
}
