//go:build linux

package room

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// lookAtMemory is the beginning of the programs below.
const lookAtMemory = `
import os, sys, time
def memory(text=None):
    lines = (text or open("/proc/meminfo").read()).splitlines()
    return {name: int(value.split()[0]) for name, value in (line.split(":") for line in lines)}
def until(so):
    end = time.monotonic() + 20
    while not so():
        if time.monotonic() > end:
            sys.exit("never: %s" % memory())
`

// TestMemoryInfo checks that /proc/meminfo shows the sandbox's limit and its use, to programs
// that open it and to those that keep it open.
func TestMemoryInfo(t *testing.T) {
	t.Parallel()
	r := newRoomWith(t, Options{Binary: withDetector})
	s := newSandbox(t, r, engine.SandboxOptions{Limits: engine.Limits{MemoryBytes: 512 << 20}})
	tests := []struct{ name, program, want string }{
		{"limit", `m = memory(); print(m["MemTotal"], m["SwapTotal"], 0 < m["MemFree"] <= m["MemAvailable"] < m["MemTotal"])`, "524288 0 True\n"},
		{"use", `
before = memory()
held = bytearray(os.urandom(1 << 20)) * 64
until(lambda: memory()["AnonPages"] > before["AnonPages"] + 60000 and memory()["MemFree"] < before["MemFree"] - 60000)
del held
until(lambda: memory()["AnonPages"] < before["AnonPages"] + 30000)
print("seen")`, "seen\n"},
		{"open file", `
kept = os.open("/proc/meminfo", os.O_RDONLY)
read = lambda: memory(os.pread(kept, 1 << 16, 0).decode())
before = read()
held = bytearray(os.urandom(1 << 20)) * 64
until(lambda: read()["AnonPages"] > before["AnonPages"] + 60000)
print("seen")`, "seen\n"},
		{"at most once a second", `
times, end = set(), time.monotonic() + 2.5
while time.monotonic() < end:
    memory()
    times.add(os.stat("/proc/meminfo").st_mtime_ns)
print(2 <= len(times) <= 4 or times)`, "True\n"},
		{"free", `
import shutil, subprocess
print(subprocess.check_output(["free", "-m"]).split()[7].decode() if shutil.which("free") else "512")`, "512\n"},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			command := fmt.Sprintf("python3 - <<'END'\n%s%s\nEND", lookAtMemory, tt.program)
			user := []string{"root", "user"}[i%2]
			if got := call(t, s, "/run", testRequest{Command: command, User: user}); got.Output != tt.want {
				t.Errorf("%s: got %+v, want %q", user, got, tt.want)
			}
		})
	}
}

// TestMemoryInfoStays checks that no program inside can change /proc/meminfo, or uncover the
// machine's.
func TestMemoryInfoStays(t *testing.T) {
	t.Parallel()
	r := newRoomWith(t, Options{Binary: withDetector})
	s := newSandbox(t, r, engine.SandboxOptions{Limits: engine.Limits{MemoryBytes: 512 << 20}})
	attempts := []string{
		"echo 1 > /proc/meminfo", "chmod 666 /proc/meminfo", "rm -f /proc/meminfo", "touch /proc/meminfo", "truncate -s 0 /proc/meminfo",
		"mv /etc/hostname /proc/meminfo", "umount /proc/meminfo", "umount -l /proc/meminfo", "umount -l /proc",
		"mount --bind /etc/hostname /proc/meminfo", "mount -o remount,rw,bind /proc/meminfo", "mount -t proc proc /mnt && cat /mnt/meminfo",
		"unshare -rm umount /proc/meminfo", "unshare -rmpf mount -t proc proc /proc", "for f in /proc/1/fd/*; do echo 1 > $f && exit 0; done; exit 1",
		"cat /proc/[0-9]*/root/proc/meminfo | grep MemTotal | grep -v 524288",
		`python3 -c 'import fcntl; fcntl.fcntl(open("/proc/meminfo"), fcntl.F_SETLEASE, fcntl.F_RDLCK)'`,
		`python3 -c 'import fcntl; fcntl.fcntl(open("/proc/meminfo"), fcntl.F_SETLEASE, fcntl.F_WRLCK)'`,
	}
	const total = "grep MemTotal /proc/meminfo"
	for _, user := range []string{"root", "user"} {
		for _, attempt := range attempts {
			got := call(t, s, "/run", testRequest{Command: "(" + attempt + ") 2>/dev/null </dev/null && echo done; " + total, User: user})
			if want := "MemTotal:         524288 kB\n"; got.Output != want {
				t.Errorf("%s: %s: got %+v, want %q", user, attempt, got, want)
			}
		}
		// Signals and locks only change the time at which the file is written.
		const disturb = `python3 -c 'import fcntl, os, signal
f = open("/proc/meminfo")
fcntl.flock(f, fcntl.LOCK_EX)
for _ in range(1000):
    try: os.kill(1, signal.SIGIO)
    except PermissionError: pass'; `
		if got := call(t, s, "/run", testRequest{Command: disturb + total, User: user}); !strings.Contains(got.Output, " 524288 kB") {
			t.Errorf("%s: got %+v, want the sandbox's limit", user, got)
		}
	}
}

// TestMemoryInfoIdle checks that neither envd nor the room wakes up for /proc/meminfo while
// no program has it open, before and after an open.
func TestMemoryInfoIdle(t *testing.T) {
	t.Parallel()
	r := newRoomWith(t, Options{Binary: withDetector})
	s := newSandbox(t, r, engine.SandboxOptions{Limits: engine.Limits{MemoryBytes: 512 << 20}})
	envd, err := pidOf(s.process.pidfd)
	must.Do(t, err)
	quiet := func(when string) {
		t.Helper()
		before, looks := -1, 0
		patience.Until(t, when+" nothing wakes up in a hundred looks, which take longer than a text stays", func() bool {
			if now := wakeUps(t, r.process.first.Cmd.Process.Pid) + wakeUps(t, envd); now != before {
				before, looks = now, 0
				return false
			}
			looks++
			return looks == 100
		})
	}
	quiet("at first")
	if got := call(t, s, "/run", testRequest{Command: "grep MemTotal /proc/meminfo"}); !strings.Contains(got.Output, " 524288 kB") {
		t.Errorf("got %+v, want the sandbox's limit", got)
	}
	quiet("after it was opened")
}

// wakeUps returns how often threads of a process have begun to run.
func wakeUps(t *testing.T, pid int) (sum int) {
	t.Helper()
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(names) == 0 {
		t.Fatalf("process %d has no threads: %v", pid, err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has ended
		}
		var ran, waited, times int
		if _, err := fmt.Sscan(string(text), &ran, &waited, &times); err != nil {
			t.Fatal(err)
		}
		sum += times
	}
	return sum
}
