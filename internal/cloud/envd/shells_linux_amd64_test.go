package envd

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/gen/process"
)

// endOfShells is a system call that no shell makes. It ends the watch of withoutShells.
const endOfShells = unix.SYS_SCHED_GETSCHEDULER

// withoutShells calls do on a new thread. For do, the first n files that are looked for are missing. If noExec is set, no
// program can be executed. It returns the paths of the programs that do executes.
func withoutShells(t *testing.T, n int, noExec bool, do func()) (executed []string) {
	t.Helper()
	var unwatched error
	var watched sync.WaitGroup
	watched.Go(func() {
		runtime.LockOSThread() // and not unlocked: the thread, which keeps the filter, ends with the goroutine
		ended, err := calltest.Watch([]uint32{unix.SYS_NEWFSTATAT, unix.SYS_EXECVE, endOfShells}, func(c calltest.Call) (fails unix.Errno, last bool) {
			switch c.Number {
			case endOfShells:
				return 0, true
			case unix.SYS_EXECVE:
				text := make([]byte, 64) // of a child that still shares the memory
				_, _ = unix.ProcessVMReadv(os.Getpid(), []unix.Iovec{{Base: &text[0], Len: 64}}, []unix.RemoteIovec{{Base: uintptr(c.Arguments[0]), Len: 64}}, 0)
				path, _, _ := bytes.Cut(text, []byte{0})
				executed = append(executed, string(path))
				if noExec {
					return unix.ENOENT, false
				}
			case unix.SYS_NEWFSTATAT:
				if n--; n >= 0 {
					return unix.ENOENT, false
				}
			}
			return 0, false
		})
		if unwatched = err; err != nil {
			return
		}
		do()
		_, _, _ = unix.Syscall(endOfShells, 0, 0, 0)
		<-ended
	})
	watched.Wait()
	if errors.Is(unwatched, calltest.ErrUnwatched) && os.Getenv("CI") != "true" {
		t.Skip(unwatched)
	}
	if unwatched != nil {
		t.Fatal(unwatched)
	}
	return executed
}

// TestMissingShells checks the program in place of a login shell that an image does not have: another shell, or the program
// that the command line names, and the error if there is neither.
func TestMissingShells(t *testing.T) {
	t.Parallel()
	d := serve(t)
	for name, tt := range map[string]struct {
		cmd      string
		args     []string
		missing  int // the login shell, the plain shell
		noExec   bool
		executed []string // first
		output   string
		want     error
	}{
		"another shell":              {guest.LoginShell, []string{"-c", "echo $0"}, 1, false, []string{guest.PlainShell}, "sh\n", nil},
		"another shell for words":    {guest.LoginShell, []string{"-l", "-c", "echo a"}, 1, false, []string{guest.PlainShell}, "a\n", nil},
		"no shell for words":         {guest.LoginShell, []string{"-l", "-c", "echo '$0' b"}, 2, false, []string{"/bin/echo"}, "$0 b\n", nil},
		"no shell for a script":      {guest.LoginShell, []string{"-c", "echo a; echo b"}, 2, false, []string{guest.PlainShell}, "a\nb\n", nil},
		"another program":            {guest.PlainShell, []string{"-c", "echo $0"}, 0, false, []string{guest.PlainShell}, guest.PlainShell + "\n", nil},
		"nothing can be executed":    {guest.LoginShell, []string{"-c", "a; b"}, 1, true, []string{guest.PlainShell, guest.PlainShell}, "", unix.ENOENT},
		"there is no shell":          {guest.LoginShell, []string{"-c", "a; b"}, 3, true, []string{guest.PlainShell, guest.PlainShell}, "", errNoShell},
		"there is only another name": {guest.LoginShell, []string{"-c", "echo 'a'"}, 3, true, []string{guest.PlainShell}, "", unix.ENOENT},
	} {
		l := &launch{
			config: &process.ProcessConfig{Cmd: tt.cmd, Args: tt.args}, user: d.server.users.fallback, dir: d.home, kept: newBudget(), env: []string{"PATH=/bin"}, grace: d.server.processes.grace,
		}
		var err error
		output := ""
		executed := withoutShells(t, tt.missing, tt.noExec, func() {
			var r *running
			var s *subscriber
			if r, s, err = l.start(); err != nil {
				return
			}
			r.wait()
			r.finish()
			r.linger()
			output = strings.ReplaceAll(s.drain(), "|", "")
		})
		if !errors.Is(err, tt.want) || errors.Is(err, errNoShell) != (tt.want == errNoShell) { //nolint:errorlint // of the table
			t.Errorf("%s: got error %v, want %v", name, err, tt.want)
		}
		executed = executed[:min(len(executed), len(tt.executed))] // a login shell may execute others
		if output != tt.output || !slices.Equal(executed, tt.executed) {
			t.Errorf("%s: %q was executed with output %q, want %q with %q", name, executed, output, tt.executed, tt.output)
		}
	}
}
