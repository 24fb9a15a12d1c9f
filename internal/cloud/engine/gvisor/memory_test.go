//go:build linux

package gvisor_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pinned"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// empty returns a new directory, in which to save.
func empty(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "saved")
	must.Do(t, os.Mkdir(dir, 0o700))
	return dir
}

// save saves the memory and the files of a sandbox, which runs on.
func save(t *testing.T, s engine.Sandbox, stop func(context.Context) error) (files, memory string) {
	t.Helper()
	files, memory = empty(t), empty(t)
	for _, err := range []error{
		stop(t.Context()), s.SaveMemory(t.Context(), memory), s.Save(t.Context(), files), s.Thaw(t.Context()),
	} {
		must.Do(t, err)
	}
	return files, memory
}

// restore starts a sandbox from saved files and memory.
func restore(t *testing.T, e engine.Engine, id, files, memory string) (engine.Sandbox, error) {
	t.Helper()
	config := guest.Config{SandboxID: id, TemplateID: "base", Path: room.SearchPath(), Envs: map[string]string{"WHO": id}}
	return e.NewSandbox(t.Context(), engine.SandboxOptions{ID: id, Config: config, Egress: &echo{}, Files: files, Memory: memory})
}

// counter starts a process that has a number in its memory, and a removed file and a socket
// open. count makes it one more, and returns it.
const (
	counter = `mkfifo /tmp/ask /tmp/answer && cat > /tmp/count.py <<'END'
import socket, tempfile
ours, theirs = socket.socketpair()
gone = tempfile.TemporaryFile()
gone.write(b"kept")
gone.flush()
n = 0
while True:
    with open("/tmp/ask") as ask: ask.read()
    n += 1
    ours.send(b"x")
    theirs.recv(1)
    gone.seek(0)
    with open("/tmp/answer", "w") as answer: print(n, gone.read().decode(), file=answer)
END
setsid python3 /tmp/count.py >/tmp/count.log 2>&1 &`
	count = `echo > /tmp/ask; cat /tmp/answer`
)

// TestMemory checks that processes continue where they were saved: in the sandbox itself, and in
// several others at once, which have ids of their own.
func TestMemory(t *testing.T) {
	t.Parallel()
	e := open(t)
	s, run := start(t, e, &echo{})
	run(counter)
	if got := run(count); got != "1 kept" {
		t.Fatalf("got %q, want 1 kept\n%s", got, run("cat /tmp/count.log"))
	}
	conn, err := s.Dial(t.Context(), protocol.PortEnvd)
	must.Do(t, err)
	defer conn.Close()
	files, memory := save(t, s, s.Hold)
	if _, err := io.WriteString(conn, "GET /health HTTP/1.0\r\n\r\n"); err != nil {
		t.Errorf("a connection of before: %v", err)
	}
	if answer, err := io.ReadAll(conn); err != nil || !strings.Contains(string(answer), " 204 ") {
		t.Errorf("a connection of before: got %q, %v, want 204", answer, err)
	}
	run("echo later > /tmp/later")
	if got := run(count); got != "2 kept" {
		t.Errorf("the sandbox itself: got %q, want 2 kept", got)
	}
	for _, id := range []string{"one", "two"} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			child, err := restore(t, e, id, files, memory)
			must.Do(t, err)
			run := shellOf(t, child)
			if got := run(count) + " " + run(count); got != "2 kept 3 kept" {
				t.Errorf("got %q, want 2 kept 3 kept", got)
			}
			const who = `hostname; cat /etc/hostname; echo $E2B_SANDBOX_ID $WHO; cat /run/e2b/.E2B_SANDBOX_ID; echo; ls /tmp/later 2>&1 | grep -c "No such"`
			if got, want := run(who), strings.Join([]string{id, id, id + " " + id, id, "1"}, "\n"); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			// What was restored can be saved, and restored, again.
			files, memory := save(t, child, child.Freeze)
			if got := run(count); got != "4 kept" {
				t.Errorf("after it was saved: got %q, want 4 kept", got)
			}
			again, err := restore(t, e, id+"-again", files, memory)
			must.Do(t, err)
			if got := shellOf(t, again)(count); got != "4 kept" {
				t.Errorf("its child: got %q, want 4 kept", got)
			}
		})
	}
}

// TestMemoryEgress checks that a restored sandbox reaches the network through the rules of its
// own, and that a connection of before is at its end.
func TestMemoryEgress(t *testing.T) {
	t.Parallel()
	e := open(t)
	if e.Report().Egress != engine.EgressTransparent {
		pinned.Skip(t, "this machine has no transparent egress: %s", e.Report().Egress)
	}
	s, run := start(t, e, &echo{})
	run(`mkfifo /tmp/go && cat > /tmp/connect.py <<'END'
import socket
s = socket.create_connection(("192.0.2.1", 4321))
s.recv(100)
open("/tmp/connected", "w").close()
with open("/tmp/go") as go: go.read()
try:
    s.settimeout(60)
    s.sendall(b"hello")
    got = repr(s.recv(100))
except OSError as err:
    got = type(err).__name__
with open("/tmp/told.new", "w") as f: f.write(got)
import os
os.rename("/tmp/told.new", "/tmp/told")
END
setsid python3 /tmp/connect.py >/tmp/log 2>&1 & until [ -e /tmp/connected ]; do sleep 0.05; done`)
	files, memory := save(t, s, s.Freeze)
	child, err := restore(t, e, "child", files, memory)
	must.Do(t, err)
	run = shellOf(t, child)
	got := run("echo > /tmp/go; until [ -e /tmp/told ]; do sleep 0.05; done; cat /tmp/told")
	if strings.Contains(got, "hello") {
		t.Errorf("the connection of before: got %s, want its end", got)
	}
	const again = `python3 -c '
import socket
s = socket.create_connection(("192.0.2.9", 4321), 60)
print(s.recv(100).decode())'`
	if got := run(again); got != "192.0.2.9:4321" {
		t.Errorf("a new connection: got %q, want 192.0.2.9:4321", got)
	}
}

// TestMemoryRefused checks that memory is not saved of a sandbox that runs, and not restored
// where it could not continue. The error then names the difference.
func TestMemoryRefused(t *testing.T) {
	t.Parallel()
	e := open(t)
	s, _ := start(t, e, nil)
	if err := s.SaveMemory(t.Context(), empty(t)); err == nil || !strings.Contains(err.Error(), "not frozen") {
		t.Errorf("of a sandbox that runs: got %v", err)
	}
	files, memory := save(t, s, s.Freeze)
	name := filepath.Join(memory, "machine.json")
	text, err := os.ReadFile(name)
	must.Do(t, err)
	for _, tt := range []struct{ field, value, want string }{
		{"Runsc", `"runsc of another year"`, "it was saved by runsc of another year"},
		{"Kernel", `"2.6.1"`, "on the kernel 2.6.1"},
		{"Features", `["avx9", "tea"]`, "this processor lacks avx9, tea"},
		{"Programs", `{"e2bctl": "x", "/bin/other": "y"}`, "/bin/other is another one now; e2bctl is another one now"},
	} {
		var fields map[string]json.RawMessage
		must.Do(t, json.Unmarshal(text, &fields))
		fields[tt.field] = json.RawMessage(tt.value)
		changed, err := json.Marshal(fields)
		if err == nil {
			err = os.WriteFile(name, changed, 0o600)
		}
		must.Do(t, err)
		if _, err := restore(t, e, "child", files, memory); !errors.Is(err, engine.ErrOtherMachine) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.field, err, tt.want)
		}
	}
	must.Do(t, os.WriteFile(name, text, 0o600))
	image := filepath.Join(memory, "checkpoint.img")
	must.Do(t, os.Truncate(image, 1000))
	if s, err := restore(t, e, "child", files, memory); err == nil {
		t.Error("a damaged image was restored")
		_ = s.Close()
	}
}

// TestMemoryCutOff checks that a sandbox continues if saving its memory is cancelled in the
// middle, and that nothing of that memory is left.
func TestMemoryCutOff(t *testing.T) {
	t.Parallel()
	e := open(t)
	s, run := start(t, e, nil)
	const size = 300 << 20
	run(`mkfifo /tmp/full; setsid python3 -c '
import os
x = os.urandom(` + strconv.Itoa(size) + `)
open("/tmp/full", "w").close()
import signal
signal.pause()' >/dev/null 2>&1 & cat /tmp/full`)
	for {
		dir := empty(t)
		must.Do(t, s.Freeze(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer cancel()
			for tick := time.NewTicker(time.Millisecond); ; <-tick.C {
				if written, err := filepath.Glob(filepath.Join(dir, "*.img")); err != nil || len(written) > 0 {
					return
				}
			}
		}()
		err := s.SaveMemory(ctx, dir)
		cancelled := ctx.Err() != nil
		cancel()
		must.Do(t, s.Thaw(t.Context()))
		if got := run("echo alive"); got != "alive" {
			t.Errorf("got %q, want alive", got)
		}
		if err == nil && cancelled {
			continue // it was faster
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want that it was cancelled", err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("got %v, %v, want an empty directory", left, err)
		}
		break
	}
	files, memory := save(t, s, s.Freeze)
	if child, err := restore(t, e, "child", files, memory); err != nil {
		t.Error(err)
	} else if got := shellOf(t, child)("echo alive"); got != "alive" {
		t.Errorf("got %q, want alive", got)
	}
}

// TestMemoryEnds checks that a sandbox can be closed while its memory is saved, and after that.
func TestMemoryEnds(t *testing.T) {
	t.Parallel()
	e := open(t)
	for _, during := range []bool{true, false} {
		config := guest.Config{SandboxID: "ends", TemplateID: "base", Path: room.SearchPath()}
		s, err := e.NewSandbox(t.Context(), engine.SandboxOptions{ID: "ends", Config: config})
		must.Do(t, err)
		must.Do(t, s.Freeze(t.Context()))
		saved := make(chan error, 1)
		go func() { saved <- s.SaveMemory(t.Context(), empty(t)) }()
		if !during {
			saved <- <-saved
		}
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := <-saved; err != nil && !errors.Is(err, engine.ErrGone) {
			t.Errorf("got %v, want that it is gone, or nothing", err)
		}
		if _, err := s.Dial(t.Context(), protocol.PortEnvd); err == nil {
			t.Error("it was closed, and there is a connection")
		} else if errors.Is(err, net.ErrClosed) {
			t.Errorf("got %v", err)
		}
	}
}

// TestFreezeRounds checks that no process crashes because it was stopped, however often: gVisor's
// did when a control group froze them.
func TestFreezeRounds(t *testing.T) {
	t.Parallel()
	s, run := start(t, open(t), nil)
	run(`cat > /tmp/busy.py <<'END'
import subprocess
n = 0
while True:
    n += 1
    code = subprocess.run(["/bin/sh", "-c", "echo; ls / | cat"], stdout=subprocess.DEVNULL).returncode
    with open("/tmp/codes", "a") as f: print(n, code, file=f)
END
setsid python3 /tmp/busy.py >/tmp/busy.log 2>&1 & until [ -e /tmp/codes ]; do sleep 0.05; done`)
	for range 8 {
		must.Do(t, s.Freeze(t.Context()))
		must.Do(t, s.Save(t.Context(), empty(t)))
		must.Do(t, s.Thaw(t.Context()))
		run(`a=$(wc -l < /tmp/codes); until [ $(wc -l < /tmp/codes) -gt $((a + 3)) ]; do sleep 0.02; done`)
	}
	if got := run(`grep -v " 0$" /tmp/codes; cat /tmp/busy.log`); got != "" {
		t.Errorf("got %s, want that all ended with 0", got)
	}
}
