//go:build linux

package spawn

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/hello"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/orphan"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestStartLater checks that a child becomes the program when a message arrives, and not before. It
// checks that the child ends when the other end is closed. The child must not keep a file of its
// parent open, also on a kernel without close_range. Only a process that was started as one of the room
// can have such a child.
func TestStartLater(t *testing.T) {
	t.Parallel()
	for _, refused := range []string{"", " close_range"} {
		c, err := startChild(t, Placement{})
		must.Do(t, err)
		c.says(t)
		_, err = c.control.WriteString("later" + refused)
		must.Do(t, err)
		must.Do(t, unix.Shutdown(int(c.control.Fd()), unix.SHUT_WR))
		want := fmt.Sprintf(`started: {"kind":"hello","protocol":%d}, status 7
a file of its parent: EOF
nothing can arrive: "", status 0`, hello.Version)
		if got := c.says(t); got != want {
			t.Errorf("without%s: got\n%s\nwant\n%s", refused, got, want)
		}
		c.ends(t)
	}
}

// TestStartLaterWithout checks that there is no child without a control socket.
//
//nolint:paralleltest // it looks at the children of the whole process
func TestStartLaterWithout(t *testing.T) {
	before, err := orphan.ChildrenOf(os.Getpid())
	must.Do(t, err)
	closed, err := os.Open(os.DevNull)
	must.Do(t, errors.Join(err, closed.Close()))
	if err := StartLater(closed); !errors.Is(err, unix.EBADF) {
		t.Errorf("got error %v, want %v", err, unix.EBADF)
	}
	if after, err := orphan.ChildrenOf(os.Getpid()); err != nil || !slices.Equal(before, after) {
		t.Errorf("there were the children %v, and now there are %v and the error %v", before, after, err)
	}
}

// startLater starts two children and sends a message to the first. It returns how they end.
func startLater() string {
	near, other, err := laterChildren()
	if err != nil {
		return err.Error()
	}
	text := make([]byte, 1<<10)
	_, err = other.Read(text) // blocks as long as the child, which waits, has the other end
	kept := fmt.Sprint(err)
	if _, err := near.WriteString("go"); err != nil {
		return err.Error()
	}
	n, err := near.Read(text)
	if err != nil {
		return err.Error()
	}
	said := string(text[:n]) // package hello is the first to run
	near.Close()
	first := waited()
	if near, _, err = laterChildren(); err != nil {
		return err.Error()
	}
	if err := unix.Shutdown(int(near.Fd()), unix.SHUT_WR); err != nil {
		return err.Error()
	}
	n, _ = near.Read(text)
	return fmt.Sprintf("started: %s, %s\na file of its parent: %s\nnothing can arrive: %q, %s", said, first, kept, text[:n], waited())
}

// laterChildren makes a child, and returns the other end of its control socket, and one end of a
// connection whose other end only the child could have open.
func laterChildren() (near, other *os.File, err error) {
	control, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	connection, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	if err := unix.SetNonblock(control[0], false); err != nil {
		return nil, nil, err
	}
	bound := unix.NsecToTimeval((30 * time.Second).Nanoseconds())
	for _, fd := range []int{control[0], connection[0]} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &bound); err != nil {
			return nil, nil, err
		}
	}
	far := os.NewFile(uintptr(control[1]), "far")
	err = StartLater(far)
	far.Close()
	unix.Close(connection[1])
	return os.NewFile(uintptr(control[0]), "near"), os.NewFile(uintptr(connection[0]), "other"), err
}

// waited waits for a child, and describes its end.
func waited() string {
	var status unix.WaitStatus
	if _, err := unix.Wait4(-1, &status, 0, nil); err != nil {
		return err.Error()
	}
	if !status.Exited() {
		return fmt.Sprintf("signal %v", status.Signal())
	}
	return fmt.Sprintf("status %d", status.ExitStatus())
}
