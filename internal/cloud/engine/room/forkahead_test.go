//go:build linux

package room

import (
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
	"github.com/e2bctl/e2bctl/internal/pinned"
)

// forkingRoom returns a room with count warm sandboxes, a kernel ordered for each.
func forkingRoom(t *testing.T, count int) *Room {
	t.Helper()
	env, err := pyenv.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if env.Level == pyenv.Plain {
		pinned.Skip(t, "%s", env.Note)
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
	forked := s.forked // which would be ended after a minute in any case
	until(t, "its socket is closed", func() bool {
		// Again and again: what is seen first may be what becomes the kernel.
		call(t, s, "/run", testRequest{User: "root", Command: "pkill -9 -f -- '[-]-zygote'"})
		return hungUp(forked)
	})
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

// TestForkAheadUnused: a kernel that is not used is ended after a while, and the next one
// is forked when it is asked for.
func TestForkAheadUnused(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, forkingRoom(t, 1), engine.SandboxOptions{ID: "unused"})
	awaitKernels(t, s, "1")
	s.endForked() // a minute has passed
	awaitKernels(t, s, "0")
	if got := call(t, s, "/kernels?n=1", testRequest{}); got.Status != 1 {
		t.Errorf("got %+v, want a kernel", got)
	}
}

// TestForkAheadFrozen: the kernel is frozen with its sandbox, counts as one of its
// processes, and is there afterwards.
func TestForkAheadFrozen(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, forkingRoom(t, 1), engine.SandboxOptions{ID: "frozen"})
	awaitKernels(t, s, "1")
	if pids, known, err := s.group.Processes(); known && (err != nil || len(pids) < 2) {
		t.Errorf("got processes %v, %v in its group, want envd and the kernel", pids, err)
	}
	if err := s.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitKernels(t, s, "1")
	if hungUp(s.forked) {
		t.Error("the kernel is gone")
	}
	if got := call(t, s, "/kernels?n=1", testRequest{}); got.Status != 1 {
		t.Errorf("got %+v, want a kernel", got)
	}
}

// TestForkAheadZygoteDies: kernels that wait outlive the zygote.
func TestForkAheadZygoteDies(t *testing.T) {
	t.Parallel()
	r := forkingRoom(t, 1)
	s := <-r.warm.ready
	until(t, "the kernel is among its processes", func() bool { return s.pause.forgetJoined(0) == 0 })
	r.warm.ready <- s
	r.zygote.end() // and none comes after it
	until(t, "the zygote is gone", func() bool { return !r.zygote.isWarm() })
	s = newSandbox(t, r, engine.SandboxOptions{ID: "outlives"})
	awaitKernels(t, s, "1")
	if got := call(t, s, "/kernels?n=2", testRequest{}); got.Status != 1 {
		t.Errorf("got %+v, want the one kernel that waited", got)
	}
}

// TestForkAheadAfterCommands: while nobody runs code, and somebody asks for sandboxes, none
// is forked.
func TestForkAheadAfterCommands(t *testing.T) {
	t.Parallel()
	r := forkingRoom(t, 1)
	s := newSandbox(t, r, engine.SandboxOptions{ID: "code"})
	call(t, s, "/kernels?n=1", testRequest{})
	if !r.warm.codeRuns.Load() {
		t.Error("code was run, and nobody knows")
	}
	s = newSandbox(t, r, engine.SandboxOptions{ID: "commands"})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if r.warm.codeRuns.Load() {
		t.Error("only commands were run, and the next sandbox gets a kernel at once")
	}
	until(t, "there is one nevertheless when nobody asks", func() bool { return forkedAhead(r) == 1 })
}
