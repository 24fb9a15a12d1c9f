//go:build linux

package inside

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/link"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/capability"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// facts are properties of a sandbox that the envd of the tests finds out.
type facts struct {
	Users                      []guest.User
	Root, Temp, Run            string
	Config                     json.RawMessage
	Egress, Loopback, Private  bool // Private: it has no_new_privs
	Restricted, Dumpable, Kept bool // Kept: it has the capabilities of a sandbox
	Kills                      int
	Used, Cache                uint64
	Known                      bool
	Host, Hosts, Dir           string
	Descriptors                []string // that its children would inherit, and their types
	Death                      int32    // signal at the end of its parent
	Seccomp                    string
	Certificate                bool
	Session                    bool   // it leads one
	Program                    string // its mode, and the flags of its file system
	Victim                     string // how much the kernel prefers to end it
	Queue                      uint64 // the limit of message queues
	Meminfo, Online            string
	Disk                       uint64
	Became                     string // the last configuration that it became
	AnyUser                    bool
	Threads                    bool // it has spare ones
	Files                      []string
}

// atParentsEnd is the signal that the first thread of this process gets when its parent ends.
var atParentsEnd int32

func init() { // runs on the first thread
	_, _, _ = unix.RawSyscall(unix.SYS_PRCTL, unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&atParentsEnd)), 0)
}

// tell serves envd in the tests: each connection receives its facts, after it has sent the name of a
// program's argument or an empty line. "end" ends it.
func tell(ctx context.Context, g *Guest) error {
	listener, err := g.Listen(protocol.PortEnvd)
	if err != nil {
		return err
	}
	var became atomic.Value
	g.OnBecome(func(config json.RawMessage) error {
		became.Store(string(config))
		if string(config) == `"refused"` {
			return errors.New("it does not become that")
		}
		return nil
	})
	if _, err := g.Log.Write([]byte(`"began"`)); err != nil {
		return err
	}
	if err := g.Ready(); err != nil {
		return err
	}
	go func() {
		<-ctx.Done()
		_ = listener.Close()
	}()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return context.Cause(ctx)
		}
		order := make([]byte, 64)
		n, err := conn.Read(order)
		if err != nil {
			return err
		}
		switch what := strings.TrimSpace(string(order[:n])); {
		case what == "end":
			return errors.New("told to end")
		case what == "linger": // a process that outlives its parent
			cmd := exec.CommandContext(context.WithoutCancel(ctx), "/proc/self/exe")
			cmd.Args[0], cmd.Env, cmd.SysProcAttr = "lingering", []string{}, &syscall.SysProcAttr{Setsid: true}
			if err := cmd.Start(); err != nil {
				return err
			}
			fmt.Fprint(conn, cmd.Process.Pid)
		case what == "leave": // a connection out of the sandbox
			text := ""
			out, failed := g.DialEgress(ctx, "a.test", 80)
			if failed == nil {
				text, failed = readAndClose(out)
			}
			denied, _ := errors.AsType[*RefusedError](failed)
			fmt.Fprint(conn, text, failed, denied != nil && denied.Denied())
		case what == "kernel":
			_, err := g.Kernel(ctx)
			fmt.Fprint(conn, err)
		case strings.HasPrefix(what, "log "):
			_, err = g.Log.Write([]byte(what[4:]))
		default:
			f := factsOf(g)
			f.Became, _ = became.Load().(string)
			err = json.NewEncoder(conn).Encode(f)
		}
		if err := errors.Join(err, conn.Close()); err != nil {
			return err
		}
	}
}

func readAndClose(conn net.Conn) (string, error) {
	text, err := io.ReadAll(conn)
	return string(text), errors.Join(err, conn.Close())
}

// factsOf finds out the facts.
func factsOf(g *Guest) facts {
	f := facts{Users: g.Users, Root: g.Root, Temp: g.Temp, Run: g.Run, Config: g.Config, Egress: g.Egress, Loopback: g.ownLoopback, Restricted: g.restricted, Kills: g.OOMKills()}
	f.Used, f.Cache, f.Known = g.MemoryUse()
	f.Host, _ = os.Hostname()
	hosts, _ := os.ReadFile("/etc/hosts")
	f.Hosts = string(hosts)
	f.Dir, _ = os.Getwd()
	for fd := range 64 {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			f.Descriptors = append(f.Descriptors, fmt.Sprint(fd))
		}
	}
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		switch name {
		case "NoNewPrivs":
			f.Private = value == "1"
		case "Seccomp":
			f.Seccomp = value
		}
	}
	have, _ := capability.Effective()
	f.Kept = have == capability.Kept(!f.Private)
	f.Death = atParentsEnd
	dumpable, _ := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	f.Dumpable = dumpable != 0
	f.Certificate = exists(guest.AuthorityFile)
	info, _ := os.Stat("/proc/self/exe")
	var system unix.Statfs_t
	_ = unix.Statfs("/proc/self/exe", &system)
	f.Program = fmt.Sprintf("%v %#x", info.Mode(), system.Flags&(unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV))
	victim, _ := os.ReadFile("/proc/self/oom_score_adj")
	f.Victim = strings.TrimSpace(string(victim))
	var queue unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_MSGQUEUE, &queue)
	f.Queue = queue.Max
	meminfo, _ := os.ReadFile("/proc/meminfo")
	online, _ := os.ReadFile("/sys/devices/system/cpu/online")
	_ = unix.Statfs(g.Root, &system)
	f.Meminfo, f.Online, f.Disk = string(meminfo), strings.TrimSpace(string(online)), system.Blocks*uint64(system.Bsize)
	f.AnyUser = g.AnyUser
	threads, _ := os.ReadDir("/proc/self/task")
	f.Threads = len(threads) > spareThreads
	session, _ := unix.Getsid(0)
	f.Session = session == os.Getpid()
	entries, _ := os.ReadDir(g.Root)
	for _, e := range entries {
		f.Files = append(f.Files, e.Name())
	}
	return f
}

// role is a process of this program with a role, and the server's end of its connection.
type role struct {
	*spawn.Process
	*wire.Conn
}

// startRole starts this program, and assigns a role to it.
func startRole(t *testing.T, attr *syscall.SysProcAttr, at spawn.Placement, as wire.Role, spec any, files *wire.Files) role {
	t.Helper()
	conn, far, err := wire.Pair(wire.MaxMessage)
	must.Do(t, err)
	binary, err := os.Open("/proc/self/exe")
	must.Do(t, err)
	defer binary.Close()
	p, err := spawn.Start(binary, far, os.Stderr, attr, at)
	must.Do(t, errors.Join(err, far.Close()))
	t.Cleanup(func() { p.Kill(); conn.Close() })
	must.Do(t, conn.Handshake(patience.Context(t), as, spec, files))
	return role{p, conn}
}

// expect returns the next message of a connection, which must be of this kind.
func expect(t *testing.T, c *wire.Conn, kind wire.Kind, limit int) (wire.Message, *wire.Files) {
	t.Helper()
	defer c.Deadline(patience.Context(t), patience.Limit)()
	m, files, err := c.Expect(kind, limit)
	must.Do(t, err)
	return m, files
}

// spawned makes a room start a sandbox, and returns the server's end of its connection.
func spawned(t *testing.T, room *wire.Conn, m wire.Message, files *wire.Files) *wire.Conn {
	t.Helper()
	conn, far, err := wire.Pair(wire.MaxMessage)
	must.Do(t, err)
	t.Cleanup(conn.Close)
	m.Kind = wire.KindSpawn
	files.Lend(wire.FileControl, far)
	must.Do(t, room.SendFiles(m, files))
	must.Do(t, far.Close())
	started, sent := expect(t, room, wire.KindSpawned, 1)
	if pidfd, err := sent.Take(wire.FilePidfd); err != nil || started.ID != m.ID {
		t.Errorf("it started %+v with the error %v", started, err)
	} else {
		must.Do(t, unix.PidfdSendSignal(int(pidfd.Fd()), 0, nil, 0))
		pidfd.Close()
	}
	must.Do(t, conn.AwaitHello(patience.Context(t)))
	return conn
}

// envdFiles are the files that are passed to an envd.
func envdFiles(t *testing.T) *wire.Files {
	t.Helper()
	dir := t.TempDir()
	var files wire.Files
	for name, text := range map[wire.FileName]string{
		wire.FileConfig: `{"own":1}`, wire.FileOOMKills: "low 9\noom_kill 5\n", wire.FileMemoryUse: "anon 3000\nfile 5000\nshmem 1000\ninactive_file 10\n",
	} {
		path := filepath.Join(dir, string(name))
		must.Do(t, os.WriteFile(path, []byte(text), 0o644))
		reopen(t, path, &files, name)
	}
	return &files
}

// asked dials envd, sends it an order, and returns its answer.
func asked(t *testing.T, envd *wire.Conn, order string) string {
	t.Helper()
	ours, theirs, err := wire.StreamPair()
	must.Do(t, err)
	defer ours.Close()
	must.Do(t, errors.Join(envd.SendFiles(wire.Message{Kind: wire.KindDial, Port: protocol.PortEnvd}, wire.Lent(wire.FileStream, theirs)), theirs.Close()))
	return answered(t, ours, order)
}

func answered(t *testing.T, conn net.Conn, order string) string {
	t.Helper()
	must.Do(t, conn.SetDeadline(patience.Deadline()))
	_, err := io.WriteString(conn, order+"\n")
	must.Do(t, err)
	text, err := io.ReadAll(conn)
	must.Do(t, err)
	return strings.TrimPrefix(string(text), string([]byte{link.StatusConnected}))
}

// factsFrom decodes the answer of envd.
func factsFrom(t *testing.T, text string) facts {
	t.Helper()
	var f facts
	must.Do(t, json.Unmarshal([]byte(text), &f))
	slices.Sort(f.Files)
	return f
}

// exitOf returns how a sandbox ended.
func exitOf(t *testing.T, room *wire.Conn, id uint64) syscall.WaitStatus {
	t.Helper()
	m, _ := expect(t, room, wire.KindExited, 0)
	if m.ID != id || m.Error != "" {
		t.Errorf("got the end %+v, want that of %d", m, id)
	}
	return syscall.WaitStatus(m.Status)
}

// machineTrees are the directories of the machine that programs need to start, and the links to them.
func machineTrees() (trees []string, mounted []bool, links map[string]string) {
	links = map[string]string{}
	for _, path := range append([]string{"/usr"}, guest.RootLinks...) {
		if target, err := os.Readlink(path); err == nil {
			links[path] = target
		} else if exists(path) {
			trees = append(trees, path)
		}
	}
	return trees, make([]bool, len(trees)), maps.Clone(links)
}
