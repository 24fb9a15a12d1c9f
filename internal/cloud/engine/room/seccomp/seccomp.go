//go:build linux

package seccomp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Apply applies the filter of a sandbox with namespaces of its own to this thread. Everything that
// the thread executes inherits it. Apply needs no_new_privs or CAP_SYS_ADMIN. On an architecture
// without a list of calls Apply returns an error, and no sandbox starts.
func Apply() error {
	filter, err := filterFor(runtime.GOARCH, calls)
	if err != nil {
		return err
	}
	_, err = filter.apply(0)
	return err
}

// Key distinguishes calls of the holder from calls of all other processes; see the function has. A
// Key must be random and secret.
type Key uint64

// ApplyInPlace applies the filter of a sandbox without namespaces to all threads of this process,
// the holder. It returns the descriptor from which the holder reads the filter's questions. The
// filter refuses the calls that [Apply] refuses, and calls that reach other processes of the same
// id. It asks about calls that change files: see inPlace. ApplyInPlace needs no_new_privs.
func ApplyInPlace(key Key) (listener int, err error) {
	filter, err := filterFor(runtime.GOARCH, callsInPlace(key))
	if err != nil {
		return -1, err
	}
	// A signal interrupts a call that waits for the holder, and the call is repeated afterwards.
	// With the flag that prevents that, a process whose holder is frozen in the middle of a call
	// could not be frozen itself.
	listener, err = filter.apply(unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH | unix.SECCOMP_FILTER_FLAG_NEW_LISTENER)
	if errors.Is(err, unix.EBUSY) {
		err = fmt.Errorf("%w: a container or another sandbox around this process already asks about its system calls; start the server outside of it", err)
	}
	return listener, err
}

// Name returns the name of the system call with the given number on this architecture. If the
// number is unknown, it returns "".
func Name(number int32) string {
	arch, ok := architectures[runtime.GOARCH]
	for _, c := range calls {
		if ok && arch.number(c) == int(number) {
			return c.name
		}
	}
	return ""
}

func (f filter) apply(flags uintptr) (listener int, err error) {
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return -1, fmt.Errorf("apply the seccomp filter: %w", errno)
	}
	return int(fd), nil
}

// Program returns the filter of a sandbox with namespaces in its memory layout, for a process that
// applies the filter to itself. Program returns an empty filter on an architecture without a list
// of calls. No process uses an empty filter, because no sandbox starts there.
func Program() []byte {
	filter, err := filterFor(runtime.GOARCH, calls)
	if err != nil {
		return nil
	}
	var data []byte
	for _, f := range filter {
		data = binary.NativeEndian.AppendUint16(data, f.Code)
		data = append(data, f.Jt, f.Jf)
		data = binary.NativeEndian.AppendUint32(data, f.K)
	}
	return data
}

func filterFor(goarch string, calls []call) (filter, error) {
	arch, ok := architectures[goarch]
	if !ok {
		return nil, errors.New("no seccomp filter for " + goarch)
	}
	return program(arch, calls), nil
}
