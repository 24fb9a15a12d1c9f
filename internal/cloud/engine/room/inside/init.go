//go:build linux

package inside

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/capability"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/hello"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// runInit is the first stage of a sandbox. It returns only if it fails. All of its errors are fatal.
func runInit(c *wire.Conn, raw json.RawMessage, files *wire.Files) error {
	// Restrictions apply to this thread, which the exec then makes the only one.
	runtime.LockOSThread()
	var spec wire.InitSpec
	if err := wire.DecodeSpec(raw, &spec); err != nil {
		return err
	}
	return chooseRunner(spec.Runner).initialize(c, &spec, files)
}

// initWith is the first stage of a sandbox with a file system of its own: pid 1 in new namespaces,
// with every capability in them.
func initWith(run builder, c *wire.Conn, spec *wire.InitSpec, files *wire.Files) error {
	var hidden []string
	if !spec.Ranged { // otherwise the server makes the mounts
		spec.Trees, hidden = reachable(spec.Trees)
		spec.Mounted = make([]bool, len(spec.Trees))
	}
	unix.Umask(0) // modes are used as written; the umask is set again before the exec
	if err := run.start(spec, files); err != nil {
		return err
	}
	mounter, err := files.TakeWhen(spec.Mounter, wire.FileMounter)
	if err != nil {
		return err
	}
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("bring up lo: %w", err)
	}
	sockets, problem, err := makeEgressPath(spec.EgressPath, spec.Ranged) // before /proc/sys becomes read-only
	if err != nil {
		return fmt.Errorf("make the egress path: %w", err)
	}
	b, err := build(run, spec, files)
	if err != nil {
		return err
	}
	if err := limit(spec.Limits); err != nil {
		return err
	}
	notes := append(b.notes, runOn(spec.Processors)...)
	made := b.passed(sockets)
	if err := awaitGo(c, wire.Message{Kind: wire.KindReady, Notes: notes, Trees: b.lost, Hidden: hidden, Error: problem}, made); err != nil {
		return err
	}
	made.Close()
	if mounter != nil {
		// The mounter has every capability here, and its parent is about to lose them. So it is forked
		// now, when this process is limited and has run trusted code only: nothing in the sandbox could
		// start such a process later without being open to influence.
		err := spawn.StartLater(mounter)
		mounter.Close()
		if err != nil {
			return fmt.Errorf("start the mounter: %w", err)
		}
	}
	if spec.Late { // the mounter enters the root for both: its pivot_root moves every process at the old root
		if err := os.Chdir("/"); err != nil {
			return err
		}
	}
	// The process may have joined a group after the clone: make that group the root
	// of its cgroup namespace.
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("unshare cgroup namespace: %w", err)
	}
	return run.execute(c, spec)
}

// awaitGo reports that the first stage's work is done, and waits for the limits.
func awaitGo(c *wire.Conn, ready wire.Message, files *wire.Files) error {
	if err := c.SendFiles(ready, files); err != nil {
		return err
	}
	_, _, err := c.Expect(wire.KindGo, 0)
	return err
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer wire.CloseFD(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

func limit(limits []wire.Rlimit) error {
	for _, l := range limits {
		if err := unix.Setrlimit(int(l[0]), &unix.Rlimit{Cur: l[1], Max: l[1]}); err != nil {
			return fmt.Errorf("set resource limit %d to %d: %w", l[0], l[1], err)
		}
	}
	return nil
}

// executeEnvd drops the privileges that the sandbox must not have, applies the seccomp filter and
// executes the second stage.
func executeEnvd(c *wire.Conn, ranged bool, filter func() error) error {
	unix.Umask(0o022)
	keep := capability.Kept(ranged)
	if !ranged {
		// With a range of ids, setuid programs work, and give at most the sandbox's
		// own root.
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("set no_new_privs: %w", err)
		}
	}
	if err := c.Export(hello.ControlFD); err != nil {
		return err
	}
	if err := filter(); err != nil {
		return err
	}
	if err := capability.Drop(keep); err != nil {
		return err
	}
	return execBinary()
}

// execBinary executes the binary by its descriptor, because the binary has no path in the sandbox.
func execBinary() error {
	name, err := unix.BytePtrFromString(hello.Argv0)
	if err != nil {
		return err
	}
	stage, err := unix.BytePtrFromString(hello.SecondStage)
	if err != nil {
		return err
	}
	argv := [...]*byte{name, stage, nil}
	envp := [...]*byte{nil}
	empty := [...]byte{0}
	_, _, errno := unix.RawSyscall6(unix.SYS_EXECVEAT, hello.BinaryFD, uintptr(unsafe.Pointer(&empty[0])),
		uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&envp[0])), unix.AT_EMPTY_PATH, 0)
	return fmt.Errorf("execute envd: %w", os.NewSyscallError("execveat", errno))
}

// restrictEnvd is the first step of the second stage. It prevents other processes from attaching to
// envd, and from reading envd's memory through /proc.
func restrictEnvd() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("set not dumpable: %w", err)
	}
	return nil
}
