//go:build linux

package room

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/orphan"
)

func TestRestricted(t *testing.T) {
	t.Parallel()
	r := newRoomOn(t, engine.Restricted)
	s := newSandbox(t, r, engine.SandboxOptions{})
	t.Logf("%+v", r.Report())
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("ESCAPED"), 0o644); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	victim := r.keeper.Cmd.Process.Pid
	tests := []struct{ name, command string }{
		{"host file", "cat " + secret},
		{"host directory", "touch " + filepath.Dir(secret) + "/new && echo ESCAPED"},
		{"host process", fmt.Sprintf("kill -0 %d && echo ESCAPED", victim)},
		{"host process's environment", fmt.Sprintf("cat /proc/%d/environ && echo ESCAPED; cat /proc/%d/environ && echo ESCAPED", os.Getpid(), victim)},
		{"host process's root", fmt.Sprintf("cat /proc/%d/root%s", os.Getpid(), secret)},
		{"envd's environment", "cat /proc/$PPID/environ && echo ESCAPED"},
		{"envd's executable", "echo x >> /proc/$PPID/exe && echo ESCAPED"},
		{"host loopback", fmt.Sprintf("bash -c 'exec 5<>/dev/tcp/127.0.0.1/%d' && echo ESCAPED", listener.Addr().(*net.TCPAddr).Port)},
		{"a socket", `python3 -c 'import socket; socket.socket(socket.AF_UNIX); print("ESCAPED")'`},
		{"core_pattern", "echo x > /proc/sys/kernel/core_pattern && echo ESCAPED"},
		{"nested user namespace", "unshare -U true && echo ESCAPED"},
		{"a mount", "mount -t tmpfs none $TMPDIR && echo ESCAPED"},
		{"other sandboxes", "ls " + r.roots + " && echo ESCAPED"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := sh(t, s, "("+tt.command+"); echo tried")
			if strings.Contains(got.Output, "ESCAPED") || !strings.HasSuffix(got.Output, "tried\n") {
				t.Errorf("%s\n%+v", tt.command, got)
			}
		})
	}
	if os.Geteuid() == 0 {
		if got := sh(t, s, "id -u"); got.Output == "0\n" {
			t.Error("it runs as the host's root")
		}
	}
}

// TestOwnProcess: a restricted sandbox may do to itself what it may not do to
// others.
func TestOwnProcess(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, newRoomOn(t, engine.Restricted), engine.SandboxOptions{})
	tests := []struct{ name, command, want string }{
		{"limits", "ulimit -n 64 && python3 -c 'import os, resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[1], resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE)[1])'", "64 64"},
		{"priority", "nice -n 3 python3 -c 'import os; print(os.getpriority(os.PRIO_PROCESS, 0), os.nice(2))'", "3 5"},
		{"processors", "python3 -c 'import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); print(len(os.sched_getaffinity(os.getpid())))'", "1"},
		{"scheduling", "python3 -c 'import os; os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)); print(os.sched_getscheduler(0) == os.SCHED_BATCH)'", "True"},
		{"pairs of sockets", `python3 -c 'import asyncio, socket; a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK); a.send(b"x"); print(b.recv(1), asyncio.run(asyncio.sleep(0, 7)))'`, "b'x' 7"},
		{"attributes", "cd $TMPDIR && touch -d 2001-01-01 a && chmod 640 a && cp -a a b && stat -c '%a %y' b | cut -c1-14 && python3 -c 'import shutil; print(shutil.copy2(\"b\", \"c\"))'", "640 2001-01-01\nc"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := sh(t, s, tt.command); got.Output != tt.want+"\n" {
				t.Errorf("%s\n%+v, want %s", tt.command, got, tt.want)
			}
		})
	}
}

// TestTerminals: a restricted sandbox gets terminals from the server, up to a
// limit, and those that it has closed no longer count.
func TestTerminals(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, newRoomOn(t, engine.Restricted), engine.SandboxOptions{})
	for range 2 {
		got := call(t, s, "/terminals", testRequest{})
		if got.Status != guest.MaxTerminals || got.Output != "through\r\n" || !strings.Contains(got.Error, "256 terminals are open") {
			t.Errorf("%+v", got)
		}
	}
}

// TestInPlace: what works, and what is left behind, without namespaces.
func TestInPlace(t *testing.T) {
	t.Parallel()
	for _, level := range []engine.Isolation{engine.Restricted, engine.None} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			r := newRoomOn(t, level)
			if got := r.Report().Isolation; got != level {
				t.Fatalf("the room is on %q", got)
			}
			s, other := newSandbox(t, r, engine.SandboxOptions{}), newSandbox(t, r, engine.SandboxOptions{ID: "other"})
			if got := sh(t, s, `cd && pwd && echo x > file && mkdir $TMPDIR/closed && touch $TMPDIR/closed/in && chmod 0 $TMPDIR/closed && python3 -c 'print(6*7)'`); !strings.HasSuffix(got.Output, "/home/user\n42\n") {
				t.Errorf("got %+v", got)
			}
			// The process leaves its session and its parent, and still ends with
			// the sandbox.
			if got := sh(t, s, "setsid sh -c 'while :; do sleep 1000; done' >/dev/null 2>&1 & echo $!"); got.Status != 0 {
				t.Errorf("%+v", got)
			}
			dir := s.root.Dir
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if exists(dir) {
				t.Errorf("%s is left", dir)
			}
			if pids, err := orphan.ChildrenOf(roomPID(t, r)); err != nil || len(pids) != 1 {
				t.Errorf("the room has the children %v, and one sandbox: %v", pids, err)
			}
			if got := sh(t, other, "echo alive"); got.Output != "alive\n" {
				t.Errorf("the other sandbox: %+v", got)
			}
		})
	}
}
