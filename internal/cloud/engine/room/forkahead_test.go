//go:build linux

package room

import (
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
)

// forkingRoom returns a room with count warm sandboxes, a kernel ordered for each.
func forkingRoom(t *testing.T, count int) *Room {
	t.Helper()
	env, err := pyenv.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if env.Level == pyenv.Plain {
		t.Skip(env.Note)
	}
	r := startRoom(t, Options{Trees: env.Trees, Zygote: zygoteOf(env), Warm: &engine.Limits{}, WarmCount: count})
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	until(t, "a kernel is ordered for every warm sandbox", func() bool { return forkedAhead(r) == count })
	return r
}

// forkedAhead returns for how many warm sandboxes a kernel was ordered.
func forkedAhead(r *Room) (n int) {
	for range len(r.warm.ready) {
		s := <-r.warm.ready
		if s.forked != nil {
			n++
		}
		r.warm.ready <- s
	}
	return n
}

const countKernels = "ps axo stat=,args= | grep -v ^Z | grep -c '[-]-zygote'"

func awaitKernels(t *testing.T, s *Sandbox, want string) {
	t.Helper()
	until(t, "kernels in the sandbox: "+want, func() bool {
		return call(t, s, "/run", testRequest{User: "root", Command: countKernels}).Output == want+"\n"
	})
}

// TestForkAhead: every warm sandbox has a kernel, which is the first that it gets, even if
// it was made before there was a zygote.
func TestForkAhead(t *testing.T) {
	t.Parallel()
	r := forkingRoom(t, 2)
	for _, id := range []string{"one", "two"} {
		s := newSandbox(t, r, engine.SandboxOptions{ID: id})
		if s.forked == nil {
			t.Fatalf("sandbox %s has no kernel", id)
		}
		awaitKernels(t, s, "1")
		if got := call(t, s, "/kernels?n=1", testRequest{}); got.Status != 1 {
			t.Errorf("got %+v, want a kernel", got)
		}
		awaitKernels(t, s, "0") // nothing talked to it
		if got := call(t, s, "/kernels?n=1", testRequest{}); got.Status != 1 {
			t.Errorf("got %+v, want another kernel", got)
		}
	}
	until(t, "there are two warm sandboxes again", func() bool { return len(r.warm.ready) == 2 })
}

// TestForkAheadDies: a kernel that was killed while it waited is not given to anybody.
func TestForkAheadDies(t *testing.T) {
	t.Parallel()
	r := forkingRoom(t, 1)
	s := newSandbox(t, r, engine.SandboxOptions{ID: "dies"})
	awaitKernels(t, s, "1")
	call(t, s, "/run", testRequest{User: "root", Command: "pkill -9 -f -- '[-]-zygote'"})
	until(t, "its socket is closed", func() bool { return hungUp(s.forked) })
	if got := call(t, s, "/kernels?n=1", testRequest{}); got.Status != 1 {
		t.Errorf("got %+v, want a kernel", got)
	}
}

// TestForkAheadRefit: a sandbox whose file system is replaced does not keep the kernel that
// was forked before.
func TestForkAheadRefit(t *testing.T) {
	t.Parallel()
	r := forkingRoom(t, 1)
	if !r.ranged() {
		t.Skip("layers of this user cannot be mounted later")
	}
	if err := r.CheckLayers(t.Context(), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	layers := []string{layerOf(t, newSandbox(t, r, engine.SandboxOptions{}))}
	until(t, "a kernel is ordered", func() bool { return forkedAhead(r) == 1 })
	s := newSandbox(t, r, engine.SandboxOptions{ID: "refitted", Layers: layers})
	if s.forked != nil {
		t.Error("it still has its kernel")
	}
	awaitKernels(t, s, "0")
	if got := call(t, s, "/kernels?n=1", testRequest{}); got.Status != 1 {
		t.Errorf("got %+v, want a kernel", got)
	}
}

func TestWarmCount(t *testing.T) {
	t.Parallel()
	for _, count := range []int{-1, maxWarm + 1} {
		_, err := Start(t.Context(), Options{Warm: &engine.Limits{}, WarmCount: count})
		if err == nil || !strings.Contains(err.Error(), "0 to 64 are allowed") {
			t.Errorf("%d: got %v, want what is allowed", count, err)
		}
	}
}
