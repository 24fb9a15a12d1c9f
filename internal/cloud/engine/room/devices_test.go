//go:build linux

package room

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestDevices checks that a sandbox has nodes that work. If the server may make
// nodes, it shares none of them with the host or with another sandbox.
func TestDevices(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	one, two := newSandbox(t, r, engine.SandboxOptions{ID: "one"}), newSandbox(t, r, engine.SandboxOptions{ID: "two"})
	const use = `echo > /dev/null && head -c 3 /dev/zero | wc -c && head -c 5 /dev/urandom | wc -c && head -c 7 /dev/random | wc -c
(echo > /dev/full) 2>/dev/null || echo full; script -qc 'echo typed > /dev/tty' /dev/null | tr -d '\r'`
	for _, user := range []string{"root", "user"} {
		if got := call(t, one, "/run", testRequest{Command: use, User: user}); got.Output != "3\n5\n7\nfull\ntyped\n" {
			t.Errorf("%s: got %+v", user, got)
		}
	}
	if !r.ranged() {
		t.Skip("only root can make nodes; see the package's comment")
	}
	made, err := makeDevices()
	must.Do(t, err)
	if made == nil {
		t.Skip("this root may not make nodes; see the package's comment")
	}
	made.Close()
	null, err := os.Open(os.DevNull)
	must.Do(t, err)
	defer null.Close()
	must.Do(t, unix.Flock(int(null.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	const lock = `python3 -c 'import fcntl, sys; f = open("/dev/null"); fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB); print("locked", flush=True); sys.stdin.read()'`
	if got := sh(t, one, "cd $TMPDIR && mkfifo hold && (exec 5<>hold; setsid "+lock+" <hold >out 2>&1 &); until [ -s out ]; do sleep 0.01; done; cat out"); got.Output != "locked\n" {
		t.Errorf("the host's lock is seen inside: %+v", got)
	}
	if got := sh(t, two, lock+" </dev/null"); got.Output != "locked\n" {
		t.Errorf("a lock of another sandbox is seen: %+v", got)
	}
}

// TestDevicesRefused checks that a process that may not mount anything learns of it.
func TestDevicesRefused(t *testing.T) {
	t.Parallel()
	onOwnThread(func() {
		header, none := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
		if err := unix.Capset(&header, &none[0]); err != nil {
			t.Error(err)
			return
		}
		made, err := makeDevices()
		if made != nil || !errors.Is(err, unix.EPERM) {
			t.Errorf("got %v and error %v, want %v", made, err, unix.EPERM)
		}
	})
}
