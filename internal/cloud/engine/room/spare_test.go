//go:build linux

package room

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// readySpare waits until the room has a spare.
func readySpare(t testing.TB, r *Room) {
	t.Helper()
	until(t, "a spare is ready", func() bool { return len(r.spares.ready) > 0 })
}

// openSandboxes returns how many sandboxes there are, including the spare.
func openSandboxes(r *Room) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sandboxes)
}

// TestSpare: a sandbox that was made before anyone asked for it is like any other.
func TestSpare(t *testing.T) {
	t.Parallel()
	for _, rung := range []engine.Isolation{engine.Full, engine.Restricted} {
		t.Run(string(rung), func(t *testing.T) {
			t.Parallel()
			limits := engine.Limits{DiskBytes: 32 << 20}
			r := startRoom(t, Options{Isolation: rung, Spare: &limits})
			readySpare(t, r)
			// It stays if a sandbox with other limits is requested.
			newSandbox(t, r, engine.SandboxOptions{ID: "other"})
			if len(r.spares.ready) != 1 {
				t.Error("a spare of other limits was used")
			}
			sandboxes := openSandboxes(r)
			greeted := make(chan struct{})
			s := newSandbox(t, r, engine.SandboxOptions{
				ID: "mine", Limits: limits, Config: json.RawMessage(`{"a":1}`),
				Egress: &testEgress{dial: func(context.Context, string, uint16) (net.Conn, error) {
					close(greeted)
					return nil, context.Canceled
				}},
			})
			if s.number != 2 { // after the probe
				t.Errorf("the spare was not used, but number %d", s.number)
			}
			call(t, s, "/egress", testRequest{Host: "example.com", Port: 443})
			<-greeted
			if rung == engine.Full {
				got := sh(t, s, "hostname; cat /etc/hostname; getent hosts mine; df -m --output=size / | tail -1")
				if strings.Join(strings.Fields(got.Output), " ") != "mine mine 127.0.1.1 mine 32" {
					t.Errorf("%+v", got)
				}
			}
			readySpare(t, r)
			if now := openSandboxes(r); now != sandboxes+1 {
				t.Errorf("there are %d sandboxes, spare included, after %d", now, sandboxes)
			}

			// A spare that died while it waited is not handed out.
			dead := <-r.spares.ready
			r.killProcess(dead)
			<-dead.exited
			r.spares.ready <- dead // no other spare is made before this one is used
			s = newSandbox(t, r, engine.SandboxOptions{ID: "late", Limits: limits})
			if got := sh(t, s, "echo alive"); got.Output != "alive\n" {
				t.Errorf("%+v", got)
			}
			readySpare(t, r)
			room, dir := r.room.Cmd.Process.Pid, r.options.Dir
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if exists(dir) || unix.Kill(room, 0) == nil {
				t.Error("something is left")
			}
		})
	}
}

// TestSpareRoomEnds: the room can end at any moment while a spare is being made.
func TestSpareRoomEnds(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond} {
		r := startRoom(t, Options{Spare: &engine.Limits{}})
		<-time.After(after)
		if err := r.Close(); err != nil {
			t.Errorf("closed after %v: %v", after, err)
		}
	}
}

// TestRoomEndsWhileASandboxStarts: the room can end at any moment of the start of a
// sandbox, including the start of a spare.
func TestRoomEndsWhileASandboxStarts(t *testing.T) {
	t.Parallel()
	for range 4 {
		r := startRoom(t, Options{Spare: &engine.Limits{}})
		readySpare(t, r)
		started := make(chan error)
		go func() {
			_, err := r.NewSandbox(t.Context(), engine.SandboxOptions{ID: "mine", Config: json.RawMessage("{}"), Egress: &testEgress{}})
			started <- err
		}()
		for len(r.spares.ready) > 0 { // until it is taken
			goruntime.Gosched()
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		<-started // with an error, unless it was faster
	}
}

// TestSpareYields: a spare leaves the processors to others until it is used or
// waited for.
func TestSpareYields(t *testing.T) {
	t.Parallel()
	r := startRoom(t, Options{Spare: &engine.Limits{}})
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	readySpare(t, r)
	spare := <-r.spares.ready
	r.spares.ready <- spare
	h := spare.group.CPU
	if h.Dir == "" {
		if os.Getenv("CI") == "true" && os.Geteuid() == 0 {
			t.Fatal("root has no control group for processors")
		}
		t.Skip("no control group for processors that this user may make")
	}
	yields := func() bool {
		t.Helper()
		name, usual := "cpu.weight", "100\n"
		if h.Version == 1 {
			name, usual = "cpu.shares", "1024\n"
		}
		text, err := os.ReadFile(filepath.Join(h.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text) != usual
	}
	if !yields() {
		t.Error("a spare that nobody uses does not yield")
	}
	if s := newSandbox(t, r, engine.SandboxOptions{ID: "used"}); s != spare {
		t.Fatal("the spare was not used")
	}
	if yields() {
		t.Error("a sandbox that is used yields")
	}
	r.spares.waiting.Store(true)
	if err := r.spares.stepBack(spare.group); err != nil || yields() {
		t.Errorf("one that is waited for yields: %v", err)
	}
}
