package calltest

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// errUnwatched means that this machine does not let a thread watch its own system calls.
var errUnwatched = errors.New("watching system calls")

// FailNth calls do on a new thread, and makes the n-th of its system calls with this number fail with
// the error as, counted from 1. failed reports whether do made n such calls. Only calls by the goroutine of do
// count. If the machine lets no thread watch its own calls, FailNth skips the test, except in CI.
func FailNth(t testing.TB, number uint32, n int, as unix.Errno, do func() error) (failed bool, err error) {
	t.Helper()
	type result struct {
		failed          bool
		err, unprepared error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // and not unlocked: the thread, which keeps the filter, ends with the goroutine
		listener, err := watch(number)
		if err != nil {
			done <- result{unprepared: err}
			return
		}
		answered := make(chan bool)
		go func() { answered <- answer(listener, n, as) }()
		err = do()
		_, _, _ = unix.Syscall(endOfWatch, 0, 0, 0)
		done <- result{<-answered, err, os.NewSyscallError("close", unix.Close(listener))}
	}()
	r := <-done
	if errors.Is(r.unprepared, errUnwatched) && os.Getenv("CI") != "true" {
		t.Skip(r.unprepared)
	}
	if r.unprepared != nil {
		t.Fatal(r.unprepared)
	}
	return r.failed, r.err
}

// endOfWatch is a system call that no tested code makes. It tells answer to return.
const endOfWatch = unix.SYS_GETPPID

// watch makes the kernel ask, at each system call of this thread with this number, the reader of the
// returned descriptor.
func watch(number uint32) (listener int, err error) {
	const equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: equal, Jt: 2, K: number},
		{Code: equal, Jt: 1, K: endOfWatch},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return -1, errors.Join(errUnwatched, err)
	}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return -1, errors.Join(errUnwatched, errno)
	}
	return int(fd), nil
}

// request and response are messages of the kernel, struct seccomp_notif and seccomp_notif_resp.
type request struct {
	id         uint64
	pid, flags uint32
	number     int32
	arch       uint32
	ip         uint64
	arguments  [6]uint64
}
type response struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// answer answers the kernel until endOfWatch. It reports whether there was an n-th call, which it
// made fail with as.
func answer(listener, n int, as unix.Errno) (failed bool) {
	for seen := 1; ; {
		var q request
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&q))); errno != 0 {
			continue
		}
		r := response{id: q.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		ends := q.number == endOfWatch
		if !ends && seen == n {
			r.errno, r.flags = -int32(as), 0
		}
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&r)))
		switch {
		case errno != 0: // a signal interrupted the call, and the thread makes it again
		case ends:
			return seen > n
		default:
			seen++
		}
	}
}
