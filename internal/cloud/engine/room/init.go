//go:build linux

package room

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/seccomp"
)

// runInit is the first stage of a sandbox: pid 1 in fresh namespaces, with every
// capability in them. It builds the sandbox around itself, gives up all of these
// capabilities and executes the second stage. It returns only errors, all of them
// fatal.
func runInit(c *control, raw json.RawMessage, mounts []*os.File) error {
	// Restrictions apply to this thread, which the exec then makes the only one.
	runtime.LockOSThread()
	var spec initSpec
	if err := decodeSpec(raw, &spec); err != nil {
		return err
	}
	if spec.Place != nil {
		return enterPlace(c, &spec)
	}
	unix.Umask(0) // modes are used as written; the umask is set again before the exec
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("bring up lo: %w", err)
	}
	sockets, problem, err := makeWay(spec.Way, spec.Ranged) // before /proc/sys becomes read-only
	if err != nil {
		return fmt.Errorf("make the way out: %w", err)
	}
	notes, err := build(&spec, mounts)
	if err != nil {
		return err
	}
	if err := limit(spec.Limits); err != nil {
		return err
	}
	if err := built(c, message{Kind: kindReady, Notes: notes, Error: problem}, sockets...); err != nil {
		return err
	}
	closeAll(sockets)
	// The process may have joined a group after the clone: make that group the root
	// of its cgroup namespace.
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("unshare cgroup namespace: %w", err)
	}
	return executeAgent(c, spec.Ranged, nil)
}

// built reports that the first stage's work is done, and waits for the limits.
func built(c *control, ready message, files ...*os.File) error {
	if err := c.send(ready, files...); err != nil {
		return err
	}
	_, _, err := c.expect(kindGo, 0)
	return err
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer closeFD(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

func limit(limits []rlimit) error {
	for _, l := range limits {
		if err := unix.Setrlimit(int(l[0]), &unix.Rlimit{Cur: l[1], Max: l[1]}); err != nil {
			return fmt.Errorf("set resource limit %d to %d: %w", l[0], l[1], err)
		}
	}
	return nil
}

// executeAgent drops what the sandbox must not have and executes the second stage.
// more adds restrictions; with it, sockets are refused as well, because there is no
// network namespace to confine them.
func executeAgent(c *control, ranged bool, more func() error) error {
	unix.Umask(0o022)
	keep := capabilitiesOf(ranged)
	if !ranged {
		// With a range of ids, setuid programs work, and give at most the sandbox's
		// own root.
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("set no_new_privs: %w", err)
		}
	}
	if err := c.export(controlFD); err != nil {
		return err
	}
	if more != nil {
		if err := more(); err != nil {
			return err
		}
	}
	if err := seccomp.Apply(more == nil); err != nil {
		return err
	}
	if err := dropCapabilities(keep); err != nil {
		return err
	}
	return execBinary()
}

// execBinary executes the binary by its descriptor: it has no path in the sandbox.
func execBinary() error {
	name, err := unix.BytePtrFromString(argv0)
	if err != nil {
		return err
	}
	argv := [...]*byte{name, nil}
	envp := [...]*byte{nil}
	empty := [...]byte{0}
	_, _, errno := unix.RawSyscall6(unix.SYS_EXECVEAT, binaryFD, uintptr(unsafe.Pointer(&empty[0])),
		uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&envp[0])), unix.AT_EMPTY_PATH, 0)
	return fmt.Errorf("execute the agent: %w", errno)
}

// keptCapabilities are what package managers need; they apply only inside the
// sandbox's user namespace.
const keptCapabilities uint64 = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID |
	1<<unix.CAP_KILL | 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_NET_BIND_SERVICE | 1<<unix.CAP_SYS_CHROOT

// capabilitiesOf returns the capabilities that the agent keeps.
func capabilitiesOf(ranged bool) uint64 {
	if ranged {
		return keptCapabilities
	}
	return 0
}

func dropCapabilities(keep uint64) error {
	for c := range 64 {
		if keep&(1<<c) != 0 {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // past the last capability of this kernel
		}
		if errors.Is(err, unix.EPERM) && keep == 0 {
			break // no right to lower the bound, but with no_new_privs also no way to use it
		}
		if err != nil {
			return fmt.Errorf("drop capability %d from the bounding set: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{
		{Effective: uint32(keep), Permitted: uint32(keep)},
		{Effective: uint32(keep >> 32), Permitted: uint32(keep >> 32)},
	}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}

// restrictAgent is the first thing that the second stage does: no process may
// attach to it or read its memory through /proc.
func restrictAgent() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("set not dumpable: %w", err)
	}
	return nil
}
