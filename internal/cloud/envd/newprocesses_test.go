//go:build linux

package envd

import (
	"errors"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestStartThatFails makes each pipe of a process fail. No pipe stays open, and no memory is kept.
func TestStartThatFails(t *testing.T) { //nolint:paralleltest // it counts the open files of this process
	d := serve(t)
	config := &process.ProcessConfig{Cmd: "/bin/true"}
	l := &launch{config: config, user: d.server.users.fallback, dir: d.home, stdin: true, kept: newBudget()}
	before := descriptors(t)["pipe"]
	for n := 1; n <= 4; n++ { // the last one belongs to the start itself
		_, err := calltest.FailNth(t, unix.SYS_PIPE2, n, unix.EMFILE, func() error { _, _, err := l.start(); return err })
		if got := connect.CodeOf(startFailure(err)); !errors.Is(err, unix.EMFILE) || got != connect.CodeResourceExhausted {
			t.Errorf("pipe %d: got error %v and code %v", n, err, got)
		}
	}
	if _, _, err := (&launch{config: &process.ProcessConfig{Cmd: "/bin/true", Args: []string{"\x00"}}, user: l.user, dir: d.home, kept: l.kept}).start(); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a zero byte: got error %v, want %v", err, unix.EINVAL)
	}
	if after := descriptors(t)["pipe"]; after != before || len(l.kept.live) != 0 {
		t.Errorf("%d pipes are open, and %d outputs are live, want %d and none", after, len(l.kept.live), before)
	}
}

// TestProcessesThatEnd checks the end of commands that can and cannot be executed, and that their deadline has no
// effect afterwards. It runs before the tests that wait for the output of a wrong program.
func TestProcessesThatEnd(t *testing.T) { //nolint:paralleltest // see above
	d := serve(t)
	put(t, d.home+"/file", "")
	for _, tt := range []struct {
		cmd    string
		args   []string
		code   int32
		output string // a part of it
	}{
		{"/bin/sh", []string{"-c", "echo said; exit 3"}, 3, "said"},
		{"sh", []string{"-c", "echo said"}, 0, "said"},
		{"no-such-program", []string{"x"}, 127, "no-such-program"},
		{"/no/such/program", []string{"x"}, 127, "/no/such/program"},
		{"", nil, 127, "sh: the command is empty"},
		{d.home + "/file", nil, 126, d.home + "/file"},
	} {
		for _, limit := range []time.Duration{0, time.Hour} {
			b := newBudget()
			config := &process.ProcessConfig{Cmd: tt.cmd, Args: tt.args}
			l := &launch{config: config, user: d.server.users.fallback, dir: d.home, env: []string{"PATH=/usr/bin:/bin"}, kept: b}
			if limit > 0 {
				l.deadline = time.Now().Add(limit)
			}
			r, first, err := l.start()
			must.Do(t, err)
			r.wait()
			r.output.end()
			if got := first.drain(); r.end.GetExitCode() != tt.code || !r.end.GetExited() || !strings.Contains(got, tt.output) || (got == "") != (tt.output == "") {
				t.Errorf("%s %q: got %q and the end %v, want %q and the code %d", tt.cmd, tt.args, got, r.end, tt.output, tt.code)
			}
			if (r.deadline != nil) != (limit > 0) || r.deadline != nil && r.deadline.Stop() {
				t.Errorf("%s %q, with a limit of %v: its deadline %v is still to come", tt.cmd, tt.args, limit, r.deadline)
			}
			if r.hasExpired() || r.held {
				t.Errorf("%s %q, with a limit of %v: its deadline has passed: %v, it is held: %v", tt.cmd, tt.args, limit, r.hasExpired(), r.held)
			}
			r.output.unsubscribe(first)
			b.leave(r.output)
			r.linger()
			if used, left := b.used.Load(), b.left.Load(); used != 0 || left != 0 || len(b.live)+len(b.ended) > 0 {
				t.Errorf("%s %q: in the end %d and %d bytes are used, by %d outputs", tt.cmd, tt.args, used, left, len(b.live)+len(b.ended))
			}
		}
	}
}

// TestProcessesThatAreKilled checks the end of a process that is abandoned, or whose time is up. It runs before the tests
// that wait for such an end.
func TestProcessesThatAreKilled(t *testing.T) { //nolint:paralleltest // see above
	d := serve(t)
	for name, end := range map[string]func(*running){"abandoned": (*running).abandon, "expired": (*running).expire} {
		b := newBudget()
		l := &launch{config: shell("sleep 60").GetProcess(), user: d.server.users.fallback, dir: d.home, kept: b}
		r, first, err := l.start()
		must.Do(t, err)
		if end(r); !r.mu.TryLock() {
			t.Fatalf("%s: the lock of the process is kept", name)
		}
		signalled, impatient := r.signalled, r.output.impatient
		r.mu.Unlock()
		if abandoned := r.output.isAbandoned(); !signalled || abandoned != (name == "abandoned") || r.hasExpired() == abandoned {
			t.Errorf("%s: it is signalled: %v, abandoned: %v, and expired: %v", name, signalled, abandoned, r.hasExpired())
			must.Do(t, r.signal(unix.SIGKILL))
		}
		<-impatient
		r.wait()
		if r.end.GetStatus() != "signal: killed" || r.end.GetExited() || r.held || !r.reaped {
			t.Errorf("%s: got the end %v, held: %v", name, r.end, r.held)
		}
		r.output.unsubscribe(first)
		r.output.end()
		b.leave(r.output)
		r.linger()
	}
}
