//go:build linux

package local_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// refuseVariable makes this program act on a machine that refuses what the variable lists.
const refuseVariable = "LOCAL_TEST_REFUSE"

// TestLadder really refuses the cloud what isolation needs: where namespaces
// are refused it uses the next level, and where Landlock is refused too it does not start.
func TestLadder(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, refuse string
		want         []string
	}{
		{"namespaces", "namespaces", []string{"started: restricted: it works", `refuses isolation "full"`, "WARN the local cloud isolates sandboxes less than fully isolation=restricted"}},
		{"signals", "namespaces signals", oldLandlock()},
		{"signals by name", "namespaces signals restricted", pastLandlock},
		{"everything", "namespaces landlock", []string{"no isolation", "full: ", "operation not permitted", "restricted: ", "landlock: ", "to mend it"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
			cmd.Env = append(os.Environ(), refuseVariable+"="+tt.refuse)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if strings.HasPrefix(string(out), "no landlock") && os.Getenv("CI") != "true" {
				t.Skip("this kernel has no Landlock")
			}
			t.Logf("%s", out)
			for _, want := range tt.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("no %q in %s", want, out)
				}
			}
		})
	}
}

// pastLandlock is what a start says that Landlock did not stop. It ends at the next step: what
// answers like an old version of Landlock asks about system calls, as only one process can.
var pastLandlock = []string{"no isolation", "restricted: try a sandbox: ", "already asks about its system calls"}

// oldLandlock returns what an old version of Landlock leads to: signals are stopped only
// where sandboxes have user ids of their own, which root gives them.
func oldLandlock() []string {
	if os.Geteuid() == 0 {
		return pastLandlock
	}
	return []string{"no isolation", "restricted: ", "version 5, does not stop signals", "WithIsolation"}
}

// startRefused starts a cloud on the machine that refuses, and writes how it went.
func startRefused(w io.Writer, refuse string) error {
	_, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		fmt.Fprintln(w, "no landlock:", errno)
		return nil
	}
	if err := refuseSyscalls(refuse); err != nil {
		return err
	}
	ctx := context.Background()
	var options []local.Option
	if strings.Contains(refuse, "restricted") {
		options = append(options, local.WithIsolation(local.Restricted))
	}
	cloud, err := local.Start(ctx, options...)
	if errors.Is(err, local.ErrNoIsolation) {
		fmt.Fprintln(w, err)
		return nil
	}
	if err != nil {
		return err
	}
	defer cloud.Close()
	return sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
		result, err := sb.Commands.Run(ctx, "echo it works", nil)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "started: %s: %s%s", cloud.Isolation(), result.Stdout, cloud.Report().Notes)
		return nil
	}, cloud.Options()...)
}

// namespaces are what a process may have of its own.
const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// mountCalls are the calls that Docker refuses, beside those for namespaces.
var mountCalls = []uint32{
	unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_MOUNT_SETATTR,
}

// refuseSyscalls makes the kernel refuse what is asked, namespaces, mounts, Landlock or its
// newer versions, to this process and everything that it starts.
func refuseSyscalls(refuse string) error {
	const (
		number   = 0
		argument = 16 // the low half of the first argument
		third    = argument + 2*8
		eperm    = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
		enosys   = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	)
	var program []unix.SockFilter
	step := func(code uint16, k uint32, yes, no uint8) {
		program = append(program, unix.SockFilter{Code: code, K: k, Jt: yes, Jf: no})
	}
	load := func(offset uint32) { step(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset, 0, 0) }
	unless := func(test uint16, k uint32, skip uint8) { step(unix.BPF_JMP|test|unix.BPF_K, k, 0, skip) }
	answer := func(k uint32) { step(unix.BPF_RET|unix.BPF_K, k, 0, 0) }

	load(number)
	if strings.Contains(refuse, "namespaces") {
		for _, call := range []uint32{unix.SYS_CLONE, unix.SYS_UNSHARE} {
			unless(unix.BPF_JEQ, call, 4)
			load(argument)
			unless(unix.BPF_JSET, namespaces, 1)
			answer(eperm)
			answer(unix.SECCOMP_RET_ALLOW)
		}
		unless(unix.BPF_JEQ, unix.SYS_CLONE3, 1) // its flags are in memory, where a filter cannot see them
		answer(enosys)
	}
	if strings.Contains(refuse, "mounts") {
		for _, call := range mountCalls {
			unless(unix.BPF_JEQ, call, 1)
			answer(eperm)
		}
	}
	var flags uintptr = unix.SECCOMP_FILTER_FLAG_TSYNC
	switch {
	case strings.Contains(refuse, "landlock"):
		unless(unix.BPF_JEQ, unix.SYS_LANDLOCK_CREATE_RULESET, 1)
		answer(enosys)
	case strings.Contains(refuse, "signals"):
		flags |= unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH | unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
		unless(unix.BPF_JEQ, unix.SYS_LANDLOCK_CREATE_RULESET, 3)
		load(third)
		unless(unix.BPF_JEQ, unix.LANDLOCK_CREATE_RULESET_VERSION, 1)
		answer(unix.SECCOMP_RET_USER_NOTIF)
	}
	answer(unix.SECCOMP_RET_ALLOW)

	runtime.LockOSThread() // the same thread must set both
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&filter)))
	if errno != 0 {
		return os.NewSyscallError("seccomp", errno)
	}
	if flags&unix.SECCOMP_FILTER_FLAG_NEW_LISTENER != 0 {
		go answerVersion(int(fd), 5)
	}
	return nil
}

// answerVersion answers questions about the version of Landlock as an older kernel
// does, until the program ends.
func answerVersion(listener int, version int64) {
	var question struct {
		id         uint64
		pid, flags uint32
		data       [64]byte
	}
	var answer struct {
		id           uint64
		value        int64
		errno, flags uint32
	}
	for {
		question.id, question.pid, question.flags, question.data = 0, 0, 0, [64]byte{} // the kernel requires it
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&question)))
		if errno != 0 {
			continue // the process that asked was interrupted, or has ended
		}
		answer.id, answer.value = question.id, version
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&answer))) // that process may have ended
	}
}
