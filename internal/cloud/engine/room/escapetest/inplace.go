//go:build linux

package escapetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// InPlace returns further escapes that a sandbox without namespaces must prevent, because its files
// are files of the machine. With namespaces, no other account of the machine can reach the sandbox's
// files, and the sandbox cannot reach any file of the machine.
func InPlace(t testing.TB) []Escape {
	t.Helper()
	victim := newVictim(t)
	escapes := []Escape{
		{"set-user-ID by an asynchronous request", inCalls("assert call(425, 425, 1, ctypes.create_string_buffer(120)) >= 0"), false},
		{"calls of 32-bit programs", inCalls(`import mmap
assert os.uname().machine == "x86_64"
code = mmap.mmap(-1, 4096, prot=7)
code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
assert ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))() > 0`), false},
		{"calls of x32", inCalls("assert call(0x40000027, -1) > 0"), false},
	}
	for _, c := range setIDCalls {
		escapes = append(escapes, Escape{"set-user-ID by " + c.name, setID(c.call), false})
	}
	for _, c := range changes {
		escapes = append(escapes, Escape{"change of a host file by " + c.name, changesHost(victim, c.calls), false})
	}
	return escapes
}

// newVictim makes a file that every id of the host may write to.
func newVictim(t testing.TB) (path string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "escape") //nolint:usetesting // other ids may not enter a test's own directory
	must.Do(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path = filepath.Join(dir, "victim")
	must.Do(t, errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o666), os.Chmod(dir, 0o755)))
	return path
}

// setIDCalls are the calls that set the mode of a file. In them, b"f" is the name of a file, and f
// is its descriptor. b"made" is the name of a file that does not exist yet. m is the mode. The
// numbers are the numbers of the system calls on amd64 and arm64.
var setIDCalls = []struct{ name, call string }{
	{"chmod", `call(90, -1, b"f", m)`},
	{"fchmod", `call(91, 52, f, m)`},
	{"fchmodat", `call(268, 53, -100, b"f", m)`},
	{"fchmodat2", `call(452, 452, -100, b"f", m, 0)`},
	{"fchmodat2 of a descriptor", `call(452, 452, f, b"", m, 0x1000)`},
	{"open", `call(2, -1, b"made", os.O_CREAT | os.O_WRONLY, m)`},
	{"open without a name", `call(2, -1, b".", os.O_TMPFILE | os.O_WRONLY, m)`},
	{"creat", `call(85, -1, b"made", m)`},
	{"openat", `call(257, 56, -100, b"made", os.O_CREAT | os.O_WRONLY, m)`},
	{"openat without a name", `call(257, 56, -100, b".", os.O_TMPFILE | os.O_WRONLY, m)`},
	{"openat2", `call(437, 437, -100, b"made", (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, m, 0), 24)`},
	{"openat2 without a name", `call(437, 437, -100, b".", (ctypes.c_uint64 * 3)(os.O_TMPFILE | os.O_WRONLY, m, 0), 24)`},
	{"mkdir", `call(83, -1, b"made", m)`},
	{"mkdirat", `call(258, 34, -100, b"made", m)`},
	{"mknod", `call(133, -1, b"made", 0o100000 | m, 0)`},
	{"mknodat", `call(259, 33, -100, b"made", 0o100000 | m, 0)`},
	{"mknod of a pipe", `call(133, -1, b"made", 0o010000 | m, 0)`},
}

// setID returns a command that escapes if a file has a set-user-ID or set-group-ID bit
// after the call.
func setID(call string) string {
	return inCalls(fmt.Sprintf(`os.chdir(os.environ["TMPDIR"])
f = os.open("f", os.O_CREAT | os.O_RDWR)
set = []
for m in (0o4755, 0o2755, 0o6711):
 got = %s
 files = ["f", "made"] if got <= 0 else ["f", "made", got]
 set += [n for n in files if os.path.exists(n) and os.stat(n).st_mode & 0o6000]
assert set`, call))
}

// changes are calls that change a file of the machine, or watch it. Their variables: path is the path of the
// file, link is a link to it, below is its path relative to the root, slash is a descriptor of the root, and
// held is a descriptor of the file. module is a descriptor of another file, opened for reading.
// This other file may belong to this user. own is the mode of the other file, and same are the
// times of the other file.
var changes = []struct{ name, calls string }{
	{"chmod", `call(90, -1, path, mode), call(90, -1, link, mode), call(90, -1, up, mode), call(90, -1, b"/proc/self/fd/%d" % held, mode), call(90, -1, b"/proc/self/cwd/link", mode)`},
	{"fchmod", `call(91, 52, held, mode), call(91, 52, module, own), call(268, 53, -100, b"/proc/self/fd/%d" % module, own), call(452, 452, module, b"", own, 0x1000)`},
	{"fchmodat", `call(268, 53, -100, path, mode), call(268, 53, slash, below, mode), call(268, 53, -100, link, mode), call(268, 53, -100, b"/dev/fd/%d" % held, mode)`},
	{"fchmodat2", `call(452, 452, -100, path, mode, 0), call(452, 452, slash, below, mode, 0x100), call(452, 452, held, b"", mode, 0x1000)`},
	{"chown", `call(92, -1, path, -1, -1), call(92, -1, link, os.getuid(), os.getgid())`},
	{"lchown", `call(94, -1, path, os.getuid(), os.getgid()), call(94, -1, b"dir/victim", os.getuid(), -1)`},
	{"fchown", `call(93, 55, held, os.getuid(), -1), call(93, 55, module, -1, -1), call(260, 54, module, b"", -1, -1, 0x1000)`},
	{"fchownat", `call(260, 54, -100, path, os.getuid(), -1, 0), call(260, 54, slash, below, -1, os.getgid(), 0x100), call(260, 54, held, b"", os.getuid(), -1, 0x1000)`},
	{"utime", `call(132, -1, path, times), call(132, -1, link, None)`},
	{"utimes", `call(235, -1, path, times), call(235, -1, up, None)`},
	{"futimesat", `call(261, -1, -100, path, times), call(261, -1, slash, below, None), call(261, -1, held, None, None)`},
	{"utimensat", `call(280, 88, -100, path, times, 0), call(280, 88, slash, below, None, 0), call(280, 88, held, None, None, 0), call(280, 88, module, None, same, 0), call(280, 88, held, b"", None, 0x1000)`},
	{"attributes", `call(188, 5, path, b"user.a", b"", 0, 0), call(190, 7, held, b"user.a", b"", 0, 0), call(197, 14, path, b"user.a"), call(463, 463, -100, path, 0, b"user.a", times, 16), call(469, 469, -100, path, times, 24, 0)`},
	{"watching", `[call(254, 27, watcher, p, 0xfff) for p in (path, link, up, b"/", b"/tmp", b"dir", b"/proc/self/fd/%d" % held, os.path.dirname(path), os.path.dirname(root), os.path.dirname(os.path.dirname(root)), b"/usr")]`},
	{"notices of a directory", `[call(72, 25, usr, command, 0x80000007) for command in (1026, 1040)]`},
	{"a lease", `call(72, 25, module, 1024, 0)`},
	{"a hint", `call(72, 25, module, 1036, times)`},
	{"flags", `call(16, 29, module, 0x40086602, times), call(16, 29, usr, 0x401c5820, times), call(16, 29, usr, 0x5000940e, times)`},
	{"the directory of sandboxes", `call(90, -1, os.path.dirname(root), 0o711), call(90, -1, os.path.dirname(os.path.dirname(root)), 0o700), call(268, 53, os.open("..", os.O_PATH), b"../..", 0o711), call(280, 88, os.open(os.path.dirname(root), os.O_PATH), b"", None, 0x1000)`},
	{"another listener", `call(317, 277, 1, 8, filters)`},
	{"a path that changes", `race(lambda: (ctypes.memmove(text, mine, len(mine) + 1), ctypes.memmove(text, path, len(path) + 1)), lambda: call(268, 53, -100, text, mode))`},
	{"a directory that changes", `race(lambda: (os.symlink(os.path.dirname(path), b"other"), os.rename(b"other", b"turns"), os.unlink(b"turns"), os.mkdir(b"turns"), open(b"turns/victim", "w").close(), os.unlink(b"turns/victim"), os.rmdir(b"turns")), lambda: call(268, 53, -100, b"turns/victim", mode))`},
}

// raceTime returns the number of seconds for which a path changes while calls use it.
func raceTime() float64 {
	if os.Getenv("SOAK") != "" {
		return 10
	}
	return 0.4
}

// changesHost returns a command that escapes if one of the calls succeeds, or if the file has
// changed in any way afterwards.
func changesHost(victim, calls string) string {
	return inCalls(fmt.Sprintf(`import sys, threading, time
os.chdir(os.environ["TMPDIR"])
path = %q.encode()
below, link, up = path[1:], b"link", b"../" * 40 + path[1:]
os.symlink(path, link); os.symlink(os.path.dirname(path), b"dir")
root = os.path.dirname(os.environ["TMPDIR"].encode())
while os.path.exists(os.path.join(os.path.dirname(root), b"home")): root = os.path.dirname(root)
slash, held, usr = os.open("/", os.O_PATH), os.open(path, os.O_PATH), os.open("/usr", 0)
settings = os.path.join(sys.prefix, "pyvenv.cfg")
module, watcher = os.open(settings if os.path.exists(settings) else os.__file__, 0), call(294, 26, 0)
assert watcher > 0
before = os.stat(path)
mode, times = before.st_mode & 0o777, (ctypes.c_int64 * 16)()
it = os.fstat(module)
own, same = it.st_mode & 0o777, (ctypes.c_int64 * 4)(*divmod(it.st_atime_ns, 10**9), *divmod(it.st_mtime_ns, 10**9))
filters = (ctypes.c_uint64 * 2)(1, ctypes.addressof(ctypes.create_string_buffer(b"\6\0\0\0\0\0\xff\x7f")))
mine = os.path.join(os.getcwdb(), b"mine")
open(mine, "w").close()
text = ctypes.create_string_buffer(4096)
def race(turn, make):
 end = time.monotonic() + %g
 def turns():
  while time.monotonic() < end:
   try: turn()
   except OSError: pass
 other = threading.Thread(target=turns); other.start()
 while other.is_alive(): make()
 return -1
def flat(got): return [n for g in got for n in flat(g)] if isinstance(got, (tuple, list)) else [got]
got = flat((%s,))
after = os.stat(path)
assert any(n >= 0 for n in got) or before != after or before.st_ctime_ns != after.st_ctime_ns`, victim, raceTime(), calls))
}

// inCalls returns a command that runs a Python script. The script can make any system call by its
// number. The command counts as an escape unless the script ends with a failed assertion. The reason
// is that a script which ends earlier proves nothing.
func inCalls(script string) string {
	return inPython(`import ctypes, os
def call(amd64, arm64, *arguments):
 number = {"x86_64": amd64, "aarch64": arm64}[os.uname().machine]
 return -1 if number < 0 else ctypes.CDLL(None).syscall(number, *arguments)
try:
 ` + strings.ReplaceAll(script, "\n", "\n ") + `
except AssertionError: raise SystemExit(1)
except BaseException: pass`)
}
