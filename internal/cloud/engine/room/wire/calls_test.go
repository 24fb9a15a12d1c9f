//go:build linux

package wire

import (
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestEachCallFails makes each system call fail with which a pair is made. Either both ends or none are
// made, and no descriptor stays open. It is not parallel, because it counts the descriptors of the
// process.
func TestEachCallFails(t *testing.T) { //nolint:paralleltest // see above
	for name, pair := range map[string]func() (io.Closer, io.Closer, error){
		"Pair": func() (io.Closer, io.Closer, error) {
			c, f, err := Pair(MaxMessage)
			if err != nil {
				return nil, nil, err
			}
			return c.conn, f, nil
		},
		"StreamPair": func() (io.Closer, io.Closer, error) { return closers(StreamPair()) },
		"SocketPair": func() (io.Closer, io.Closer, error) { return closers(SocketPair(unix.SOCK_STREAM)) },
	} {
		_, err := made(pair) // opens the descriptors of the runtime
		must.Do(t, err)
		for _, number := range []uint32{unix.SYS_SOCKETPAIR, unix.SYS_FCNTL, unix.SYS_GETSOCKOPT, unix.SYS_GETSOCKNAME, unix.SYS_GETPEERNAME} {
			before, refused := descriptors(t), 0
			for n, failed := 1, true; failed; n++ {
				var ends int
				failed, err = calltest.FailNth(t, number, n, unix.EIO, func() (err error) {
					ends, err = made(pair)
					return err
				})
				if err != nil {
					refused++
				}
				if err != nil && !errors.Is(err, unix.EIO) || (err == nil) != (ends == 2) {
					t.Errorf("%s: call %d of number %d failed, %v: got %d ends and %v", name, n, number, failed, ends, err)
				}
				if got := descriptors(t); got != before {
					t.Errorf("%s: call %d of number %d failed, %v: got %d descriptors, want %d", name, n, number, failed, got, before)
				}
			}
			if number == unix.SYS_SOCKETPAIR && refused != 1 {
				t.Errorf("%s: got %d errors for the call that makes the sockets, want one", name, refused)
			}
		}
	}
}

// closers turns the ends of a pair into interfaces.
func closers[A, B io.Closer](a A, b B, err error) (io.Closer, io.Closer, error) {
	if err != nil {
		return nil, nil, err
	}
	return a, b, nil
}

// made makes a pair, counts its ends and closes them.
func made(pair func() (io.Closer, io.Closer, error)) (ends int, err error) {
	a, b, err := pair()
	for _, end := range []io.Closer{a, b} {
		if end != nil {
			ends++
			err = errors.Join(err, end.Close())
		}
	}
	return ends, err
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	must.Do(t, err)
	return len(all)
}

// TestKeepFails checks that an error of the duplication is reported.
func TestKeepFails(t *testing.T) {
	t.Parallel()
	a, _ := pairOfConns(t)
	must.Is(t, a.Keep(-1), unix.EBADF)
	must.Is(t, a.Export(-1), unix.EBADF)
	a.Close()
	if err := a.Keep(-1); err == nil || errors.Is(err, unix.EBADF) {
		t.Errorf("closed: got %v, want an error that says so", err)
	}
}
