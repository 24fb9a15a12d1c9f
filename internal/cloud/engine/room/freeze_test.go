//go:build linux

package room

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/chaintest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/orphan"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/pinned"
)

// The means of stopping the processes of a sandbox.
const (
	byGroup   = "group"
	bySignals = "signals"
)

// withoutFreezer returns the group as on a machine where groups do not freeze.
func withoutFreezer(g *cgroup.Group) *cgroup.Group {
	return &cgroup.Group{Dirs: g.Dirs, Memory: g.Memory, CPU: g.CPU}
}

// eachFreeze runs a test with each level and means of freezing.
func eachFreeze(t *testing.T, test func(t *testing.T, s *Sandbox, means string)) {
	eachFreezeWithin(t, engine.Limits{}, test)
}

func eachFreezeWithin(t *testing.T, limits engine.Limits, test func(t *testing.T, s *Sandbox, means string)) {
	for _, level := range []engine.Isolation{engine.Full, engine.Restricted} {
		for _, means := range []string{byGroup, bySignals} {
			t.Run(string(level)+"/"+means, func(t *testing.T) {
				t.Parallel()
				r := newRoomOn(t, level)
				s := newSandbox(t, r, engine.SandboxOptions{Limits: limits})
				switch {
				case means == bySignals:
					s.share.group = withoutFreezer(s.share.group)
				case s.share.group.Freezer() == nil:
					t.Skipf("no group freezes here: %s", r.Report().Pause)
				}
				test(t, s, means)
			})
		}
	}
}

func freeze(t testing.TB, s *Sandbox) {
	t.Helper()
	must.Do(t, s.Freeze(t.Context()))
}

func thaw(t testing.TB, s *Sandbox) {
	t.Helper()
	must.Do(t, s.Thaw(t.Context()))
}

// background starts a command that outlives the request.
func background(t testing.TB, s *Sandbox, command string) {
	t.Helper()
	if got := sh(t, s, "("+command+") >/dev/null 2>&1 & :"); got.Status != 0 {
		t.Fatalf("%s: got %+v", command, got)
	}
}

// timeUsed returns the processor time that the processes have used.
func timeUsed(t testing.TB, s *Sandbox) (used time.Duration) {
	t.Helper()
	pids, err := s.processes()
	must.Do(t, err)
	for _, pid := range pids {
		used += processorTime(pid)
	}
	return used
}

// isStill checks that no process runs: in a tenth of a second in which this process is busy,
// frozen processes use no time. A group is frozen a moment before its last process leaves the
// processor, and that moment can complete a tick of the clock: a single tick is measured again.
func isStill(t *testing.T, s *Sandbox) {
	t.Helper()
	used := usedSoon(t, s)
	if used == 10*time.Millisecond {
		used = usedSoon(t, s)
	}
	if used != 0 {
		t.Fatalf("frozen processes used %v, want none", used)
	}
}

// usedSoon returns the processor time that the processes use in the next tenth of a second, or
// the time used when that began.
func usedSoon(t *testing.T, s *Sandbox) time.Duration {
	t.Helper()
	before := timeUsed(t, s)
	for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); {
		if now := timeUsed(t, s); now != before {
			return now - before
		}
	}
	return 0
}

// crowd starts the kinds of processes that a sandbox may contain: a program that computes, one
// with threads whose first has ended, a stopped one, a traced one, a zombie, one that waits for a
// child of vfork, a shell that watches its children, and many that sleep.
const crowd = `
import ctypes, os, signal, subprocess, sys, threading, time
libc = ctypes.CDLL(None)
def child(f):
    pid = os.fork()
    if pid == 0:
        try: f()
        finally: os._exit(0)
    return pid
def compute():
    while True: pass
def headless():
    threading.Thread(target=compute).start()
    libc.pthread_exit(None)
def vfork():
    pid = libc.syscall(56, 0x4000 | 17, 0, 0, 0, 0) if os.uname().machine == "x86_64" else os.fork()
    if pid == 0:
        libc.sleep(1000)
        libc._exit(0)
def traced():
    libc.ptrace(0, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
child(compute)
child(headless)
child(vfork)
stopped = child(lambda: os.kill(os.getpid(), signal.SIGSTOP) or time.sleep(1000))
child(lambda: None)
child(traced)
for i in range(40): child(lambda: time.sleep(1000))
watched = child(lambda: time.sleep(1000))
open(sys.argv[1] + "/stopped", "w").write(str(stopped))
open(sys.argv[1] + "/ready", "w").close()
while True:
    # Nobody in here may see that a process was stopped by the freeze.
    pid, status = os.waitpid(watched, os.WUNTRACED | os.WNOHANG)
    if pid: open(sys.argv[1] + "/seen", "w").write(str(status))
`

func startCrowd(t *testing.T, s *Sandbox) {
	t.Helper()
	background(t, s, "cat > $TMPDIR/crowd.py <<'EOF'\n"+crowd+"\nEOF\nexec python3 $TMPDIR/crowd.py $TMPDIR")
	patience.Until(t, "the crowd is there", func() bool { return sh(t, s, "cat $TMPDIR/ready").Status == 0 })
	patience.Until(t, "one of it is stopped", func() bool {
		return strings.HasPrefix(sh(t, s, "cut -d' ' -f3 /proc/$(cat $TMPDIR/stopped)/stat").Output, "T")
	})
}

// TestFreeze checks that no process runs while a sandbox is frozen, that connections are cut and
// refused, and that all processes continue when it is thawed.
func TestFreeze(t *testing.T) {
	t.Parallel()
	eachFreeze(t, func(t *testing.T, s *Sandbox, _ string) {
		startCrowd(t, s)
		before := sh(t, s, "ls -l /proc/[0-9]*/exe 2>/dev/null | grep -c python")
		open, err := s.Dial(t.Context(), 49983)
		must.Do(t, err)
		defer open.Close()
		for range 3 {
			began := time.Now()
			freeze(t, s)
			t.Logf("frozen in %v", time.Since(began))
			freeze(t, s)
			isStill(t, s)
			if _, err := s.Dial(t.Context(), 49983); !errors.Is(err, engine.ErrFrozen) {
				t.Errorf("dialling a frozen sandbox: got %v, want %v", err, engine.ErrFrozen)
			}
			if n, err := open.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Errorf("an open connection read %d bytes, %v", n, err)
			}
			began = time.Now()
			thaw(t, s)
			t.Logf("thawed in %v", time.Since(began))
			thaw(t, s)
			if got := sh(t, s, "cut -d' ' -f3 /proc/$(cat $TMPDIR/stopped)/stat; cat $TMPDIR/seen 2>/dev/null"); got.Output != "T\n" {
				t.Errorf("the process that was stopped before, and what was seen: got %q, want T", got.Output)
			}
		}
		if after := sh(t, s, "ls -l /proc/[0-9]*/exe 2>/dev/null | grep -c python"); s.files.root == nil && after.Output != before.Output {
			t.Errorf("there are %s processes, there were %s", after.Output, before.Output)
		}
		used := timeUsed(t, s)
		patience.Until(t, "they run again", func() bool { return timeUsed(t, s) > used+10*time.Millisecond })
		if s.Memory() < 1<<20 {
			t.Errorf("it uses %d bytes", s.Memory())
		}
	})
}

// TestFreezeChanges checks that programs that change files all the time are frozen like others,
// and notice nothing. At every moment some of them wait for the holder.
func TestFreezeChanges(t *testing.T) {
	t.Parallel()
	eachFreeze(t, func(t *testing.T, s *Sandbox, _ string) {
		background(t, s, startFlood)
		patience.Until(t, "the flood is there", func() bool { return sh(t, s, "ls $TMPDIR/flood | wc -l").Output == "24\n" })
		for range 5 {
			freeze(t, s)
			isStill(t, s)
			thaw(t, s)
		}
		if got := sh(t, s, "cat $TMPDIR/flood/failed"); got.Status == 0 {
			t.Errorf("a call failed: %s", got.Output)
		}
	})
}

// TestHold checks that no process runs while a sandbox is held, and that open and new connections
// into it wait. A freeze of it cuts them.
func TestHold(t *testing.T) {
	t.Parallel()
	eachFreeze(t, func(t *testing.T, s *Sandbox, _ string) {
		hold := func() {
			t.Helper()
			must.Do(t, s.Hold(t.Context()))
		}
		startCrowd(t, s)
		open, err := s.Dial(t.Context(), 49983)
		must.Do(t, err)
		defer open.Close()
		hold()
		isStill(t, s)
		if err := s.Save(t.Context(), t.TempDir()); err != nil {
			t.Error(err)
		}
		dialled := make(chan error, 1)
		go func() {
			conn, err := s.Dial(t.Context(), 49983)
			if err == nil {
				err = conn.Close()
			}
			dialled <- err
		}()
		if _, err := io.WriteString(open, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
			t.Error(err)
		}
		thaw(t, s)
		if err := <-dialled; err != nil {
			t.Errorf("a connection that was opened meanwhile: got %v", err)
		}
		if _, err := open.Read(make([]byte, 1)); err != nil {
			t.Errorf("the answer to what was written meanwhile: got %v", err)
		}
		hold()
		freeze(t, s)
		if _, err := s.Dial(t.Context(), 49983); !errors.Is(err, engine.ErrFrozen) {
			t.Errorf("dialling after the freeze: got %v, want %v", err, engine.ErrFrozen)
		}
		if _, err := open.Read(make([]byte, 64<<10)); err == nil { // the rest of the answer
			if _, err = open.Read(make([]byte, 1)); err == nil {
				t.Error("a connection that was open is not cut")
			}
		}
		thaw(t, s)
	})
}

// TestFreezeChain checks that processes that start others faster than they can be listed are
// frozen, continue when thawed, and end with the sandbox.
func TestFreezeChain(t *testing.T) {
	t.Parallel()
	eachFreeze(t, func(t *testing.T, s *Sandbox, means string) {
		background(t, s, "cd $TMPDIR && exec python3 -c '"+chaintest.Script+"'")
		patience.Until(t, "the chain is there", func() bool { return sh(t, s, "test -e $TMPDIR/lock").Status == 0 })
		for range 2 {
			freeze(t, s)
			isStill(t, s)
			thaw(t, s)
		}
		used := timeUsed(t, s)
		patience.Until(t, "it runs again", func() bool { return timeUsed(t, s) > used })
		freeze(t, s)
	})
}

// TestFreezeBomb checks that a sandbox full of processes that all start others is frozen, and
// that it can end while it is frozen.
func TestFreezeBomb(t *testing.T) {
	t.Parallel()
	// Other tests want processors, too.
	eachFreezeWithin(t, engine.Limits{CPUs: 0.5, MaxProcesses: 600}, func(t *testing.T, s *Sandbox, _ string) {
		if s.room.level != engine.Full {
			t.Skip("its processes are not limited on every machine")
		}
		background(t, s, "exec python3 -c '"+bomb+"'")
		envd, err := pidOf(s.process.pidfd)
		must.Do(t, err)
		patience.Until(t, "the sandbox is full", func() bool {
			pids, err := members{Sandbox: s, envd: envd}.List()
			return err == nil && len(pids) > 500
		})
		freeze(t, s)
		isStill(t, s)
		thaw(t, s)
		freeze(t, s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

const bomb = `
import os
while True:
    try: os.fork()
    except OSError: pass
`

// TestFreezeAndClose checks that a frozen sandbox ends at once, also while it is being frozen.
func TestFreezeAndClose(t *testing.T) {
	t.Parallel()
	eachFreeze(t, func(t *testing.T, s *Sandbox, means string) {
		another := func(id string) *Sandbox {
			next := newSandbox(t, s.room, engine.SandboxOptions{ID: id})
			if means == bySignals {
				next.share.group = withoutFreezer(next.share.group)
			}
			return next
		}
		patience.Soon(t, "the start, freeze and end of a sandbox", freezeTimeout/2, func() {
			s = another("frozen")
			background(t, s, "while :; do sleep 0.01; done")
			freeze(t, s)
			must.Do(t, s.Close())
		})
		for name, f := range map[string]func(context.Context) error{"freeze": s.Freeze, "thaw": s.Thaw} {
			if err := f(t.Context()); !errors.Is(err, engine.ErrGone) {
				t.Errorf("%s after the end: got %v, want %v", name, err, engine.ErrGone)
			}
		}
		for i := range 5 {
			s := another("raced")
			var both sync.WaitGroup
			both.Go(func() {
				if err := s.Freeze(t.Context()); err != nil && !errors.Is(err, engine.ErrGone) {
					t.Errorf("freeze: %v", err)
				}
			})
			both.Go(func() {
				for end := time.Now().Add(time.Duration(i) * time.Millisecond / 2); time.Now().Before(end); {
				}
				if err := s.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
			both.Wait()
			for _, h := range s.share.group.Dirs {
				if exists(h.Dir) {
					t.Errorf("%s is left", h.Dir)
				}
			}
			for _, dir := range s.room.keeper.groups.Directories() {
				if exists(filepath.Join(dir, strconv.FormatUint(s.number, 10))) {
					t.Errorf("a group is left in %s", dir)
				}
			}
		}
	})
}

// TestCloseWhileForking checks that a sandbox ends even if it was frozen while a kernel was
// forked into it. The process that forks is stopped with the sandbox, but it is not in the
// sandbox's namespace, which cannot end before that process has waited for its child.
func TestCloseWhileForking(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can enter the sandbox's namespace by nsenter")
	}
	if _, err := exec.LookPath("nsenter"); err != nil {
		pinned.Skip(t, "nsenter is needed: %v", err)
	}
	r := newRoom(t)
	for _, means := range []string{byGroup, bySignals} {
		t.Run(means, func(t *testing.T) {
			s := newSandbox(t, r, engine.SandboxOptions{})
			switch {
			case len(s.share.group.Dirs) == 0:
				t.Skip("only a group lists the process")
			case means == bySignals:
				s.share.group = withoutFreezer(s.share.group)
			case s.share.group.Freezer() == nil:
				t.Skip(r.Report().Pause)
			}
			envd, err := pidOf(s.process.pidfd)
			must.Do(t, err)
			var joins strings.Builder
			for _, h := range s.share.group.Dirs {
				fmt.Fprintf(&joins, "echo 0 >%s/cgroup.procs; ", h.Dir)
			}
			forking := exec.Command("sh", "-c", fmt.Sprintf("%sexec nsenter --pid --target %d sleep 1000", &joins, envd))
			must.Do(t, forking.Start())
			t.Cleanup(func() {
				_ = forking.Process.Kill()
				_ = forking.Wait()
			})
			patience.Until(t, "a process in the namespace", func() bool {
				children, err := orphan.ChildrenOf(forking.Process.Pid)
				return err == nil && len(children) == 1
			})
			freeze(t, s)
			ended := make(chan error, 1)
			go func() { ended <- s.Close() }()
			if err := patience.Receive(t, "the end of the sandbox", ended); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestServerKilledFrozen checks that frozen processes do not outlive their server.
func TestServerKilledFrozen(t *testing.T) {
	t.Parallel()
	for _, level := range []engine.Isolation{engine.Full, engine.Restricted, engine.None} {
		for _, means := range []string{byGroup, bySignals} {
			t.Run(string(level)+"/"+means, func(t *testing.T) {
				t.Parallel()
				checkLevel(t, level)
				killServer(t, level, false, means)
				if means == byGroup { // the next server removes the freezing group
					killServer(t, level, true, means)
				}
			})
		}
	}
}

// TestFreezeEgress checks that connections out of a frozen sandbox are cut, and that new ones can
// be made when it is thawed, by the egress that was set last.
func TestFreezeEgress(t *testing.T) {
	t.Parallel()
	connected, cut := make(chan struct{}), make(chan struct{})
	s := newSandbox(t, newRoomWith(t, Options{Binary: withDetector}), engine.SandboxOptions{Egress: &testEgress{dial: func(context.Context, string, uint16) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			_, _ = io.ReadFull(far, make([]byte, len("ping")))
			close(connected)
			_, _ = far.Read(make([]byte, 1))
			far.Close()
			close(cut)
		}()
		return near, nil
	}}})
	conn, err := s.Dial(t.Context(), 49983)
	must.Do(t, err)
	defer conn.Close()
	const body = `{"Host":"example.com","Port":443}`
	fmt.Fprintf(conn, "POST /egress HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	<-connected
	freeze(t, s)
	<-cut
	s.SetEgress(&testEgress{dial: func(_ context.Context, host string, _ uint16) (net.Conn, error) {
		near, end := net.Pipe()
		go func() {
			_, _ = io.ReadFull(end, make([]byte, len("ping")))
			fmt.Fprint(end, "hello from ", host)
			end.Close()
		}()
		return near, nil
	}})
	thaw(t, s)
	if got := call(t, s, "/egress", testRequest{Host: "example.com", Port: 443}); got.Output != "hello from example.com" {
		t.Errorf("after the thaw: got %+v", got)
	}
}

// TestFreezeKernel checks that a kernel that is forked while its sandbox is frozen is frozen too.
func TestFreezeKernel(t *testing.T) {
	t.Parallel()
	r := warmRoom(t)
	for _, means := range []string{byGroup, bySignals} {
		t.Run(means, func(t *testing.T) {
			s := newSandbox(t, r, engine.SandboxOptions{ID: means})
			if means == bySignals {
				s.share.group = withoutFreezer(s.share.group)
			} else if s.share.group.Freezer() == nil {
				t.Skip(r.Report().Pause)
			}
			background(t, s, "while :; do :; done")
			for range 5 {
				asked := make(chan struct{})
				conn, err := s.Dial(t.Context(), 49983)
				must.Do(t, err)
				fmt.Fprint(conn, "GET /kernels?n=8 HTTP/1.0\r\n\r\n")
				go func() {
					defer close(asked)
					io.Copy(io.Discard, conn)
					conn.Close()
				}()
				freeze(t, s)
				// This takes a moment: the freeze waits only so long for an ordered kernel.
				patience.Until(t, "nothing runs", func() bool { return usedSoon(t, s) == 0 })
				thaw(t, s)
				<-asked
			}
			if !r.zygote.isWarm() {
				t.Error("the zygote is gone")
			}
		})
	}
}

// TestFreezeEnds checks that a freeze whose context ends leaves no process frozen.
func TestFreezeEnds(t *testing.T) {
	t.Parallel()
	eachFreeze(t, func(t *testing.T, s *Sandbox, _ string) {
		background(t, s, "while :; do :; done")
		for n := range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n)*100*time.Microsecond)
			err := s.Freeze(ctx)
			cancel()
			if err == nil {
				thaw(t, s)
			}
			if got := sh(t, s, "echo alive"); got.Output != "alive\n" {
				t.Fatalf("after %v: got %+v", err, got)
			}
		}
	})
}

// BenchmarkFreeze measures freeze and thaw of 100 processes. One of them has 500 MB.
func BenchmarkFreeze(b *testing.B) {
	for _, means := range []string{byGroup, bySignals} {
		b.Run(means, func(b *testing.B) {
			r := newRoomOn(b, engine.Full)
			s := newSandbox(b, r, engine.SandboxOptions{})
			if means == bySignals {
				s.share.group = withoutFreezer(s.share.group)
			} else if s.share.group.Freezer() == nil {
				b.Skip(r.Report().Pause)
			}
			background(b, s, `exec python3 -c '
import os, time
for i in range(100):
    if os.fork() == 0: time.sleep(10000)
big = b"x" * (500 << 20)
open("/tmp/ready", "w").close()
time.sleep(10000)'`)
			patience.Until(b, "they are there", func() bool { return sh(b, s, "test -e /tmp/ready").Status == 0 })
			began := time.Now()
			freeze(b, s)
			first := time.Since(began) // moves the processes
			thaw(b, s)
			var frozen, thawed []time.Duration
			for b.Loop() {
				began := time.Now()
				freeze(b, s)
				between := time.Now()
				thaw(b, s)
				frozen, thawed = append(frozen, between.Sub(began)), append(thawed, time.Since(between))
			}
			b.ReportMetric(float64(first.Microseconds())/1000, "first-ms")
			for name, all := range map[string][]time.Duration{"freeze": frozen, "thaw": thawed} {
				b.ReportMetric(float64(slices.Max(all).Microseconds())/1000, name+"-max-ms")
				slices.Sort(all)
				b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, name+"-ms")
			}
		})
	}
}
