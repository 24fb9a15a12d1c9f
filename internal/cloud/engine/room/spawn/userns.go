//go:build linux

package spawn

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
)

// UserNamespace makes a user namespace with these ids. A namespace can only be made together with a
// process. UserNamespace traces that process, stops it before its first instruction, and kills it.
func UserNamespace(binary *os.File, users, groups []syscall.SysProcIDMap) (_ *os.File, err error) {
	runtime.LockOSThread() // the tracer is a single thread
	defer runtime.UnlockOSThread()
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, Ptrace: true, Pdeathsig: syscall.SIGKILL, UidMappings: users, GidMappings: groups}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	cmd := Command(binary, null, nil, attr)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() {
		kill := cmd.Process.Kill()
		_, wait := cmd.Process.Wait()
		err = errors.Join(err, kill, wait)
	}()
	return os.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
}
