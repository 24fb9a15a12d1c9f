//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/orphan"
)

// reapCommand is the argument with which this program runs the command in the following arguments,
// and then ends every process that this command left behind.
const reapCommand = "reap"

// graceOfOrphans is the time for which processes may outlive the test binary that started them. In
// this time, a local cloud whose process died cleans up.
const graceOfOrphans = 20 * time.Second

// reap runs a command, and then ends the command's remaining processes. It does so even if the
// command crashed: a test binary that hangs, crashes or exceeds its time limit runs no clean-up
// functions, and not all of its helper processes watch their parent. reap prints a list of the
// ended processes to w. It returns the exit status of the command. If a signal ended the command,
// it returns 128 plus the number of the signal.
func reap(w io.Writer, arguments []string, grace time.Duration) (status int) {
	runtime.LockOSThread() // the command is killed when the thread that started it ends
	if err := orphan.BecomeReaper(); err != nil {
		fmt.Fprintln(w, "testrun:", err)
		return 2
	}
	signals, changes := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)
	signal.Notify(changes, syscall.SIGCHLD)
	defer signal.Stop(changes)
	command := exec.Command(arguments[0], arguments[1:]...) //nolint:noctx // signals end it
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		fmt.Fprintln(w, "testrun:", err)
		return 2
	}
	name, group := filepath.Base(arguments[0]), -command.Process.Pid
	var killed, patienceEnded <-chan time.Time
	for {
		ended, left := waitForChildren(command.Process.Pid)
		if ended != nil {
			status = exitStatus(w, name, *ended)
			patienceEnded = time.After(grace)
		}
		if !left {
			return status
		}
		select {
		case <-changes:
		case s := <-signals:
			how := syscall.SIGINT
			if s == syscall.SIGQUIT { // a Go program then prints the stacks of its goroutines
				how = syscall.SIGQUIT
			}
			syscall.Kill(group, how) //nolint:errcheck // it may be gone
			killed = time.After(graceOfCancelled)
		case <-killed:
			syscall.Kill(group, syscall.SIGKILL) //nolint:errcheck // it may be gone
		case <-patienceEnded:
			if err := endOrphans(w, name); err != nil {
				fmt.Fprintln(w, "testrun:", err)
			}
			return status
		}
	}
}

// waitForChildren collects all child processes that have ended. If the command is one of them,
// ended is its status. left reports whether any child still runs.
func waitForChildren(command int) (ended *syscall.WaitStatus, left bool) {
	for {
		var how syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &how, syscall.WNOHANG, nil); {
		case err == syscall.EINTR:
		case err != nil:
			return ended, false
		case pid == 0:
			return ended, true
		case pid == command:
			ended = &how
		}
	}
}

func exitStatus(w io.Writer, name string, how syscall.WaitStatus) int {
	if !how.Signaled() {
		return how.ExitStatus()
	}
	fmt.Fprintf(w, "testrun: %s was ended by signal %d (%v)\n", name, how.Signal(), how.Signal())
	return 128 + int(how.Signal())
}

// endOrphans ends the remaining processes of a command.
func endOrphans(w io.Writer, command string) error {
	left := func() ([]int, error) { return orphan.ChildrenOf(os.Getpid()) }
	pids, err := left()
	if err != nil {
		return err
	}
	var names []string
	for _, pid := range pids {
		if name, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm"); err == nil {
			names = append(names, fmt.Sprintf("%s (%d)", strings.TrimSpace(string(name)), pid))
		}
	}
	fmt.Fprintf(w, "testrun: %s left processes, which are ended: %s\n", command, strings.Join(names, ", "))
	return orphan.End(left)
}
