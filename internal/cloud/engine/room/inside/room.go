//go:build linux

package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/hello"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/orphan"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// roomProcess is pid 1 of the room. It starts sandboxes, reports their end, and
// ends with the server.
type roomProcess struct {
	server *wire.Conn
	wire.RoomSpec
	binary *os.File
	home   []*os.File     // see spawn.Placement
	work   sync.WaitGroup // waits for sandboxes to end

	mu      sync.Mutex
	running map[uint64]*os.Process

	meminfos meminfos
	sweeping sync.Mutex
}

func runRoom(c *wire.Conn, raw json.RawMessage, files *wire.Files) error {
	var spec wire.RoomSpec
	if err := wire.DecodeSpec(raw, &spec); err != nil {
		return err
	}
	spawn.Supervise(spawn.RoomProcessors)
	r := &roomProcess{server: c, RoomSpec: spec, home: files.TakeList(wire.FileGroup), running: make(map[uint64]*os.Process)}
	defer r.meminfos.listen()()
	if err := r.prepare(); err != nil {
		return err
	}
	if err := c.Send(wire.Message{Kind: wire.KindReady}); err != nil {
		return err
	}
	defer r.end()
	for {
		m, files, err := c.Receive(wire.MaxFiles)
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			return nil // the server ended, and when this process exits so do all sandboxes
		}
		if err != nil {
			return err
		}
		switch {
		case m.Kind == wire.KindSpawn:
			err = r.spawn(m, files)
		case m.Kind == wire.KindName && !r.InPlace:
			err = r.name(m)
		case m.Kind == wire.KindMeminfo && !r.InPlace:
			err = r.keepMeminfo(m, files)
		case m.Kind == wire.KindResize && !r.InPlace:
			err = r.resize(m, files)
		case m.Kind == wire.KindSockets && !r.InPlace:
			err = r.sockets(m)
		case m.Kind == wire.KindKill:
			r.kill(m.ID)
		default:
			err = fmt.Errorf("%w: %q in the room", wire.ErrProtocol, m.Kind)
		}
		files.Close()
		if err != nil {
			return err
		}
	}
}

// prepare gives the room its own /proc. Through this /proc, the room maps the ids of its children.
// prepare also copies the binary to a file system that contains nothing else.
func (r *roomProcess) prepare() error {
	if r.InPlace {
		r.binary = os.NewFile(hello.BinaryFD, "binary")
		return orphan.BecomeReaper()
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", os.NewSyscallError("mount", err))
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := errors.Join(r.Counters.Write("/"), limit(r.Limits)); err != nil {
		return err
	}
	host := os.NewFile(hello.BinaryFD, "binary")
	defer host.Close()
	var err error
	r.binary, err = privateCopy(host)
	if err != nil {
		return fmt.Errorf("copy envd: %w", err)
	}
	return nil
}

// privateCopy copies the binary into a read-only file system to which only open descriptors
// refer. Sandboxes run this copy. So even if a sandbox could write to the program that it runs, it
// could not write to the host's file.
func privateCopy(host *os.File) (*os.File, error) {
	fsfd, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fsopen", err)
	}
	defer wire.CloseFD(fsfd)
	// With huge pages, starting the program causes a few page faults instead of
	// hundreds. Kernels without huge pages return an error.
	_ = unix.FsconfigSetString(fsfd, "huge", "always")
	if err := errors.Join(unix.FsconfigSetString(fsfd, "mode", "0755"), unix.FsconfigCreate(fsfd)); err != nil {
		return nil, os.NewSyscallError("fsconfig", err)
	}
	dir, err := unix.Fsmount(fsfd, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return nil, os.NewSyscallError("fsmount", err)
	}
	defer wire.CloseFD(dir)
	fd, err := unix.Openat(dir, "envd", unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o755)
	if err != nil {
		return nil, os.NewSyscallError("openat", err)
	}
	to := os.NewFile(uintptr(fd), "envd")
	if _, err = host.Seek(0, io.SeekStart); err == nil { // an earlier room has read it, and the offset is shared
		_, err = io.Copy(to, host)
	}
	if err := errors.Join(err, to.Chmod(0o755), to.Close()); err != nil {
		return nil, err
	}
	if err := errors.Join(unix.FsconfigSetFlag(fsfd, "ro"), unix.FsconfigReconfigure(fsfd)); err != nil {
		return nil, os.NewSyscallError("fsconfig", err)
	}
	if err := unix.MountSetattr(dir, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return nil, os.NewSyscallError("mount_setattr", err)
	}
	fd, err = unix.Openat(dir, "envd", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("openat", err)
	}
	return os.NewFile(uintptr(fd), "envd"), nil
}

// spawn starts the first process of a sandbox. The server handles a failed start; an error returned
// here ends the room.
func (r *roomProcess) spawn(m wire.Message, files *wire.Files) error {
	fd3, err := files.Take(wire.FileControl)
	if err != nil {
		return err
	}
	defer fd3.Close()
	at := spawn.Placement{Groups: files.TakeList(wire.FileGroup), Home: r.home}
	defer wire.CloseAll(at.Groups)
	var attr *syscall.SysProcAttr
	switch {
	case m.Role == wire.RoleZygote:
		attr = zygoteAttr()
	case r.InPlace:
		attr = inPlaceAttr(m)
	default:
		attr = sandboxAttr(r.Ranged, m.Slot)
		at.Processes = r.Processes
		if r.Ranged {
			at.Owner = spawn.FirstID(m.Slot)
		}
	}
	pidfd := -1
	attr.PidFD = &pidfd
	r.mu.Lock()
	p, err := spawn.Start(r.binary, fd3, os.Stderr, attr, at)
	if errors.Is(err, spawn.ErrAway) {
		r.mu.Unlock()
		return err
	}
	if err != nil {
		r.mu.Unlock()
		return r.server.Send(wire.Message{Kind: wire.KindFailed, ID: m.ID, Error: err.Error()})
	}
	r.running[m.ID] = p.Cmd.Process
	r.mu.Unlock()
	if m.Role != wire.RoleZygote {
		child.PreferAsVictim(p.Cmd.Process.Pid, 2*child.Badness) // rather than the server
	}
	handle := os.NewFile(uintptr(pidfd), "pidfd")
	err = r.server.SendFiles(wire.Message{Kind: wire.KindSpawned, ID: m.ID}, wire.Lent(wire.FilePidfd, handle))
	handle.Close()
	r.work.Go(func() {
		// Once the first process of a pid namespace has been waited for, all others
		// in it are gone too.
		<-p.Done
		if m.Role == wire.RoleZygote {
			reapGroup(p.Cmd.Process.Pid)
		}
		r.mu.Lock()
		delete(r.running, m.ID)
		r.mu.Unlock()
		r.meminfos.drop(m.ID)
		status, _ := p.Cmd.ProcessState.Sys().(syscall.WaitStatus)
		exited := wire.Message{Kind: wire.KindExited, ID: m.ID, Status: int(status)}
		// If a send fails the server is gone, and the receiver notices that.
		if r.InPlace {
			_ = r.server.Send(wire.Message{Kind: wire.KindEnding, ID: m.ID, Status: int(status)})
			if err := r.sweep(); err != nil {
				exited.Error = err.Error()
			}
		}
		_ = r.server.Send(exited)
	})
	return err
}

// sandboxAttr returns the attributes of a sandbox's first process. The ids in the attributes are
// ids of the room's user namespace.
func sandboxAttr(ranged bool, slot uint32) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: spawn.Namespaces, Setsid: true}
	spawn.MapIDs(attr, ranged, spawn.FirstID(slot), spawn.SlotSize, 0, 0)
	return attr
}

// inPlaceAttr returns the attributes of the process of a sandbox in place.
func inPlaceAttr(m wire.Message) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if m.UID != 0 {
		attr.Credential = &syscall.Credential{Uid: m.UID, Gid: m.UID}
	}
	return attr
}

// zygoteAttr returns the attributes of the zygote. The zygote runs in the room's own user and pid
// namespaces, because the namespaces of sandboxes are below these. Only the user that owns a
// sandbox's namespace may join the namespace.
func zygoteAttr() *syscall.SysProcAttr {
	const apart = syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS
	return &syscall.SysProcAttr{Cloneflags: apart, Setsid: true}
}

// process returns the first process of a sandbox, or nil if its end has been reported.
func (r *roomProcess) process(id uint64) *os.Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running[id]
}

// name gives a sandbox its hostname. The sandbox cannot do so itself: it has given up the privilege
// before its hostname is known.
func (r *roomProcess) name(m wire.Message) error {
	p := r.process(m.ID)
	if p == nil {
		return nil
	}
	answer := wire.Message{Kind: wire.KindNamed, ID: m.ID}
	if err := setHostname(p, m.Host); err != nil {
		answer.Error = "set hostname: " + err.Error()
	}
	return r.server.Send(answer)
}

func setHostname(of *os.Process, name string) error {
	return inNamespace(of, unix.CLONE_NEWUTS, "uts", func() error { return os.NewSyscallError("sethostname", unix.Sethostname([]byte(name))) })
}

// inNamespace calls do in a namespace of a process, and then returns to this process's own
// namespace. Because the thread returns, it need not end. This matters because the room may be
// unable to start another thread. name is the namespace's file in /proc.
func inNamespace(of *os.Process, kind int, name string, do func() error) error {
	own, err := os.Open("/proc/thread-self/ns/" + name)
	if err != nil {
		return err
	}
	defer own.Close()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		var enter error
		err := of.WithHandle(func(pidfd uintptr) { enter = os.NewSyscallError("setns", unix.Setns(int(pidfd), kind)) })
		if errors.Is(err, os.ErrNoHandle) { // Go does not name the missing call
			err = fmt.Errorf("pidfd_open, pidfd_send_signal: %w", err)
		}
		if err = errors.Join(err, enter); err == nil {
			err = do()
		}
		if unix.Setns(int(own.Fd()), kind) == nil { // otherwise the thread ends with this goroutine
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// keepMeminfo keeps the /proc/meminfo of a sandbox up to date until the sandbox ends.
func (r *roomProcess) keepMeminfo(m wire.Message, files *wire.Files) error {
	var spec wire.MeminfoSpec
	if err := wire.DecodeSpec(m.Spec, &spec); err != nil {
		return err
	}
	r.mu.Lock() // so that this and the sandbox's end exclude each other
	defer r.mu.Unlock()
	if r.running[m.ID] == nil {
		return nil
	}
	text, err := newMeminfo(uint64(spec.Total), files)
	if err != nil {
		return err
	}
	r.meminfos.keep(m.ID, text)
	return nil
}

func (r *roomProcess) kill(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.running[id]; p != nil {
		_ = p.Kill() // fails only if it has ended
	}
}

// end ends the processes that the kernel does not end together with this process.
func (r *roomProcess) end() {
	if !r.InPlace {
		return
	}
	r.mu.Lock()
	for _, p := range r.running {
		_ = p.Kill() // fails only if it has ended
	}
	r.mu.Unlock()
	r.work.Wait()
}

// sweep ends processes that outlived their envd. The room is the subreaper of such processes, so
// they become children of the room. Every child of the room that is not an envd is such a process.
func (r *roomProcess) sweep() error {
	r.sweeping.Lock() // so that only one goroutine waits for these processes
	defer r.sweeping.Unlock()
	return orphan.End(r.orphans)
}

// orphans lists the processes that outlived their envd. It waits while an envd is being started,
// because a starting envd is not an orphan.
func (r *roomProcess) orphans() ([]int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	envds := make(map[int]bool)
	for _, p := range r.running {
		envds[p.Pid] = true
	}
	children, err := orphan.ChildrenOf(os.Getpid())
	return slices.DeleteFunc(children, func(pid int) bool { return envds[pid] }), err
}
