//go:build linux

package wire

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
)

// No file is given the number of the control socket while the socket also has
// another number: when that file is garbage-collected it would close the socket's
// number.
func TestKeep(t *testing.T) {
	ours, theirs, err := SocketPair(unix.SOCK_SEQPACKET)
	must.Do(t, err)
	defer theirs.Close()
	number := int(ours.Fd())
	c, err := NewConn(ours, MaxMessage)
	must.Do(t, err)
	defer c.Close()
	must.Do(t, c.Keep(number))
	defer CloseFD(number)
	for range 20 {
		f, err := os.Open(os.DevNull)
		must.Do(t, err)
		defer f.Close()
		if int(f.Fd()) == number {
			t.Fatalf("a file was given the number %d of the socket", number)
		}
	}
	if flags, err := unix.FcntlInt(uintptr(number), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("got flags %#x, %v, want close-on-exec", flags, err)
	}
	must.Do(t, c.Export(number))
	if flags, err := unix.FcntlInt(uintptr(number), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC != 0 {
		t.Errorf("exported: got flags %#x, %v, want none", flags, err)
	}
}
