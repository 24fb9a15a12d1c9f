//go:build linux

package room

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// argv0 is the name under which the re-executed binary takes a role.
const argv0 = "e2bctl-agent"

// Descriptors of a re-executed process: its control socket and the binary.
const (
	controlFD = 3
	binaryFD  = 4
)

// handshakeTimeout bounds the wait for the hello of a re-executed binary. A program
// that does not call Reexec never sends it; one that does may be on a busy machine.
const handshakeTimeout = 10 * time.Second

// openBinary opens the binary to re-execute: path, or this program. A binary that
// the ids of the room may not execute is first copied into dir.
func openBinary(path, dir string) (*os.File, error) {
	if path == "" {
		path = "/proc/self/exe" // works even if the file was replaced or removed in the meantime
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	if !info.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("%s is not a program", path)
	}
	if info.Mode()&0o005 == 0o005 || os.Geteuid() != 0 {
		return f, nil
	}
	defer f.Close()
	name := filepath.Join(dir, "agent")
	to, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return nil, err
	}
	_, err = to.ReadFrom(f)
	if err := errors.Join(err, to.Chmod(0o755), to.Close()); err != nil {
		return nil, err
	}
	return os.Open(name)
}

// process is a re-executed child of this process.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended and was reaped
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if it has ended
	<-p.done
}

// command returns the command that re-executes binary with fd3 as its control
// socket.
func command(binary, fd3, stderr *os.File, attr *syscall.SysProcAttr) *exec.Cmd {
	return &exec.Cmd{
		Path:        fmt.Sprintf("/proc/self/fd/%d", binaryFD),
		Args:        []string{argv0},
		Env:         []string{}, // nil would be our environment
		Dir:         "/",
		Stderr:      stderr,
		ExtraFiles:  []*os.File{fd3, binary},
		SysProcAttr: attr,
	}
}

// start starts the binary with fd3 as its control socket. The thread that starts it
// stays locked and alive until the child has ended, because the parent-death signal
// follows the thread, not the process.
func start(binary, fd3, stderr *os.File, attr *syscall.SysProcAttr, at birthplace) (*process, error) {
	cmd := command(binary, fd3, stderr, attr)
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := at.start(cmd)
		if !errors.Is(err, errAway) { // otherwise the thread ends with this goroutine
			defer runtime.UnlockOSThread()
		}
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // the control socket says how it ended
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// greet makes the handshake with the child: it waits for its hello and assigns it
// its role.
func (c *control) greet(ctx context.Context, r role, spec any, files ...*os.File) error {
	if err := c.hello(ctx); err != nil {
		return err
	}
	return c.appoint(ctx, r, spec, files...)
}

func (c *control) hello(ctx context.Context) error {
	defer c.deadline(ctx, handshakeTimeout)()
	_, _, err := c.expect(kindHello, 0)
	return because(ctx, err)
}

func (c *control) appoint(ctx context.Context, r role, spec any, files ...*os.File) error {
	return because(ctx, c.send(message{Kind: kindRole, Protocol: wireVersion, Role: r, Spec: encode(spec)}, files...))
}

// notAnAgent explains why the handshake with the first binary failed.
func notAnAgent(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, errPeerEnded) {
		return fmt.Errorf("the binary did not become an agent, name one that does, e2bctl itself, with local.WithBinary(path): %w", err)
	}
	return err
}

// deadline bounds the time of receives until the returned function is called.
func (c *control) deadline(ctx context.Context, d time.Duration) func() {
	_ = c.conn.SetReadDeadline(time.Now().Add(d)) // fails only when closed, and then the read fails too
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetReadDeadline(time.Unix(1, 0)) })
	return func() {
		stop()
		_ = c.conn.SetReadDeadline(time.Time{})
	}
}

// because returns ctx's cause if ctx has ended, else err.
func because(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// idBase is the first host id of the range that sandboxes of a root server get:
// above the ids that distributions, systemd-nspawn and container engines hand out,
// and below those that some programs take for negative numbers.
const (
	idBase     = 0x70000000
	idCount    = 1 << 28
	slotSize   = 1 << 16
	slotsCount = idCount / slotSize
)

// roomIDs are the ids of the room as this process numbers them.
type roomIDs struct {
	ranged bool // a range, of which each sandbox gets 65,536; otherwise a single id
}

// planIDs decides which ids the room gets. No id inside may ever be host uid 0:
// with it core_pattern can be opened for writing without any capability.
func planIDs() (roomIDs, error) {
	if os.Geteuid() != 0 {
		return roomIDs{}, nil
	}
	data, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return roomIDs{}, err
	}
	for _, m := range parseIDMap(data) {
		if m.inside <= idBase && m.inside+m.count >= idBase+idCount {
			return roomIDs{ranged: true}, nil
		}
	}
	for _, m := range parseIDMap(data) {
		if m.inside == 0 && m.outside != 0 {
			return roomIDs{}, nil // this is root of a user namespace, so an ordinary user outside
		}
	}
	return roomIDs{}, errors.New("this root has no other ids to give to sandboxes")
}

type idRange struct{ inside, outside, count uint64 }

func parseIDMap(data []byte) []idRange {
	var ranges []idRange
	for len(data) > 0 {
		var r idRange
		line := data
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			line, data = data[:i], data[i+1:]
		} else {
			data = nil
		}
		if n, err := fmt.Sscan(string(line), &r.inside, &r.outside, &r.count); err == nil && n == 3 {
			ranges = append(ranges, r)
		}
	}
	return ranges
}

const namespaces = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC |
	syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// roomAttr returns how the room is started.
func roomAttr(ids roomIDs) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: namespaces, Setsid: true, Pdeathsig: syscall.SIGKILL}
	mapIDs(attr, ids.ranged, idBase, idCount, os.Geteuid(), os.Getegid())
	return attr
}

// sandboxAttr returns how the room starts a sandbox; ids are as the room numbers
// them.
func sandboxAttr(ranged bool, slot uint32) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: namespaces, Setsid: true}
	mapIDs(attr, ranged, firstID(slot), slotSize, 0, 0)
	return attr
}

// firstID returns the first id of a slot, as the room numbers ids: root of the
// sandbox and owner of its user namespace.
func firstID(slot uint32) int { return int(slot) * slotSize }

func mapIDs(attr *syscall.SysProcAttr, ranged bool, base, count, uid, gid int) {
	if !ranged {
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
		return
	}
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: base, Size: count}}
	attr.GidMappings = attr.UidMappings
	attr.GidMappingsEnableSetgroups = true
	attr.Credential = &syscall.Credential{} // root of the new namespace, no supplementary groups
}

// exists reports whether path exists, following links.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
