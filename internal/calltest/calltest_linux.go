package calltest

import (
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrUnwatched means that this machine does not let a thread watch its own system calls.
var ErrUnwatched = errors.New("watching system calls")

// Call is a system call that the kernel holds.
type Call struct {
	Number    uint32
	Arguments [6]uint64
}

// FailNth calls do on a new thread, and makes the n-th of its system calls with this number fail with
// the error as, counted from 1. failed reports whether do made n such calls. Only calls by the goroutine of do
// count. If the machine lets no thread watch its own calls, FailNth skips the test, except in CI.
func FailNth(t testing.TB, number uint32, n int, as unix.Errno, do func() error) (failed bool, err error) {
	t.Helper()
	t.Cleanup(withoutCollections()) // one pause for all calls of the test
	type result struct {
		failed          bool
		err, unprepared error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // and not unlocked: the thread, which keeps the filter, ends with the goroutine
		seen := 0
		ended, err := Watch([]uint32{number, endOfWatch}, func(c Call) (fails unix.Errno, last bool) {
			if c.Number == endOfWatch {
				return 0, true
			}
			if seen++; seen == n {
				return as, false
			}
			return 0, false
		})
		if err != nil {
			done <- result{unprepared: err}
			return
		}
		err = do()
		_, _, _ = unix.Syscall(endOfWatch, 0, 0, 0)
		<-ended
		done <- result{failed: seen >= n, err: err}
	}()
	r := <-done
	if errors.Is(r.unprepared, ErrUnwatched) && os.Getenv("CI") != "true" {
		t.Skip(r.unprepared)
	}
	if r.unprepared != nil {
		t.Fatal(r.unprepared)
	}
	return r.failed, r.err
}

// endOfWatch is a system call that no tested code makes. It ends the watch of FailNth.
const endOfWatch = unix.SYS_GETPPID

// Watch makes the kernel hold each system call of this thread that has one of the numbers, at most 250,
// until see has returned. The call then fails with the error that see returns; 0 lets it go on. see is
// called in another goroutine. The watch ends after the call for which see returns last. The returned
// channel is then closed, and later calls with these numbers fail.
//
// The caller must have locked its goroutine to the thread, and must not unlock it, because the thread
// keeps the filter. During a watch no garbage is collected. The error matches [ErrUnwatched].
func Watch(numbers []uint32, see func(Call) (fails unix.Errno, last bool)) (ended <-chan struct{}, err error) {
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}}
	for n, number := range numbers {
		filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: uint8(len(numbers) - n), K: number})
	}
	filter = append(filter,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_USER_NOTIF})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	collect := withoutCollections()
	defer func() {
		if err != nil {
			collect()
		}
	}()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, errors.Join(ErrUnwatched, err)
	}
	listener, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return nil, errors.Join(ErrUnwatched, errno)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer collect()
		answer(int(listener), see)
		_ = unix.Close(int(listener))
	}()
	return done, nil
}

// collections counts those who want no garbage to be collected.
//
//nolint:gochecknoglobals // a process has one collector
var collections struct {
	sync.Mutex
	refused, percent int
}

// withoutCollections stops the collection of garbage until every caller has called collect.
//
// A collection stops all goroutines. It waits for one in a system call that the runtime does not know of
// (RawSyscall, or the start of a process). If the kernel holds this call, the goroutine that answers the
// kernel may be stopped already, and nothing goes on in this process.
func withoutCollections() (collect func()) {
	collections.Lock()
	defer collections.Unlock()
	if collections.refused++; collections.refused == 1 {
		collections.percent = debug.SetGCPercent(-1)
		runtime.GC() // ends one that has begun
	}
	return func() {
		collections.Lock()
		defer collections.Unlock()
		if collections.refused--; collections.refused == 0 {
			debug.SetGCPercent(collections.percent)
		}
	}
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

// answer answers the kernel as see does, up to the last call.
func answer(listener int, see func(Call) (fails unix.Errno, last bool)) {
	var fails unix.Errno
	var last, again bool
	for {
		var q request
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&q))); errno != 0 {
			continue
		}
		if !again {
			fails, last = see(Call{uint32(q.number), q.arguments})
		}
		r := response{id: q.id, errno: -int32(fails)}
		if fails == 0 {
			r.flags = unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE
		}
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&r)))
		again = errno != 0 // a signal interrupted the call, and the thread makes it again
		if last && !again {
			return
		}
	}
}
