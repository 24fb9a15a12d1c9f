//go:build linux

package room

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/pinned"
)

// A forking room orders kernels for its warm sandboxes.
type forking struct {
	*Room
	gaveUp *atomic.Bool // on an order that the zygote did not take at once
}

// forkingRoom returns a room with count warm sandboxes, a kernel ordered for each.
func forkingRoom(t *testing.T, count int) forking {
	t.Helper()
	env, err := pyenv.Find(t.Context())
	must.Do(t, err)
	if env.Level == pyenv.Plain {
		pinned.Skip(t, "%s", env.Note)
	}
	log := &orderLog{Writer: logWriter{t}}
	r := forking{gaveUp: &log.gaveUp}
	without := withoutLibraries(t)
	zygote := zygoteOf(env)
	zygote.System["PYTHONPATH"] = without
	r.Room = startRoom(t, Options{
		Trees: append(slices.Clone(env.Trees), without), Zygote: zygote, Warm: &engine.Limits{}, WarmCount: count,
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	r.zygote.unusedTime = time.Hour // a test may take longer than kernels wait
	r.awaitOrders(t, count)
	return r
}

// An orderLog is the log of a room that orders kernels.
type orderLog struct {
	io.Writer
	gaveUp atomic.Bool
}

func (l *orderLog) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("no kernel could be forked ahead")) {
		l.gaveUp.Store(true)
	}
	return l.Writer.Write(line)
}

// withoutLibraries returns a directory for PYTHONPATH, with which Python has no libraries for data. Loading
// these is nearly all that a zygote costs, and it makes no difference to when kernels are forked.
func withoutLibraries(t *testing.T) string {
	t.Helper()
	dir := mkdir(t, filepath.Join(t.TempDir(), "without"))
	must.Do(t, os.Chmod(dir, 0o755))
	for _, name := range []string{"numpy", "pandas", "matplotlib"} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name+".py"), []byte("raise ImportError('it is left out')\n"), 0o644))
	}
	return dir
}

// awaitOrders waits until a kernel is ordered for count warm sandboxes. A room does not
// repeat an order that the zygote did not take at once, so awaitOrders does.
func (r forking) awaitOrders(t *testing.T, count int) {
	t.Helper()
	patience.Until(t, fmt.Sprintf("a kernel is ordered for %d warm sandboxes", count), func() bool {
		if r.gaveUp.Swap(false) {
			select {
			case r.zygote.warmed <- struct{}{}:
			default: // another goroutine will check it soon
			}
		}
		return r.forkedAhead() == count
	})
}

// forkedAhead returns for how many warm sandboxes a kernel was ordered.
func (r forking) forkedAhead() (n int) {
	for range len(r.warm.ready) {
		s := <-r.warm.ready
		if s.kernels.ahead != nil {
			n++
		}
		r.warm.ready <- s
	}
	return n
}

const countKernels = "ps axo stat=,args= | grep -v ^Z | grep -c '[-]-zygote'"

func awaitKernels(t *testing.T, s *Sandbox, want string) {
	t.Helper()
	patience.Until(t, "kernels in the sandbox: "+want, func() bool {
		return call(t, s, "/run", testRequest{User: "root", Command: countKernels}).Output == want+"\n"
	})
}

// TestForkAhead checks that every warm sandbox has a kernel, and gets it as its first one,
// even if the sandbox was made before there was a zygote.
func TestForkAhead(t *testing.T) {
	t.Parallel()
	r := forkingRoom(t, 2)
	for _, id := range []string{"one", "two"} {
		s := newSandbox(t, r.Room, engine.SandboxOptions{ID: id})
		if !s.kernels.waiting() {
			t.Fatalf("sandbox %s has no kernel", id)
		}
		awaitKernels(t, s, "1")
		getKernel(t, s)
		if s.kernels.waiting() {
			t.Errorf("sandbox %s did not get the kernel that was forked ahead", id)
		}
		awaitKernels(t, s, "0") // no client has talked to it
		getKernel(t, s)
	}
	patience.Until(t, "there are two warm sandboxes again", func() bool { return len(r.warm.ready) == 2 })
}

// TestForkAheadDies checks that a kernel that was killed while it waited is not used.
func TestForkAheadDies(t *testing.T) {
	t.Parallel()
	r := forkingRoom(t, 1)
	s := newSandbox(t, r.Room, engine.SandboxOptions{ID: "dies"})
	awaitKernels(t, s, "1")
	forked := s.kernels.ahead
	patience.Until(t, "its socket is closed", func() bool {
		// This is repeated, because the first process found may be the one that becomes the
		// kernel.
		call(t, s, "/run", testRequest{User: "root", Command: "pkill -9 -f -- '[-]-zygote'"})
		return hungUp(forked)
	})
	getKernel(t, s)
}

// TestForkAheadRefit checks that a sandbox whose file system is replaced does not keep the
// kernel that was forked before.
func TestForkAheadRefit(t *testing.T) {
	t.Parallel()
	r := forkingRoom(t, 1)
	if !r.ranged() {
		t.Skip("layers of this user cannot be mounted later")
	}
	must.Do(t, r.CheckLayers(t.Context(), t.TempDir()))
	layers := []string{layerOf(t, newSandbox(t, r.Room, engine.SandboxOptions{}))}
	r.awaitOrders(t, 1)
	s := newSandbox(t, r.Room, engine.SandboxOptions{ID: "refitted", Layers: layers})
	if s.kernels.ahead != nil {
		t.Error("it still has its kernel")
	}
	awaitKernels(t, s, "0")
	getKernel(t, s)
}

// TestForkAheadUnused checks that an unused kernel is ended after a while, and that the
// next one is forked on request.
func TestForkAheadUnused(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, forkingRoom(t, 1).Room, engine.SandboxOptions{ID: "unused"})
	awaitKernels(t, s, "1")
	s.kernels.endAhead() // unusedTime has passed
	awaitKernels(t, s, "0")
	getKernel(t, s)
}

// TestForkAheadFrozen checks that the kernel is frozen with its sandbox, counts as one of
// its processes, and still exists afterwards.
func TestForkAheadFrozen(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, forkingRoom(t, 1).Room, engine.SandboxOptions{ID: "frozen"})
	awaitKernels(t, s, "1")
	if pids, known, err := s.share.group.Processes(); known && (err != nil || len(pids) < 2) {
		t.Errorf("got processes %v, %v in its group, want envd and the kernel", pids, err)
	}
	must.Do(t, s.Freeze(t.Context()))
	must.Do(t, s.Thaw(t.Context()))
	awaitKernels(t, s, "1")
	if hungUp(s.kernels.ahead) {
		t.Error("the kernel is gone")
	}
	getKernel(t, s)
}

// TestForkAheadZygoteDies checks that waiting kernels outlive the zygote.
func TestForkAheadZygoteDies(t *testing.T) {
	t.Parallel()
	r := forkingRoom(t, 1)
	s := <-r.warm.ready
	patience.Until(t, "the kernel is among its processes", func() bool { return s.pause.forgetJoined(0) == 0 })
	r.warm.ready <- s
	r.zygote.end() // it is not replaced
	patience.Until(t, "the zygote is gone", func() bool { return !r.zygote.isWarm() })
	s = newSandbox(t, r.Room, engine.SandboxOptions{ID: "outlives"})
	awaitKernels(t, s, "1")
	if got := call(t, s, "/kernels?n=2", testRequest{}); got.Status != 1 {
		t.Errorf("got %+v, want the one kernel that waited", got)
	}
}

// TestForkAheadAfterCommands checks that no kernel is forked while sandboxes are requested but
// none runs code.
func TestForkAheadAfterCommands(t *testing.T) {
	t.Parallel()
	r := forkingRoom(t, 1)
	s := newSandbox(t, r.Room, engine.SandboxOptions{ID: "code"})
	call(t, s, "/kernels?n=1", testRequest{})
	if !r.warm.codeRuns.Load() {
		t.Error("code was run, and nobody knows")
	}
	s = newSandbox(t, r.Room, engine.SandboxOptions{ID: "commands"})
	must.Do(t, s.Close())
	if r.warm.codeRuns.Load() {
		t.Error("only commands were run, and the next sandbox gets a kernel at once")
	}
	r.awaitOrders(t, 1) // ordered as soon as there are no requests
}
