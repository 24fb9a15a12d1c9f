//go:build linux

package room

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/instance"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/orphan"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

func TestRestricted(t *testing.T) {
	t.Parallel()
	r := newRoomOn(t, engine.Restricted)
	s := newSandbox(t, r, engine.SandboxOptions{})
	t.Logf("%+v", r.Report())
	secret := filepath.Join(t.TempDir(), "secret")
	must.Do(t, os.WriteFile(secret, []byte("ESCAPED"), 0o644))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	defer listener.Close()
	victim := r.keeper.running().Cmd.Process.Pid
	tests := []struct{ name, command string }{
		{"host file", "cat " + secret},
		{"host directory", "touch " + filepath.Dir(secret) + "/new && echo ESCAPED"},
		{"host process", fmt.Sprintf("kill -0 %d && echo ESCAPED", victim)},
		{"host process's environment", fmt.Sprintf("cat /proc/%d/environ && echo ESCAPED; cat /proc/%d/environ && echo ESCAPED", os.Getpid(), victim)},
		{"host process's root", fmt.Sprintf("cat /proc/%d/root%s", os.Getpid(), secret)},
		{"envd's environment", "cat /proc/$PPID/environ && echo ESCAPED"},
		{"envd's executable", "echo x >> /proc/$PPID/exe && echo ESCAPED"},
		{"envd's arguments of system calls", "cat /proc/$PPID/task/*/syscall | grep . && echo ESCAPED"},
		{"envd's memory", "head -c 1 /proc/$PPID/mem && echo ESCAPED; cat /proc/$PPID/maps | grep . && echo ESCAPED"},
		{"envd's descriptors", "ls /proc/$PPID/fd | grep . && echo ESCAPED"},
		{"host loopback", fmt.Sprintf("bash -c 'exec 5<>/dev/tcp/127.0.0.1/%d' && echo ESCAPED", listener.Addr().(*net.TCPAddr).Port)},
		{"a socket", `python3 -c 'import socket; socket.socket(socket.AF_UNIX); print("ESCAPED")'`},
		{"core_pattern", "echo x > /proc/sys/kernel/core_pattern && echo ESCAPED"},
		{"nested user namespace", "unshare -U true && echo ESCAPED"},
		{"a mount", "mount -t tmpfs none $TMPDIR && echo ESCAPED"},
		{"other sandboxes", "ls " + r.keeper.spec.Roots + " && echo ESCAPED"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := sh(t, s, "("+tt.command+"); echo tried")
			if strings.Contains(got.Output, "ESCAPED") || !strings.HasSuffix(got.Output, "tried\n") {
				t.Errorf("%s\n%+v", tt.command, got)
			}
		})
	}
	if os.Geteuid() == 0 {
		if got := sh(t, s, "id -u"); got.Output == "0\n" {
			t.Error("it runs as the host's root")
		}
	}
}

// TestOwnProcess checks that a restricted sandbox may make calls about its own processes
// that it may not make about others.
func TestOwnProcess(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, newRoomOn(t, engine.Restricted), engine.SandboxOptions{})
	tests := []ownTest{
		{"limits", "ulimit -n 64 && python3 -c 'import os, resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[1], resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE)[1])'", "64 64"},
		{"priority", "nice -n 3 python3 -c 'import os; print(os.getpriority(os.PRIO_PROCESS, 0), os.nice(2))'", niceness(t, 3) + " " + niceness(t, 5)},
		{"processors", "python3 -c 'import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); print(len(os.sched_getaffinity(os.getpid())))'", "1"},
		{"scheduling", "python3 -c 'import os; os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)); print(os.sched_getscheduler(0) == os.SCHED_BATCH)'", "True"},
		{"pairs of sockets", `python3 -c 'import asyncio, socket; a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK); a.send(b"x"); print(b.recv(1), asyncio.run(asyncio.sleep(0, 7)))'`, "b'x' 7"},
		{"attributes", "cd $TMPDIR && touch -d 2001-01-01 a && chmod 640 a && cp -a a b && stat -c '%a %y' b | cut -c1-14 && python3 -c 'import shutil; print(shutil.copy2(\"b\", \"c\"))'", "640 2001-01-01\nc"},
	}
	for _, tt := range append(tests, ownFiles...) {
		t.Run(tt.name, func(t *testing.T) {
			if got := sh(t, s, tt.command); got.Output != tt.want+"\n" {
				t.Errorf("%s\n%+v, want %s", tt.command, got, tt.want)
			}
		})
	}
}

// niceness returns the nice value of a process that is nicer than this one by some steps.
func niceness(t *testing.T, steps int) string {
	t.Helper()
	priority, err := unix.Getpriority(unix.PRIO_PROCESS, 0) // 20 less the nice value
	must.Do(t, err)
	return strconv.Itoa(min(20-priority+steps, 19))
}

// ownTest is a command that prints the wanted output.
type ownTest struct{ name, command, want string }

// ownFiles change files of the sandbox in the ways that programs do.
var ownFiles = []ownTest{
	{"modes", inPython(`os.makedirs("a/b"); open("a/b/c", "w").close(); os.chmod("a/b/c", 0o604); os.chdir("a"); os.chmod("b", 0o711)
d = os.open("b", os.O_RDONLY); f = os.open("c", os.O_RDONLY, dir_fd=d); os.chmod("c", 0o640, dir_fd=d); print(mode("b"), mode("b/c"))
os.fchmod(f, 0o600); print(mode("b/c")); os.symlink("b/c", "link"); os.chmod("link", 0o642); print(mode("b/c"))
os.chmod("/proc/self/fd/%d" % f, 0o644); print(mode("b/c")); os.chmod("../a/./b/../b/c", 0o400); print(mode("b/c"))`),
		"711 640\n600\n642\n644\n400"},
	{"a file without a name", inPython(`f = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600); os.fchmod(f, 0o644); os.utime(f, (1, 2)); print(oct(os.fstat(f).st_mode & 0o7777), os.fstat(f).st_mtime)`), "0o644 2.0"},
	{"owners", inPython(`open("o", "w").close(); os.chown("o", os.getuid(), os.getgid()); os.chown("o", -1, -1); os.symlink("no", "l"); os.lchown("l", os.getuid(), -1)
f = os.open("o", 0); os.fchown(f, -1, os.getgid()); print(os.stat("o").st_uid == os.getuid())`), "True"},
	{"times", inPython(`open("t", "w").close(); os.utime("t", (1, 2)); print(os.stat("t").st_mtime); os.utime("t", ns=(3, 4)); print(os.stat("t").st_mtime_ns); os.utime("t"); print(os.stat("t").st_mtime > 10**9)
os.symlink("t", "s"); os.utime("s", (5, 6), follow_symlinks=False); print(os.lstat("s").st_mtime); f = os.open("t", 0); os.utime(f, (7, 8)); print(os.stat("t").st_mtime)`), "2.0\n4\nTrue\n6.0\n8.0"},
	{"errors", inPython(`
def fails(f, *a, **k):
 try: f(*a, **k)
 except OSError as e: print(e.errno)
open("e", "w").close(); os.symlink("loop", "loop")
fails(os.chmod, "none", 0o600); fails(os.chmod, "loop", 0o600); fails(os.chmod, "e/x", 0o600); fails(os.fchmod, 999, 0o600); fails(os.utime, "x" * 5000); fails(os.chmod, os.open("e", os.O_PATH), 0o600)
fails(os.chmod, "", 0o600); fails(os.chown, "e", 0, 0)`), "2\n40\n20\n9\n36\n9\n2\n1"},
	{"threads", inPython(`import threading
def change(): os.makedirs("th", exist_ok=True); f = os.open("th", 0); os.fchmod(f, 0o700); os.chmod("th", 0o755); os.close(f)
all = [threading.Thread(target=change) for _ in range(20)]; [t.start() for t in all]; [t.join() for t in all]; print(mode("th"))`), "755"},
	{"the first thread has ended", inPython(`import ctypes, sys, threading, time; f = os.open("f", os.O_CREAT | os.O_RDWR); first = "/proc/self/task/%d/stat" % os.getpid()
def change():
 while ") Z " not in open(first).read(): pass
 os.fchmod(f, 0o600); os.chmod("f", 0o640, dir_fd=os.open(".", 0)); print(mode("f"), flush=True); os._exit(0)
threading.Thread(target=change).start(); ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)`), "640"},
	{"a daemon", inPython(`r, w = os.pipe()
if os.fork() == 0:
 os.setsid(); middle = os.getpid()
 if os.fork() == 0:
  while os.getppid() == middle: pass
  open("d", "w").close(); os.chmod("d", 0o604); os.fchmod(os.open("d", 0), 0o640); os.write(w, mode("d").encode())
 os._exit(0)
os.close(w); print(os.read(r, 9).decode())`), "640"},
	{"programs that are killed", inPython(`import signal; open("k", "w").close()
def change():
 while True: os.chmod("k", 0o600); os.utime("k")
for i in range(30):
 pid = os.fork()
 if pid == 0: change()
 while os.stat("k").st_mode & 0o777 != 0o600: pass
 os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0); os.chmod("k", 0o640)
print(mode("k"))`), "640"},
	{"a directory that is watched", inPython(`import ctypes; l = ctypes.CDLL(None); os.makedirs("w/x"); i = l.inotify_init1(0); a = l.inotify_add_watch(i, b"w", 0xfff); b = l.inotify_add_watch(i, b"w/x", 0x100 | 0x02000000)
print(a, b, l.inotify_add_watch(i, b"w", 0xfff)); open("w/x/new", "w").close(); print(b"new" in os.read(i, 4096)); print(l.inotify_rm_watch(i, a))`), "1 2 1\nTrue\n0"},
	{"a program that nobody may look into", inPython(`import ctypes; open("d", "w").close(); ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
try: os.chmod("d", 0o600)
except PermissionError: print("refused")`), "refused"},
	{"archives", "cd $(mktemp -d) && mkdir -p in/d && echo x > in/d/f && chmod 640 in/d/f && ln -s f in/d/l && touch -d 2001-01-01 in/d/f in/d && tar cf a.tar in && mkdir out && tar xpf a.tar -C out && stat -c '%a %y' out/in/d/f | cut -c1-14 && " +
		`python3 -c 'import shutil, tarfile; shutil.copytree("in", "copied", symlinks=True); shutil.copy("in/d/f", "g"); shutil.make_archive("z", "gztar", "in"); shutil.unpack_archive("z.tar.gz", "un"); print(*sorted(__import__("os").listdir("un/d")))' && stat -c %a g copied/d/f un/d/f`,
		"640 2001-01-01\nf l\n640\n640\n640"},
}

// startFlood starts programs that change files without end, 24 at once.
const startFlood = `mkdir $TMPDIR/flood && cd $TMPDIR/flood && exec python3 -c '
import os
for i in range(23):
    if os.fork() == 0: break
file = str(os.getpid())
open(file, "w").close()
try:
    while True: os.chmod(file, 0o600); os.utime(file, (1, 2)); os.chmod(file, 0o640)
except BaseException as e: open("failed", "w").write(repr(e))
'`

// TestFlood checks that programs that change files without end block neither other programs
// of the sandbox nor envd.
func TestFlood(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, newRoomOn(t, engine.Restricted), engine.SandboxOptions{})
	background(t, s, startFlood)
	patience.Until(t, "the flood is there", func() bool { return sh(t, s, "ls $TMPDIR/flood | wc -l").Output == "24\n" })
	for _, tt := range ownFiles {
		if got := sh(t, s, tt.command); got.Output != tt.want+"\n" {
			t.Errorf("%s\n%+v, want %s", tt.command, got, tt.want)
		}
	}
	own := filepath.Join(s.files.root.Dir, "own")
	if got := call(t, s, "/own", testRequest{Command: own}); got.Output != "-rw-r-----" || got.Error != "" {
		t.Errorf("envd's own file: %+v", got)
	}
	if got := call(t, s, "/own", testRequest{Command: filepath.Join(filepath.Dir(s.files.root.Dir), "own")}); !strings.Contains(got.Error, "denied") {
		t.Errorf("envd's file in another directory: %+v", got)
	}
	if got := sh(t, s, "cat $TMPDIR/flood/failed"); got.Status == 0 {
		t.Errorf("a call failed: %s", got.Output)
	}
}

// inPython returns a command that runs a script in a new directory.
func inPython(script string) string {
	return "cd $(mktemp -d) && python3 -c '" + "import os\ndef mode(p): return oct(os.stat(p).st_mode & 0o7777)[2:]\n" + script + "'"
}

// TestTerminals checks that a restricted sandbox gets terminals from the server up to a
// limit, and that closed ones no longer count.
func TestTerminals(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, newRoomOn(t, engine.Restricted), engine.SandboxOptions{})
	for range 2 {
		got := call(t, s, "/terminals", testRequest{})
		if got.Status != guest.MaxTerminals || got.Output != "through\r\n" || !strings.Contains(got.Error, "256 terminals are open") {
			t.Errorf("%+v", got)
		}
	}
}

// TestInPlace checks a sandbox without namespaces, and that it leaves nothing behind.
func TestInPlace(t *testing.T) {
	t.Parallel()
	for _, level := range []engine.Isolation{engine.Restricted, engine.None} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			r := newRoomOn(t, level)
			if got := r.Report().Isolation; got != level {
				t.Fatalf("the room is on %q", got)
			}
			s, other := newSandbox(t, r, engine.SandboxOptions{}), newSandbox(t, r, engine.SandboxOptions{ID: "other"})
			if got := sh(t, s, `cd && pwd && echo x > file && mkdir $TMPDIR/closed && touch $TMPDIR/closed/in && chmod 0 $TMPDIR/closed && python3 -c 'print(6*7)'`); !strings.HasSuffix(got.Output, "/home/user\n42\n") {
				t.Errorf("got %+v", got)
			}
			// The process leaves its session and its parent, and still ends with
			// the sandbox.
			if got := sh(t, s, "setsid sh -c 'while :; do sleep 1000; done' >/dev/null 2>&1 & echo $!"); got.Status != 0 {
				t.Errorf("%+v", got)
			}
			dir := s.files.root.Dir
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if exists(dir) {
				t.Errorf("%s is left", dir)
			}
			if pids, err := orphan.ChildrenOf(roomPID(t, r)); err != nil || len(pids) != 1 {
				t.Errorf("the room has the children %v, and one sandbox: %v", pids, err)
			}
			if got := sh(t, other, "echo alive"); got.Output != "alive\n" {
				t.Errorf("the other sandbox: %+v", got)
			}
		})
	}
}

// TestMakeRoots checks that the directory of sandboxes is a new one or one of this user, and
// never another user's in its place.
func TestMakeRoots(t *testing.T) {
	r := &Room{level: engine.Restricted, keeper: &Keeper{spec: instance.Spec{Roots: filepath.Join(t.TempDir(), "sandboxes")}}}
	for range 2 { // one for each level
		if err := r.makeRoots(); err != nil {
			t.Error(err)
		}
	}
	if info, err := os.Lstat(r.keeper.spec.Roots); err != nil || info.Mode() != fs.ModeDir|0o711 {
		t.Errorf("got %v and error %v, want a directory with mode 0711", info, err)
	}
	none := &Room{level: engine.Restricted, keeper: &Keeper{spec: instance.Spec{Roots: filepath.Join(t.TempDir(), "none", "sandboxes")}}}
	t.Setenv("TMPDIR", filepath.Dir(none.keeper.spec.Roots))
	if err := none.makeRoots(); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "; set TMPDIR to a directory that other users may pass through") {
		t.Errorf("without the directory for temporary files: got %v, want that and what to do", err)
	}
	takes := map[string]func() error{
		"a link": func() error { return os.Symlink(t.TempDir(), r.keeper.spec.Roots) },
		"a file": func() error { return os.WriteFile(r.keeper.spec.Roots, nil, 0o600) },
	}
	if os.Geteuid() == 0 {
		takes["another user's"] = func() error {
			return errors.Join(os.Mkdir(r.keeper.spec.Roots, 0o700), os.Chown(r.keeper.spec.Roots, 1, 1))
		}
	}
	for name, take := range takes {
		must.Do(t, errors.Join(os.Remove(r.keeper.spec.Roots), take()))
		if err := r.makeRoots(); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: got error %v, want one that it exists", name, err)
		}
	}
}
