package shortage

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestOf(t *testing.T) {
	t.Parallel()
	tests := []struct {
		err  error
		want string // beginning of the text; "": it is no shortage
	}{
		{fmt.Errorf("run x: %w", &os.PathError{Op: "fork/exec", Path: "/x", Err: syscall.EAGAIN}), "this user can have no more processes"},
		{errors.New("bash: fork: retry: Resource temporarily unavailable"), "this user can have no more processes"},
		{errors.New("runtime: failed to create new OS thread (have 5 already; errno=11)"), "this user can have no more processes"},
		{os.NewSyscallError("pipe2", syscall.EMFILE), "no more files can be opened"},
		{os.NewSyscallError("open", syscall.ENFILE), "no more files can be opened"},
		{errors.New("OSError: [Errno 24] Too many open files: '/x'"), "no more files can be opened"},
		{os.NewSyscallError("sendmsg", syscall.ETOOMANYREFS), "no more files can be opened"},
		{os.NewSyscallError("fork", syscall.ENOMEM), "there is not enough memory"},
		{&os.PathError{Op: "write", Path: "envd", Err: syscall.EFBIG}, "a file may not become as large as it has to be; raise ulimit -f"},
		{errors.New("copy envd: write envd: no space left on device"), "a disk is full"},
		{&os.PathError{Op: "mkdir", Path: "/x", Err: syscall.EDQUOT}, "a disk is full"},
		{fmt.Errorf("start: %w", New("raise ulimit -d", errors.New("too low"))), "start: raise ulimit -d: too low"},
		{errors.New("clone into new namespaces: fork/exec /x: no space left on device"), ""},
		{os.NewSyscallError("mount", syscall.ENOSPC), ""},
		{os.NewSyscallError("unshare", syscall.EPERM), ""},
		{os.NewSyscallError("unshare", syscall.ENOSPC), ""}, // of namespaces there are none left: the machine allows no more
	}
	for _, test := range tests {
		switch got := Of(test.err); {
		case test.want == "" && got != nil:
			t.Errorf("%v: got %v, want no shortage", test.err, got)
		case test.want == "":
		case got == nil || !strings.HasPrefix(got.Error(), test.want) || !errors.Is(got, test.err):
			t.Errorf("%v: got %v, want %q that wraps it", test.err, got, test.want)
		}
	}
	ended := errors.New("the process ended")
	if got := Because(ended, "panic: nothing of it"); got != nil {
		t.Errorf("got %v, want no shortage", got)
	}
	if got := Because(ended, "SIGABRT\nruntime/cgo: pthread_create failed: Resource temporarily unavailable\n"); !errors.Is(got, ended) {
		t.Errorf("got %v, want an error that wraps %v", got, ended)
	}
}

// TestIsDisk checks that only a full disk of the machine is recognised, and not that of a sandbox.
func TestIsDisk(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{os.NewSyscallError("write", syscall.ENOSPC), true},
		{os.NewSyscallError("write", syscall.EDQUOT), true},
		{errors.New("Database or disk is full (13)"), true},
		{os.NewSyscallError("write", syscall.EIO), false},
		{errors.New(SandboxDisk), false},
		{fmt.Errorf("%s: %w", SandboxDisk, syscall.ENOSPC), false},
	} {
		if got := IsDisk(tt.err); got != tt.want {
			t.Errorf("%v: got %v, want %v", tt.err, got, tt.want)
		}
	}
}
