//go:build linux

package local_test

import (
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// signalFirst has root send every signal to process 1 in every way, and says "sent" at the end.
const signalFirst = `
import ctypes, fcntl, os, signal
libc = ctypes.CDLL(None, use_errno=True)
# rt_sigqueueinfo, rt_tgsigqueueinfo, tkill and tgkill
sigqueue, tgsigqueue, tkill, tgkill = {"x86_64": (129, 297, 200, 234), "aarch64": (138, 240, 130, 131)}[os.uname().machine]
info = ctypes.create_string_buffer(128)
class Ignored:
    def __enter__(self): pass
    def __exit__(self, kind, *_): return kind is None or issubclass(kind, OSError)
for n in range(1, 65):
    with Ignored(): os.kill(1, n)
    ctypes.memset(info, 0, 128)
    ctypes.cast(info, ctypes.POINTER(ctypes.c_int))[0] = n
    ctypes.cast(info, ctypes.POINTER(ctypes.c_int))[2] = -1
    libc.syscall(sigqueue, 1, n, info)
    libc.syscall(sigqueue, ctypes.c_ulong(1 << 32 | 1), n, info)
    libc.syscall(tgsigqueue, 1, 1, n, info)
    libc.syscall(tkill, 1, n)
    libc.syscall(tgkill, 1, 1, n)
    with Ignored(): signal.pidfd_send_signal(os.pidfd_open(1), n)
r, w = os.pipe()
with Ignored(): fcntl.fcntl(r, 10, signal.SIGKILL) # F_SETSIG
with Ignored(): fcntl.fcntl(r, fcntl.F_SETOWN, 1)
with Ignored(): fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC)
os.write(w, b"x")
child = os.fork()
if child == 0:
    with Ignored():
        os.setpgid(0, 1)
        os.kill(0, signal.SIGKILL)
    os._exit(0)
os.waitpid(child, 0)
print("sent")
`

// TestGVisorSignals checks that process 1 takes no signal from inside, whoever sends it and how.
func TestGVisorSignals(t *testing.T) {
	t.Parallel()
	sb := sandboxtest.New(t, gvisorOptions(t)...).Create(t)
	sandboxtest.RunCode(t, sb, "x = 1", nil)
	must.Do(t, sb.Files.Write(t.Context(), "/tmp/signal.py", []byte(signalFirst), nil))
	for _, command := range []string{"kill -9 1", "kill -STOP 1", "kill -TSTP 1", "python3 /tmp/signal.py"} {
		if got := output(t, sb, "root", command+"; echo lives"); got != "lives" && got != "sent\nlives" {
			t.Errorf("%s: got %q, want that the sandbox lives", command, got)
		}
	}
	if got := sandboxtest.RunCode(t, sb, "x", nil).Text(); got != "1" {
		t.Errorf("got %q, want the variable", got)
	}
	if got := output(t, sb, "root", "sleep 600 & kill -9 $!; wait $! 2>/dev/null; echo $?"); got != "137" {
		t.Errorf("got %q, want that other processes take signals", got)
	}
}
