//go:build linux

package spawn

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/hello"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/orphan"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestStartLater checks that a child becomes the program when a message arrives, and not before. It
// checks that the child ends when the other end is closed, and that it blocks all signals until it is the
// program, which blocks those of its parent. The child must not keep a file of its parent open, also on a
// kernel without close_range. Only a process that was started as one of the room can have such a child.
func TestStartLater(t *testing.T) {
	t.Parallel()
	for _, refused := range []string{"", " close_range"} {
		c, err := startChild(t, Placement{})
		must.Do(t, err)
		c.says(t)
		_, err = c.control.WriteString("later" + refused)
		must.Do(t, err)
		must.Do(t, unix.Shutdown(int(c.control.Fd()), unix.SHUT_WR))
		want := fmt.Sprintf(`started: {"kind":"hello","protocol":%d}, blocked 200, while it waits fffffffffffbfeff, as a program 200, status 7
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

// TestFailedCallsOfStartLater checks that each failed call is an error, and that there is no child if the
// error came before it.
//
//nolint:paralleltest // it looks at the children of the whole process
func TestFailedCallsOfStartLater(t *testing.T) {
	before, err := orphan.ChildrenOf(os.Getpid())
	must.Do(t, err)
	for _, tt := range []struct {
		call   string
		number uint32
		n      int
		child  bool
	}{
		{"rt_sigprocmask", unix.SYS_RT_SIGPROCMASK, 1, false},
		{"clone", unix.SYS_CLONE, 1, false},
		{"rt_sigprocmask", unix.SYS_RT_SIGPROCMASK, 2, true},
	} {
		near, far, err := wire.StreamPair()
		must.Do(t, err)
		got := make(chan error)
		go func() {
			runtime.LockOSThread()
			seen := 0
			_, err := calltest.Watch([]uint32{tt.number}, func(calltest.Call) (fails unix.Errno, last bool) {
				if seen++; seen == tt.n {
					return unix.EIO, false
				}
				return 0, false
			})
			if err == nil {
				err = StartLater(far)
			}
			got <- err
			select {} // at its end, the thread makes calls that must not fail
		}()
		if err := <-got; !errors.Is(err, unix.EIO) || !strings.HasPrefix(err.Error(), tt.call+":") {
			t.Errorf("%s, call %d: got error %v, want %v", tt.call, tt.n, err, unix.EIO)
		}
		children, err := orphan.ChildrenOf(os.Getpid())
		must.Do(t, err)
		children = slices.DeleteFunc(children, func(pid int) bool { return slices.Contains(before, pid) })
		if (len(children) > 0) != tt.child {
			t.Errorf("%s, call %d: got the children %v, want one: %v", tt.call, tt.n, children, tt.child)
		}
		must.Do(t, near.CloseWrite()) // nothing can arrive: a child ends
		for _, pid := range children {
			_, err := unix.Wait4(pid, nil, 0, nil)
			must.Do(t, err)
		}
		must.Do(t, errors.Join(near.Close(), far.Close()))
	}
}

// masks returns the signals that this thread and its only child block, and later the program that the
// child becomes.
func masks() (own, waiting uint64, program func() uint64) {
	children, err := orphan.ChildrenOf(os.Getpid())
	if err != nil || len(children) != 1 {
		return 0, 0, func() uint64 { return 0 }
	}
	child := strconv.Itoa(children[0])
	return maskOf("thread-self"), maskOf(child), func() (mask uint64) {
		for range 1000 { // at its start, Go's runtime blocks all signals now and then
			if mask = maskOf(child); mask == maskOf("thread-self") {
				break
			}
		}
		return mask
	}
}

// maskOf returns the signals that a thread blocks.
func maskOf(thread string) (mask uint64) {
	text, err := os.ReadFile("/proc/" + thread + "/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "\nSigBlk:")
	_, _ = fmt.Sscanf(rest, "%x", &mask) // 0 is never expected
	return mask
}

// startLater starts two children and sends a message to the first. It returns how they end.
func startLater() string {
	runtime.LockOSThread()
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &unix.Sigset_t{Val: [16]uint64{1 << (unix.SIGUSR1 - 1)}}, nil); err != nil {
		return err.Error()
	}
	near, other, err := laterChildren()
	if err != nil {
		return err.Error()
	}
	own, waiting, program := masks()
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
	said += fmt.Sprintf(", blocked %x, while it waits %x, as a program %x", own, waiting, program())
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
