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

// Apply applies the filter to this thread; everything that the thread
// executes inherits it. If shared is false, calls that reach other processes of the
// same id are refused too: see inPlace. It needs no_new_privs or
// CAP_SYS_ADMIN. On an architecture without a list of calls it returns an error,
// and nothing starts.
func Apply(shared bool) error {
	filter, err := filterFor(runtime.GOARCH, shared)
	if err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return fmt.Errorf("apply the seccomp filter: %w", errno)
	}
	return nil
}

// Program returns the filter as it is laid out in memory, for a process that
// applies it to itself. On an architecture without a list of calls it is empty, and
// is not asked for, because nothing starts.
func Program(shared bool) []byte {
	filter, err := filterFor(runtime.GOARCH, shared)
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

func filterFor(goarch string, shared bool) (filter, error) {
	arch, ok := architectures[goarch]
	if !ok {
		return nil, errors.New("no seccomp filter for " + goarch)
	}
	return program(arch, table(shared)), nil
}
