//go:build linux

package room

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// zygoteOf returns the configuration of a zygote that runs env.
func zygoteOf(env *pyenv.Env) *guest.Config {
	c := &guest.Config{Python: []string{env.Python}, System: map[string]string{}}
	for _, v := range env.Vars {
		name, value, _ := strings.Cut(v, "=")
		c.System[name] = value
	}
	return c
}

// warmRoom returns a room whose zygote is warm.
func warmRoom(t *testing.T) *Room {
	t.Helper()
	env, err := pyenv.Find(t.Context())
	must.Do(t, err)
	if env.Level == pyenv.Plain {
		t.Skip(env.Note)
	}
	r := newRoomWith(t, Options{Trees: env.Trees, Zygote: zygoteOf(env), Binary: withDetector})
	patience.Until(t, "the zygote is warm", r.zygote.isWarm)
	return r
}

// kernelRequests returns the number of kernels that a sandbox requests when it requests them
// without end. It is more than the sandbox may get in the time that the requests take.
func kernelRequests() int {
	if os.Getenv("SOAK") != "" {
		return 10_000
	}
	return 100
}

// getKernel requests a kernel until the sandbox makes one. A request may fail, because fork gives
// up an order that the zygote does not take in time.
func getKernel(t *testing.T, s *Sandbox) {
	t.Helper()
	patience.Until(t, "sandbox "+s.options.ID+" gets a kernel", func() bool { return call(t, s, "/kernels?n=1", testRequest{}).Status == 1 })
}

// TestZygoteLater checks that a room that delays its zygote makes it at the first request for a
// kernel, which is refused.
func TestZygoteLater(t *testing.T) {
	t.Parallel()
	env, err := pyenv.Find(t.Context())
	must.Do(t, err)
	if env.Level == pyenv.Plain {
		t.Skip(env.Note)
	}
	r := startRoom(t, Options{Trees: env.Trees, Zygote: zygoteOf(env), ZygoteLater: true})
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	s := newSandbox(t, r, engine.SandboxOptions{ID: "first"})
	if forked := call(t, s, "/kernels?n=1", testRequest{}).Status; forked != 0 {
		t.Errorf("got %d kernels, want none without a zygote", forked)
	}
	patience.Until(t, "the zygote is warm", r.zygote.isWarm)
	getKernel(t, s)
}

// TestKernelRequests checks that an envd that requests kernels without end gets its allowance,
// and that others get theirs.
func TestKernelRequests(t *testing.T) {
	t.Parallel()
	r := warmRoom(t)
	greedy, modest := newSandbox(t, r, engine.SandboxOptions{ID: "greedy"}), newSandbox(t, r, engine.SandboxOptions{ID: "modest"})
	began := time.Now()
	getKernel(t, greedy)
	forked := 1
	for range kernelRequests() / 100 {
		forked += call(t, greedy, "/kernels?n=100", testRequest{}).Status
	}
	if most := maxForks + int(time.Since(began)/forkEvery) + 1; forked > most {
		t.Errorf("got %d kernels, want at most %d", forked, most)
	}
	getKernel(t, modest)
	if !r.zygote.isWarm() {
		t.Error("the zygote is gone")
	}
	// The kernels to which no client talked have ended.
	patience.Until(t, "no kernel runs", func() bool { return sh(t, greedy, "ps axo stat=,comm= | grep -v ^Z | grep -c python").Output == "0\n" })
}

// TestKernelWithoutZygote checks that the request is refused, and that the sandbox continues.
func TestKernelWithoutZygote(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, newRoomWith(t, Options{Binary: withDetector}), engine.SandboxOptions{})
	if got := call(t, s, "/kernels?n=2", testRequest{}); got.Status != 0 || got.Error == "" {
		t.Errorf("%+v", got)
	}
	if got := sh(t, s, "echo alive"); got.Output != "alive\n" {
		t.Errorf("%+v", got)
	}
}

// TestZygoteWithoutPython checks that the room does without a zygote that cannot be started.
func TestZygoteWithoutPython(t *testing.T) {
	t.Parallel()
	r := startRoom(t, Options{Zygote: &guest.Config{Python: []string{"/nowhere/python3"}}})
	r.zygote.keeping.Wait()
	if r.zygote.isWarm() {
		t.Error("there is a zygote")
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// TestZygoteComesBack checks that another zygote starts if an order notices the end of the
// zygote before the goroutine that waits for it, and closes the connection.
func TestZygoteComesBack(t *testing.T) {
	t.Parallel()
	r := warmRoom(t)
	r.zygote.mu.Lock()
	r.zygote.control.Close()
	r.zygote.control = nil
	r.zygote.mu.Unlock()
	patience.Until(t, "the zygote is warm", r.zygote.isWarm)
}

// TestZygoteThatTakesNothing checks that an order that the zygote does not take fails after a
// while, and that the zygote is abandoned if that lasts.
func TestZygoteThatTakesNothing(t *testing.T) {
	t.Parallel()
	conn, peer, err := wire.Pair(wire.MaxEnvdMessage)
	must.Do(t, err)
	defer peer.Close()
	defer conn.Close()
	var z zygote
	z.set(conn)
	order := wire.KernelOrder{Filter: strings.Repeat("0", 16<<10)}
	for err == nil {
		err = z.fork(false, order, nil)
	}
	if err := z.fork(true, order, nil); !errors.Is(err, os.ErrDeadlineExceeded) || !z.isWarm() {
		t.Errorf("ahead of its use: %v, warm: %v", err, z.isWarm())
	}
	for range 10 { // these orders do not have to wait as long
		if !errors.Is(err, os.ErrDeadlineExceeded) || !z.late || !z.isWarm() {
			t.Fatalf("%v, late: %v, warm: %v", err, z.late, z.isWarm())
		}
		err = z.fork(false, order, nil)
	}
	if _, _, err := unix.Recvfrom(int(peer.Fd()), make([]byte, 64<<10), 0); err != nil {
		t.Fatal(err)
	}
	if err := z.fork(false, order, nil); err != nil || z.late {
		t.Errorf("it takes orders again: %v, late: %v", err, z.late)
	}
	z.taken = time.Now().Add(-2 * warmTimeout)
	if err := z.fork(false, order, nil); !errors.Is(err, os.ErrDeadlineExceeded) || z.isWarm() {
		t.Errorf("it takes nothing for good: %v", err)
	}
	if err := z.fork(false, order, nil); !errors.Is(err, errNoZygote) {
		t.Errorf("after that: %v", err)
	}
}

// TestOrderAheadOfItsUse checks that an order for a kernel that is not needed yet is given up
// sooner than others, and says nothing about the zygote.
func TestOrderAheadOfItsUse(t *testing.T) {
	t.Parallel()
	conn, _ := wirePair(t)
	var z zygote
	z.set(conn)
	order := wire.KernelOrder{Filter: strings.Repeat("0", 16<<10)}
	patience.Until(t, "an order is given up before others would be", func() bool {
		began := time.Now()
		err := z.fork(true, order, nil)
		return errors.Is(err, os.ErrDeadlineExceeded) && time.Since(began) < orderPatience
	})
	if z.late || !z.isWarm() {
		t.Errorf("the zygote is late: %v, warm: %v", z.late, z.isWarm())
	}
}

// TestZygoteThatCannotStart checks that nothing is left of a zygote whose start failed: the room
// ends its process, and its connection is closed.
func TestZygoteThatCannotStart(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		ids  roomIDs
		want error
	}{
		"the room has ended": {ids: roomIDs{ranged: true}, want: os.ErrNotExist},
		"the server ends":    {want: context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			control, room := wirePair(t)
			r := &Room{process: roomProcess{control: control}, ids: tt.ids, options: Options{Zygote: &guest.Config{}, Logger: slog.New(slog.DiscardHandler)}}
			r.process.first = &spawn.Process{Cmd: &exec.Cmd{Process: &os.Process{Pid: math.MaxInt32}}} // no process has this id
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- r.liveZygote(ctx) }()
			asked, files, err := room.Expect(wire.KindSpawn, 1)
			must.Do(t, err)
			defer files.Close()
			if errors.Is(tt.want, context.Canceled) {
				cancel()
			}
			must.Is(t, patience.Receive(t, "the start to fail", ended), tt.want)
			if m, _, err := room.Expect(wire.KindKill, 0); err != nil || m.ID != asked.ID {
				t.Errorf("got %+v and error %v, want the end of process %d", m, err, asked.ID)
			}
			socket, err := files.Take(wire.FileControl)
			must.Do(t, err)
			defer socket.Close()
			if n, _, err := unix.Recvfrom(int(socket.Fd()), make([]byte, 1), unix.MSG_DONTWAIT); n != 0 || err != nil {
				t.Errorf("read %d bytes with error %v, want that the connection is closed", n, err)
			}
		})
	}
}

// TestKernelsThatAreNotOrdered checks that no kernel is ordered for a sandbox that has another
// Python, or whose control groups the kernel could not join.
func TestKernelsThatAreNotOrdered(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		image  *engine.Image
		group  *cgroup.Group
		want   error
		wanted int
	}{
		"image":      {image: &engine.Image{}, want: errNoZygote},
		"group gone": {group: &cgroup.Group{Dirs: []cgroup.Hierarchy{{Dir: filepath.Join(t.TempDir(), "gone"), Version: 2}}}, want: os.ErrNotExist, wanted: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, peer := wirePair(t)
			r := &Room{level: engine.None, keeper: &Keeper{groups: &cgroup.Groups{}}}
			choose(t, r)
			r.zygote.wanted = make(chan struct{}, 1)
			r.zygote.set(conn)
			first, err := os.Open(os.DevNull)
			must.Do(t, err)
			defer first.Close()
			s := &Sandbox{room: r, share: allotment{group: tt.group, limits: engine.Limits{MaxProcesses: minProcesses}}, process: firstProcess{pidfd: first}, options: engine.SandboxOptions{Image: tt.image}}
			_, err = s.orderKernel(false)
			must.Is(t, err, tt.want)
			if len(r.zygote.wanted) != tt.wanted {
				t.Errorf("a zygote is wanted %d times, want %d", len(r.zygote.wanted), tt.wanted)
			}
			conn.Close()
			if m, _, err := peer.Expect("", 0); !errors.Is(err, wire.ErrPeerEnded) {
				t.Errorf("the zygote received %+v with error %v, want nothing", m, err)
			}
		})
	}
}
