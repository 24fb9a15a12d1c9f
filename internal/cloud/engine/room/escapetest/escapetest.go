//go:build linux

// Package escapetest lists the escapes that a sandbox must prevent, so that tests can try them from
// every program that runs there.
package escapetest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
)

// Escape is an act that a sandbox must prevent. It prints ESCAPED if it succeeds.
type Escape struct {
	Name, Command string
	// FullOnly marks escapes that isolation without namespaces does not promise to prevent. With
	// such isolation, a sandbox runs among the host's processes, and does not have its own
	// network.
	FullOnly bool
}

// host describes the targets that the escapes try to reach. All of them are outside the sandbox.
type host struct {
	secret  string // path of a file that contains ESCAPED
	port    int    // port of a listener on the loopback
	process int    // id of a process, in the host's numbering
	segment int    // id of a segment of System V memory
	socket  string // path of a socket that accepts datagrams
	tty     string // path of a terminal
}

func newHost(t testing.TB, process int) host {
	t.Helper()
	h := host{secret: filepath.Join(t.TempDir(), "secret"), process: process}
	must.Do(t, os.WriteFile(h.secret, []byte("ESCAPED"), 0o644))
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Do(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	h.port = listener.Addr().(*net.TCPAddr).Port
	h.segment, err = unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o666)
	must.Do(t, err)
	t.Cleanup(func() {
		if _, err := unix.SysvShmCtl(h.segment, unix.IPC_RMID, nil); err != nil {
			t.Error(err)
		}
	})
	h.listen(t)
	h.openTerminal(t)
	return h
}

// listen makes a socket that every id of the host may send to.
func (h *host) listen(t testing.TB) {
	t.Helper()
	dir, err := os.MkdirTemp("", "escape") //nolint:usetesting // a test's own directory has too long a name for a socket
	must.Do(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	h.socket = filepath.Join(dir, "socket")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: h.socket, Net: "unixgram"})
	must.Do(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	must.Do(t, errors.Join(os.Chmod(dir, 0o755), os.Chmod(h.socket, 0o666)))
}

// openTerminal makes a terminal that every id of the host may open.
func (h *host) openTerminal(t testing.TB) {
	t.Helper()
	controller, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	must.Do(t, err)
	t.Cleanup(func() { _ = controller.Close() })
	number, err := unix.IoctlGetUint32(int(controller.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(controller.Fd()), unix.TIOCSPTLCK, 0)
	}
	h.tty = fmt.Sprintf("/dev/pts/%d", number)
	must.Do(t, errors.Join(err, os.Chmod(h.tty, 0o666)))
}

// inPython returns a command that runs a Python script. The script has escaped if it raises no
// exception.
func inPython(script string) string {
	return "python3 -c '" + strings.ReplaceAll(script, "'", `"`) + "' 2>/dev/null && echo ESCAPED"
}

// List returns the escapes, written for /bin/sh, so that every program in a sandbox can try them.
// process is a process of the host that they target; List makes all other targets, and removes them
// when the test ends.
func List(t testing.TB, process int) []Escape {
	t.Helper()
	h := newHost(t, process)
	return []Escape{
		// Read.
		{"host file", "cat " + h.secret, false},
		{"host file through envd's root", "cat /proc/1/root" + h.secret, false},
		{"host directories", "for d in /root/.ssh /var/lib/systemd /boot /sys/kernel /etc/apt/auth.conf.d; do ls $d >/dev/null 2>&1 && echo ESCAPED $d; done", false},
		{"host accounts", "grep -v '^root:\\*\\?:\\|^user:\\*\\?:' /etc/shadow && echo ESCAPED", false},
		{"host's environment", "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep -i 'E2B_API_KEY\\|GOPATH' && echo ESCAPED", true},
		{"envd's environment", "cat /proc/1/environ && echo ESCAPED", false},
		{"envd's memory", "head -c 1 /proc/1/mem && echo ESCAPED", false},
		{"envd's memory by call", inPython("import ctypes; b = ctypes.create_string_buffer(64); v = (ctypes.c_size_t * 2)(ctypes.addressof(b), 64); r = (ctypes.c_size_t * 2)(0x400000, 64); assert ctypes.CDLL(None).process_vm_readv(1, v, 1, r, 1, 0) > 0"), false},
		{"envd's descriptors", "for f in /proc/1/fd/*; do readlink $f; done | grep . && echo ESCAPED; cat /proc/1/fd/2 && echo ESCAPED", false},
		{"kernel's memory", "head -c 1 /proc/kcore | grep -q . && echo ESCAPED; head -c 1 /dev/mem && echo ESCAPED; grep -v '^0000000000000000' /proc/kallsyms && echo ESCAPED", false},
		{"kernel's keys", "grep -q . /proc/keys && echo ESCAPED", true},
		{"kernel log", "dmesg && echo ESCAPED", false},
		{"the old root", "ls /proc/1/root/lower /lower /proc/self/root/../lower && echo ESCAPED", false},
		{"chroot and up", "mkdir -p $TMPDIR/j && chroot $TMPDIR/j /bin/sh -c 'cd ../../..; cat ." + h.secret + "'", false},
		{"host limits of the sandbox", "ls /sys/fs/cgroup/memory && echo ESCAPED", false},
		// Reach.
		{"host process", fmt.Sprintf("kill -0 %d && echo ESCAPED", h.process), true},
		{"host processes", "test $(ls /proc | grep -c '^[0-9]') -lt 10 || echo ESCAPED", true},
		{"host loopback", fmt.Sprintf("bash -c 'exec 5<>/dev/tcp/127.0.0.1/%d' && echo ESCAPED", h.port), false},
		{"host interfaces", "grep -v -e lo: -e face -e Inter /proc/net/dev && echo ESCAPED", true},
		{"host's System V memory", inPython(fmt.Sprintf("import ctypes; l = ctypes.CDLL(None); l.shmat.restype = ctypes.c_ssize_t; assert l.shmat(%d, None, 0) != -1", h.segment)), false},
		{"families of sockets", inPython("import socket\nfor f in (16, 17, 29, 30, 31, 38, 40, 44):\n for p in (0, 9, 12, 15, 16):\n  try:\n   socket.socket(f, 3 if f in (16, 17) else 5, p)\n   assert (f, p) == (16, 0)\n   continue\n  except OSError: continue\n  except AssertionError: raise SystemExit(0)\nraise SystemExit(1)"), false},
		{"families of pairs of sockets", inPython("import socket\nfor f in range(2, 46):\n for t in (1, 2, 5, 1 | socket.SOCK_CLOEXEC):\n  try: socket.socketpair(f, t)\n  except OSError as e:\n   if e.errno in (94, 97): continue\n  raise SystemExit(0)\nraise SystemExit(1)"), false},
		{"host's datagram socket", inPython(`import socket; socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)[0].sendto(b"x", "` + h.socket + `")`), false},
		{"host's terminal", "(exec 3<>" + h.tty + ") && echo ESCAPED; ls /dev/pts | grep -q '^[0-9]' && echo ESCAPED", false},
		// Change. If one of these succeeds it changes nothing.
		{"host process's limits", inPython(fmt.Sprintf("import resource; n = resource.RLIMIT_CORE; resource.prlimit(%d, n, resource.prlimit(%[1]d, n))", h.process)), false},
		{"host process's priority", inPython(fmt.Sprintf("import os\nfor which, who in ((0, %d), (1, os.getpgid(%[1]d))):\n try: os.setpriority(which, who, os.getpriority(which, who))\n except OSError: continue\n raise SystemExit(0)\nraise SystemExit(1)", h.process)), false},
		{"host process's scheduling", inPython(fmt.Sprintf("import os\nfor change in (lambda p: os.sched_setaffinity(p, os.sched_getaffinity(p)), lambda p: os.sched_setscheduler(p, os.sched_getscheduler(p), os.sched_getparam(p)), lambda p: os.sched_setparam(p, os.sched_getparam(p))):\n try: change(%d)\n except OSError: continue\n raise SystemExit(0)\nraise SystemExit(1)", h.process)), false},
		{"host process's disk priority", inPython(fmt.Sprintf(`import ctypes, os; n = {"x86_64": 251, "aarch64": 30}[os.uname().machine]; assert ctypes.CDLL(None).syscall(n, 1, %d, 2 << 13 | 4) == 0`, h.process)), false},
		{"attributes of a host file", inPython(`import os; os.setxattr("` + h.secret + `", "user.escaped", b"")`), false},
		{"core_pattern", "echo x > /proc/sys/kernel/core_pattern && echo ESCAPED", false},
		{"sysrq", "echo h > /proc/sysrq-trigger && grep -q . /proc/sysrq-trigger && echo ESCAPED", false},
		{"envd's executable", "echo x >> /proc/1/exe && echo ESCAPED; cp /bin/true /proc/1/exe && echo ESCAPED", false},
		{"envd's name", "find / -xdev -name 'e2bctl-cloud*' -o -xdev -name envd -type f -size +1M 2>/dev/null | grep . && echo ESCAPED", true},
		{"a clock", inPython("import time; time.clock_settime(time.CLOCK_REALTIME, time.time())"), false},
		// Take more than a share.
		{"maxima of the user namespace", "for f in /proc/sys/user/*; do echo 1000000 > $f && echo ESCAPED; done", false},
		{"a priority above all others", "chrt -f 1 true && echo ESCAPED", false},
		{"the machine's asynchronous requests", inPython(fmt.Sprintf("import ctypes; assert ctypes.CDLL(None).syscall(%d, 1, ctypes.byref(ctypes.c_ulong())) == 0", unix.SYS_IO_SETUP)), false},
		// With a lease on a file of a mount, a sandbox holds up the host's programs.
		{"a lease", inPython("import tempfile\nf = tempfile.TemporaryFile()\nimport fcntl\nfor command in (1024, 1040):\n try: fcntl.fcntl(f, command, fcntl.F_WRLCK)\n except OSError: continue\n raise SystemExit(0)\nraise SystemExit(1)"), false},
		{"a whiteout", inPython("import os, tempfile; os.mknod(tempfile.mkdtemp() + \"/name\", 0o20644, 0)"), false},
		{"a whiteout behind a file", inPython(fmt.Sprintf("import ctypes, tempfile; d = tempfile.mkdtemp().encode(); open(d + b\"/a\", \"w\").close(); assert ctypes.CDLL(None).syscall(%d, -100, d + b\"/a\", -100, d + b\"/b\", 4) == 0", unix.SYS_RENAMEAT2)), false},
		// Kill and trace.
		// Envd's threads briefly block signals: one that it does not handle
		// may kill it then.
		{"killing envd", "python3 -c 'import os; [os.kill(1, n) for _ in range(300) for n in range(1, 65)]'; ls / >/dev/null || echo ESCAPED", true},
		{"tracing envd", inPython("import ctypes; assert ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0"), false},
		// Mount and nest.
		{"nested user namespace", "unshare -U true && echo ESCAPED; unshare -r true && echo ESCAPED", false},
		{"other namespaces", "for n in -m -n -p -u -i -C; do unshare $n true && echo ESCAPED $n; done", false},
		{"joining a namespace", "nsenter -t 1 -m true && echo ESCAPED", false},
		{"the machine's memory and processors", "for f in meminfo cpuinfo; do sum=$(head -n 1 /proc/$f); for p in /proc/$f /proc; do umount -l $p; umount $p; unshare -rm umount -l $p; done; " +
			"mount --bind /dev/null /proc/$f; rm -f /proc/$f; echo x > /proc/$f; [ \"$(head -n 1 /proc/$f)\" = \"$sum\" ] || echo ESCAPED; done", true},
		{"a mount", "mount -t tmpfs none /mnt && echo ESCAPED; mount -o remount,rw /proc/sys && echo ESCAPED; umount /proc/sys && echo ESCAPED", false},
		{"a device", "mknod $TMPDIR/vda b 254 0 && cat $TMPDIR/vda && echo ESCAPED; mknod $TMPDIR/mem c 1 1 && head -c 1 $TMPDIR/mem && echo ESCAPED", false},
	}
}

// OfHost returns the escapes that target the host. Every engine must prevent these. All other escapes
// target rights inside a sandbox; a sandbox of the room must not have these rights.
func OfHost(escapes []Escape) []Escape {
	return slices.DeleteFunc(slices.Clone(escapes), func(e Escape) bool { return !slices.Contains(ofHost, e.Name) })
}

var ofHost = []string{
	"host file", "host file through envd's root", "kernel's memory", "the old root", "chroot and up",
	"host process", "host processes", "host loopback", "host's System V memory", "host's datagram socket", "host's terminal",
	"host process's limits", "host process's priority", "host process's scheduling", "host process's disk priority",
	"attributes of a host file", "core_pattern", "sysrq", "a clock", "joining a namespace", "a device",
}
