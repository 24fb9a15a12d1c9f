//go:build linux

package seccomp

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// applyVariable makes the test binary apply the filter to itself. Its value tells
// whether the filter is the shared one.
const applyVariable = "E2BCTL_TEST_SECCOMP"

func TestMain(m *testing.M) {
	if shared, err := strconv.ParseBool(os.Getenv(applyVariable)); err == nil {
		for _, wrong := range tryRefused(shared) {
			fmt.Fprintln(os.Stderr, wrong)
		}
		fmt.Fprint(os.Stderr, "tried")
		return
	}
	m.Run()
}

// TestKernel checks that the kernel accepts the filter, and that the calls refused
// in testdata/calls.txt fail with the error given there. The calls are made in
// another process, because the filter stays.
func TestKernel(t *testing.T) {
	t.Parallel()
	if _, err := filterFor(runtime.GOARCH, calls); err != nil {
		t.Skip(err)
	}
	for _, shared := range []bool{true, false} {
		t.Run(strconv.FormatBool(shared), func(t *testing.T) {
			t.Parallel()
			command := exec.CommandContext(t.Context(), os.Args[0])
			command.Env = append(os.Environ(), fmt.Sprintf("%s=%t", applyVariable, shared))
			command.SysProcAttr = &unix.SysProcAttr{Setsid: true} // has no terminal to type into or hang up
			output, err := command.CombinedOutput()
			if err != nil || string(output) != "tried" {
				t.Errorf("%v\n%s", err, output)
			}
		})
	}
}

// tryRefused applies the filter to this thread, makes the calls that it refuses, and
// returns the wrong answers.
func tryRefused(shared bool) []error {
	runtime.LockOSThread()
	lines, err := parseCalls()
	if err != nil {
		return []error{err}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return []error{err}
	}
	if shared {
		err = Apply()
	} else {
		_, err = ApplyInPlace(testKey)
	}
	if err != nil {
		return []error{err}
	}
	var wrong []error
	for _, l := range lines {
		number, ok := l.numbers[runtime.GOARCH]
		a := l.answer(shared)
		if !ok || a.allowed || l.name == "uprobe" || l.name == "uretprobe" { // newer kernels do not filter these
			continue
		}
		every(a.turns(), func(arguments [6]uint64) {
			if a.decide(arguments)&unix.SECCOMP_RET_ACTION_FULL != unix.SECCOMP_RET_ERRNO {
				return
			}
			_, _, errno := unix.RawSyscall6(uintptr(number), uintptr(arguments[0]), uintptr(arguments[1]), uintptr(arguments[2]),
				uintptr(arguments[3]), uintptr(arguments[4]), uintptr(arguments[5]))
			if errno != a.refusal {
				wrong = append(wrong, fmt.Errorf("%s with %#x: %w, want %w", l.name, arguments, errno, a.refusal))
			}
		})
	}
	return wrong
}
