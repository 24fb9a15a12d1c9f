package cli

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// firstProcess runs this program again as a child if this process is the first one of a container,
// and returns the child's status. The first process of a container becomes the parent of every
// process whose parent has ended, such as a background process of `docker exec`. The first process
// has to wait for these processes. The process that runs the command cannot do that: a wait for any
// child could take the status of a child that another part of e2bctl waits for.
func firstProcess() (status int, isFirst bool) {
	if os.Getpid() != 1 {
		return 0, false
	}
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	// On a terminal, its signals must reach the child's group alone: it would get each twice.
	attr := &syscall.SysProcAttr{Setpgid: true, Foreground: term.IsTerminal(syscall.Stdin), Ctty: syscall.Stdin}
	child, err := os.StartProcess("/proc/self/exe", os.Args, &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: attr,
	})
	if err != nil {
		signal.Stop(signals)
		fmt.Fprintln(os.Stderr, "e2bctl: the processes that end in this container will not be removed: start this program again:", err)
		return 0, false
	}
	for s := range signals {
		switch s {
		case unix.SIGURG: // the runtime's own
		case unix.SIGCHLD:
			if status, ended := reap(child.Pid); ended {
				return status, true
			}
		default:
			_ = child.Signal(s) // it may have ended, which the next signal reports
		}
	}
	panic("unreachable: nothing closes the channel")
}

// reap waits for all children that have ended. If child is one of these, reap returns the status of
// child, as a shell reports it.
func reap(child int) (status int, ended bool) {
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil)
		switch {
		case err == unix.EINTR:
		case err != nil || pid == 0:
			return status, ended
		case pid == child && ws.Signaled():
			status, ended = exitSignalled+int(ws.Signal()), true
		case pid == child:
			status, ended = ws.ExitStatus(), true
		}
	}
}
