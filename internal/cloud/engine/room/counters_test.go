//go:build linux

package room

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/counter"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

//go:embed testdata/take.py
var takeScript string

// taken is the output of take.py.
type taken struct{ Queues, Timers, Signals, Watches, Instances int }

// modest is the number that every other user must still get while one takes
// everything.
const modest = 4

func (m taken) check(t *testing.T, who string, queues bool) {
	t.Helper()
	want := taken{Timers: modest / 2, Signals: modest / 2, Watches: modest, Instances: modest}
	if queues {
		want.Queues = 1
	}
	enough := taken{
		Queues: min(m.Queues, want.Queues), Timers: min(m.Timers, want.Timers), Signals: min(m.Signals, want.Signals),
		Watches: min(m.Watches, want.Watches), Instances: min(m.Instances, want.Instances),
	}
	if diff := cmp.Diff(want, enough); diff != "" {
		t.Errorf("%s got too little, of %+v (-want +got):\n%s", who, m, diff)
	}
}

// TestGreed checks that a sandbox that takes as much as it can of the resources
// that the kernel counts by user leaves enough for another one, and for the
// server's user.
func TestGreed(t *testing.T) {
	t.Parallel()
	for _, level := range []engine.Isolation{engine.Full, engine.Restricted} {
		// One after the other, because both levels share the counts of the server's
		// own id.
		t.Run(string(level), func(t *testing.T) {
			r := newRoomOn(t, level)
			users := 1
			if r.ranged() {
				users = 20 // each with limits of its own
			}
			// Sandboxes without namespaces that share the server's id share its
			// counts; see the package's comment. The server's user still keeps its
			// part.
			apart := level == engine.Full || r.ids.apart
			greedy, other := newSandbox(t, r, engine.SandboxOptions{ID: "greedy"}), newSandbox(t, r, engine.SandboxOptions{ID: "other"})
			got := takeInside(t, greedy, apart, 1<<17, users)
			t.Logf("it took %+v", got)
			if apart && got.Instances == 0 || got.Timers+got.Signals == 0 {
				t.Errorf("it took %+v: nothing is shown", got)
			}
			if apart { // POSIX queues are refused if they would be the host's
				takeInside(t, other, true, modest, 1).check(t, "another sandbox", level == engine.Full)
			}
			takeHere(t).check(t, "the server's user", true)
		})
	}
}

func takeArguments(inotify bool, most, users int) []string {
	which := "none"
	if inotify {
		which = "inotify"
	}
	return []string{which, fmt.Sprint(most), fmt.Sprint(users)}
}

// takeInside makes the sandbox take the resources and hold them until it ends.
func takeInside(t *testing.T, s *Sandbox, inotify bool, most, users int) (got taken) {
	t.Helper()
	command := "cd $TMPDIR && cat > take.py <<'END'\n" + takeScript + "END\n" +
		"mkfifo hold && (exec 5<>hold; setsid python3 take.py " + strings.Join(takeArguments(inotify, most, users), " ") + " <hold >out 2>err &)\n" +
		"for n in $(seq 6000); do if [ -s out -o -s err ]; then break; fi; sleep 0.01; done; cat out; cat err >&2"
	answer := sh(t, s, command)
	if err := json.Unmarshal([]byte(answer.Output), &got); err != nil {
		t.Fatalf("%v: %+v", err, answer)
	}
	return got
}

// takeHere takes a few as the server's user.
func takeHere(t *testing.T) (got taken) {
	t.Helper()
	script := filepath.Join(t.TempDir(), "take.py")
	must.Do(t, os.WriteFile(script, []byte(takeScript), 0o644))
	cmd := exec.CommandContext(t.Context(), "python3", append([]string{script}, takeArguments(true, modest, 1)...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must.Do(t, err)
	out, err := cmd.StdoutPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadBytes('\n')
	in.Close()
	if wait := cmd.Wait(); wait != nil {
		t.Error(wait)
	}
	must.Do(t, err)
	must.Do(t, json.Unmarshal(line, &got))
	return got
}

// TestCounters checks that a sandbox's own user namespace has maxima, and that the
// sandbox cannot change them.
func TestCounters(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, newRoom(t), engine.SandboxOptions{})
	if !exists(counter.Directory) {
		t.Skip("this kernel has no maxima for user namespaces")
	}
	got := sh(t, s, "cd /proc/sys/user && cat max_user_namespaces max_inotify_instances && for f in *; do echo 1000000 > $f && echo changed $f; done")
	var namespaces, instances int
	if _, err := fmt.Sscan(got.Output, &namespaces, &instances); err != nil {
		t.Errorf("%v: %+v", err, got)
	}
	if namespaces != 0 || instances < 1 || instances > 1<<16 {
		t.Errorf("got %d namespaces and %d inotify instances, want 0, and 1 to %d", namespaces, instances, 1<<16)
	}
	if strings.Contains(got.Output, "changed") {
		t.Errorf("the sandbox changed its maxima: %s", got.Output)
	}
}

// TestAsynchronousRequests checks that a sandbox gets no asynchronous requests: the
// kernel counts them for the whole machine.
func TestAsynchronousRequests(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, newRoom(t), engine.SandboxOptions{})
	script := fmt.Sprintf("import ctypes; l = ctypes.CDLL(None, use_errno=True); c = ctypes.c_ulong(); print(l.syscall(%d, 1, ctypes.byref(c)), ctypes.get_errno())", unix.SYS_IO_SETUP)
	if got, want := sh(t, s, "python3 -c '"+script+"'"), fmt.Sprintf("-1 %d\n", unix.ENOSYS); got.Output != want {
		t.Errorf("got %+v, want %q", got, want)
	}
}

// TestUninherited checks that sandboxes do not inherit the server's privileges.
func TestUninherited(t *testing.T) {
	t.Parallel()
	for resource, value := range map[int]uint64{unix.RLIMIT_RTPRIO: 10, unix.RLIMIT_NICE: 30, unix.RLIMIT_MEMLOCK: 1 << 30} {
		// This gives sandboxes something to inherit, if this user may do so.
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: value, Max: value}); err != nil && !errors.Is(err, unix.EPERM) {
			t.Fatal(err)
		}
	}
	machine, err := cgroup.ReadNumber("/proc/sys/fs/file-max")
	must.Do(t, err)
	for _, level := range []engine.Isolation{engine.Full, engine.Restricted} {
		s := newSandbox(t, newRoomOn(t, level), engine.SandboxOptions{Limits: engine.Limits{MaxProcesses: 500}})
		got := sh(t, s, "python3 -c 'import resource as r; print(*[r.getrlimit(n)[1] for n in (r.RLIMIT_RTPRIO, r.RLIMIT_NICE, r.RLIMIT_MEMLOCK, r.RLIMIT_SIGPENDING, r.RLIMIT_MSGQUEUE, r.RLIMIT_NOFILE)])'")
		var priority, nice, locked, signals, queues, files int64
		if _, err := fmt.Sscan(got.Output, &priority, &nice, &locked, &signals, &queues, &files); err != nil {
			t.Fatalf("%v: %+v", err, got)
		}
		if priority != 0 || nice != 0 {
			t.Errorf("%s: got the priorities %d and %d, want 0", level, priority, nice)
		}
		if locked > maxLockedMemory || signals > maxQueuedSignals || queues > 1<<20 {
			t.Errorf("%s: got %d bytes of locked memory, %d signals and %d bytes of queues, want at most %d, %d and %d",
				level, locked, signals, queues, maxLockedMemory, maxQueuedSignals, 1<<20)
		}
		if files*500 > machine/2 && files > minOpenFiles {
			t.Errorf("%s: 500 processes of %d files each, and the machine has %d", level, files, machine)
		}
	}
}

func TestShareFiles(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		machine, own uint64
		processes    int
		want         uint64
	}{
		{math.MaxInt64, 1 << 30, 1024, maxOpenFiles},
		{math.MaxInt64, 1 << 12, 1024, 1 << 11},
		{2 << 20, 1 << 20, 1024, 1 << 10},
		{200_000, 1 << 20, 1024, minOpenFiles},
	} {
		if got := shareFiles(tt.machine, tt.own, tt.processes); got != tt.want {
			t.Errorf("%+v: got %d", tt, got)
		}
	}
}

// TestCloudProcesses checks that all sandboxes together have no more processes than
// the cloud may have. At that number, the room still works. Soon after one sandbox has
// ended, others start again.
func TestCloudProcesses(t *testing.T) {
	t.Parallel()
	const all, each = 250, 200
	r := startRoom(t, Options{Processes: all})
	defer r.Close()
	if r.ids.ranged && r.keeper.groups.How("pids") == "" {
		t.Skipf("nothing counts the processes of all sandboxes: %s", r.keeper.groups.Why["pids"])
	}
	limits := engine.Limits{MaxProcesses: each}
	var sandboxes []*Sandbox
	for _, id := range []string{"one", "two"} {
		sandboxes = append(sandboxes, newSandbox(t, r, engine.SandboxOptions{ID: id, Limits: limits}))
	}
	// The shell waits without another process, which it may not get.
	const greedy = `cd $TMPDIR && cat > forks.py <<'END'
import os, signal
n = 0
try:
    while n < 1000:
        if os.fork() == 0:
            signal.pause()
        n += 1
except OSError:
    pass
print(n, flush=True)
signal.pause()
END
mkfifo told && exec 3<>told
(exec setsid python3 forks.py >told 2>&1) &
read -r n <&3; echo "$n"`
	total := 0
	for _, s := range sandboxes {
		got, n := sh(t, s, greedy), 0
		if _, err := fmt.Sscan(got.Output, &n); err != nil && !strings.Contains(got.Output, "ork") { // "cannot fork"
			t.Fatalf("%v: %+v", err, got)
		}
		t.Logf("%s has %d", s.options.ID, n)
		total += n
	}
	if total > all || total < each/2 {
		t.Errorf("%d processes in all, of at most %d", total, all)
	}
	for range 10 { // these soon fail, and must not end the room
		if s, err := r.NewSandbox(t.Context(), engine.SandboxOptions{ID: "late", Limits: limits}); err == nil {
			s.Close()
		}
	}
	if err := sandboxes[0].Close(); err != nil {
		t.Error(err)
	}
	patience.Until(t, "the other sandbox starts a process", func() bool { return sh(t, sandboxes[1], "echo alive").Output == "alive\n" })
	if got := sh(t, newSandbox(t, r, engine.SandboxOptions{ID: "next", Limits: limits}), "echo alive"); got.Output != "alive\n" {
		t.Errorf("%+v", got)
	}
}

// TestBoots checks that each boot of a sandbox has an identifier of its own.
func TestBoots(t *testing.T) {
	t.Parallel()
	r := newRoomOn(t, engine.Full)
	host, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	must.Do(t, err)
	seen := map[string]bool{string(host): true}
	for range 2 {
		s := newSandbox(t, r, engine.SandboxOptions{})
		const read = "cat /proc/sys/kernel/random/boot_id"
		got := sh(t, s, read)
		if len(got.Output) != len(host) || seen[got.Output] {
			t.Errorf("got %+v, want an identifier that nobody else has", got)
		}
		seen[got.Output] = true
		if again := sh(t, s, read); again.Output != got.Output {
			t.Errorf("got %+v, and before %+v", again, got)
		}
		if got := sh(t, s, "echo x >/proc/sys/kernel/random/boot_id || umount /proc/sys/kernel/random/boot_id"); got.Output == "" {
			t.Errorf("got %+v, want that it cannot be changed", got)
		}
	}
}
