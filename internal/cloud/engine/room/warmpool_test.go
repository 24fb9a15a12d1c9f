//go:build linux

package room

import (
	"context"
	"net"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// readyWarm waits until the room has a warm sandbox.
func readyWarm(t testing.TB, r *Room) {
	t.Helper()
	patience.Until(t, "a warm sandbox is ready", func() bool { return len(r.warm.ready) > 0 })
}

// openSandboxes returns the number of sandboxes, including the warm one.
func openSandboxes(r *Room) int {
	r.roster.mu.Lock()
	defer r.roster.mu.Unlock()
	return len(r.roster.sandboxes)
}

// TestWarmPool checks that a sandbox that was made before its request is like any
// other.
func TestWarmPool(t *testing.T) {
	t.Parallel()
	for _, level := range []engine.Isolation{engine.Full, engine.Restricted} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			limits := engine.Limits{DiskBytes: 32 << 20}
			r := startRoom(t, Options{Isolation: level, Warm: &limits, Binary: withDetector})
			readyWarm(t, r)
			// The warm sandbox stays if a sandbox with other limits is requested.
			newSandbox(t, r, engine.SandboxOptions{ID: "other"})
			if len(r.warm.ready) != 1 {
				t.Error("a warm sandbox of other limits was used")
			}
			sandboxes := openSandboxes(r)
			dialled := make(chan struct{})
			s := newSandbox(t, r, engine.SandboxOptions{
				ID: "mine", Limits: limits, Config: guest.Config{TemplateID: "a"},
				Egress: &testEgress{dial: func(context.Context, string, uint16) (net.Conn, error) {
					close(dialled)
					return nil, context.Canceled
				}},
			})
			if s.number != 2 { // after the probe
				t.Errorf("the warm sandbox was not used, but number %d", s.number)
			}
			call(t, s, "/egress", testRequest{Host: "example.com", Port: 443})
			<-dialled
			if level == engine.Full {
				got := sh(t, s, "hostname; cat /etc/hostname; getent hosts mine; df -m --output=size / | tail -1")
				if strings.Join(strings.Fields(got.Output), " ") != "mine mine 127.0.1.1 mine 32" {
					t.Errorf("%+v", got)
				}
			}
			readyWarm(t, r)
			if now := openSandboxes(r); now != sandboxes+1 {
				t.Errorf("there are %d sandboxes, the warm one included, after %d", now, sandboxes)
			}

			// A warm sandbox that died while it waited is not handed out.
			dead := <-r.warm.ready
			r.killProcess(dead)
			<-dead.process.exited
			r.warm.ready <- dead // no other warm sandbox is made before this one is used
			s = newSandbox(t, r, engine.SandboxOptions{ID: "late", Limits: limits})
			if got := sh(t, s, "echo alive"); got.Output != "alive\n" {
				t.Errorf("%+v", got)
			}
			readyWarm(t, r)
			room, dir := r.process.first.Cmd.Process.Pid, r.options.Dir
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if exists(dir) || unix.Kill(room, 0) == nil {
				t.Error("something is left")
			}
		})
	}
}

// TestWarmPoolRoomEnds checks that the room can end at any moment while a warm
// sandbox is being made.
func TestWarmPoolRoomEnds(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond} {
		r := startRoom(t, Options{Warm: &engine.Limits{}})
		<-time.After(after)
		if err := r.Close(); err != nil {
			t.Errorf("closed after %v: %v", after, err)
		}
	}
}

// TestRoomEndsWhileASandboxStarts checks that the room can end at any moment of the
// start of a sandbox, including the start of a warm sandbox.
func TestRoomEndsWhileASandboxStarts(t *testing.T) {
	t.Parallel()
	for range 4 {
		r := startRoom(t, Options{Warm: &engine.Limits{}})
		readyWarm(t, r)
		started := make(chan error)
		go func() {
			_, err := r.NewSandbox(t.Context(), engine.SandboxOptions{ID: "mine", Egress: &testEgress{}})
			started <- err
		}()
		for len(r.warm.ready) > 0 { // until it is taken
			goruntime.Gosched()
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		<-started // with an error, unless the start was faster
	}
}

// TestWarmYields checks that a warm sandbox leaves the processors to others until it
// is used or a caller waits for it.
func TestWarmYields(t *testing.T) {
	t.Parallel()
	r := startRoom(t, Options{Warm: &engine.Limits{}})
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	readyWarm(t, r)
	warm := <-r.warm.ready
	r.warm.ready <- warm
	h := warm.share.group.CPU
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
		must.Do(t, err)
		return string(text) != usual
	}
	if !yields() {
		t.Error("a warm sandbox that nobody uses does not yield")
	}
	if s := newSandbox(t, r, engine.SandboxOptions{ID: "used"}); s != warm {
		t.Fatal("the warm sandbox was not used")
	}
	if yields() {
		t.Error("a sandbox that is used yields")
	}
	r.warm.waiting.Store(true)
	if err := r.warm.stepBack(warm.share.group); err != nil || yields() {
		t.Errorf("one that is waited for yields: %v", err)
	}
}

// TestFirstWarmSandboxIsAwaited checks what ends the wait for the first warm sandbox.
func TestFirstWarmSandboxIsAwaited(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	ready := make(chan struct{})
	close(ready)
	(&warmPool{}).awaitFirst(t.Context()) // there are none
	(&warmPool{first: ready}).awaitFirst(t.Context())
	(&warmPool{first: make(chan struct{})}).awaitFirst(ended)
}
