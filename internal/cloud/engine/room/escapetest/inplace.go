//go:build linux

package escapetest

import "fmt"

// InPlace returns what code must not be able to do besides where its sandbox has no
// namespaces, and its files are the machine's. With namespaces no other account reaches
// the files.
func InPlace() []Escape {
	escapes := []Escape{
		{"set-user-ID by an asynchronous request", inCalls("assert call(425, 425, 1, ctypes.create_string_buffer(120)) >= 0"), false},
		{"calls of 32-bit programs", inCalls(`import mmap
code = mmap.mmap(-1, 4096, prot=7)
code.write({"x86_64": b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"}[os.uname().machine])
assert ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))() > 0`), false},
		{"calls of x32", inCalls("assert call(0x40000027, -1) > 0"), false},
	}
	for _, c := range setIDCalls {
		escapes = append(escapes, Escape{"set-user-ID by " + c.name, setID(c.call), false})
	}
	return escapes
}

// setIDCalls are the calls that give a file a mode: f is a file and its descriptor, made is
// not there yet, and m is the mode. The numbers are those of amd64 and arm64.
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

// inCalls returns a command that escapes if a script in Python, which can make any call by
// its number, raises no exception.
func inCalls(script string) string {
	return inPython(`import ctypes, os
def call(amd64, arm64, *arguments):
 number = {"x86_64": amd64, "aarch64": arm64}[os.uname().machine]
 return -1 if number < 0 else ctypes.CDLL(None).syscall(number, *arguments)
` + script)
}
