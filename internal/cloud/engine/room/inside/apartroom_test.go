//go:build linux

package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/counter"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/orphan"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// apartRoom starts a room in namespaces of its own.
func apartRoom(t *testing.T) role {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root has ranges of ids")
	}
	attr := &syscall.SysProcAttr{Cloneflags: spawn.Namespaces, Setsid: true, Pdeathsig: syscall.SIGKILL}
	spawn.MapIDs(attr, true, spawn.IDBase, spawn.IDCount, 0, 0)
	spec := wire.RoomSpec{Ranged: true, Counters: counter.Maxima{"max_inotify_instances": 77}, Limits: []wire.Rlimit{{unix.RLIMIT_MSGQUEUE, 1000}}, Processes: 64}
	room := startRole(t, attr, spawn.Placement{Owner: spawn.IDBase}, wire.RoleRoom, spec, nil)
	expect(t, room.Conn, wire.KindReady, 0)
	return room
}

// apartSandbox is a sandbox of a room in namespaces.
type apartSandbox struct {
	envd, mounter *wire.Conn
	spec          wire.InitSpec
	files         wire.Files // those that its first stage sent
}

// build builds a sandbox, up to the second stage.
func (s *apartSandbox) build(t *testing.T, room role, id uint64) {
	t.Helper()
	s.envd = spawned(t, room.Conn, wire.Message{ID: id, Slot: 3}, &wire.Files{})
	s.spec = wire.InitSpec{Runner: wire.Runner{Ranged: true}, Path: "/of/programs", EgressPath: wire.EgressBuild, Disk: 16 << 20, Memory: 1 << 30, Processors: []int{0}, Mounter: true, Late: s.spec.Late}
	s.spec.Trees, s.spec.Mounted, s.spec.Links = machineTrees()
	mounter, far, err := wire.Pair(wire.MaxMessage)
	must.Do(t, err)
	t.Cleanup(mounter.Close)
	s.mounter = mounter
	var files wire.Files
	files.Lend(wire.FileMounter, far)
	must.Do(t, s.envd.Assign(patience.Context(t), wire.RoleInit, s.spec, &files))
	must.Do(t, far.Close())
	m, sent := expect(t, s.envd, wire.KindReady, 8)
	if m.Error != "" || len(m.Notes) > 0 || sent.Len() != 5 {
		t.Errorf("it was built as %+v with %d files", m, sent.Len())
	}
	s.files = *sent
	t.Cleanup(s.files.Close)
	must.Do(t, s.envd.Send(wire.Message{Kind: wire.KindGo}))
	must.Do(t, s.envd.AwaitHello(patience.Context(t)))
}

// begin makes it an envd.
func (s *apartSandbox) begin(t *testing.T) {
	t.Helper()
	s.mounter.End()
	names := map[string]netip.Addr{"b.test": netip.MustParseAddr("10.0.0.2"), "a.test": netip.MustParseAddr("10.0.0.1")}
	must.Do(t, s.envd.Assign(patience.Context(t), wire.RoleEnvd, wire.EnvdSpec{Runner: s.spec.Runner, Hostname: "own", Egress: true, Names: names}, envdFiles(t)))
	expect(t, s.envd, wire.KindReady, 0)
	expect(t, s.envd, wire.KindLog, 0)
}

// mount lets the mounter take a role, and returns its answer.
func (s *apartSandbox) mount(t *testing.T, as wire.Role, spec any, files *wire.Files) (wire.Message, *wire.Files) {
	t.Helper()
	must.Do(t, s.mounter.Send(wire.Message{Kind: wire.KindGo}))
	must.Do(t, s.mounter.Handshake(patience.Context(t), as, spec, files))
	return expect(t, s.mounter, wire.KindReady, 1)
}

// facts checks the facts of its envd.
func (s *apartSandbox) facts(t *testing.T, change func(*facts)) {
	t.Helper()
	got := factsFrom(t, asked(t, s.envd, ""))
	want := facts{Users: users(true), Root: "/", Temp: "/tmp", Run: runDirectory, Config: json.RawMessage(`{"own":1}`), Egress: true, Loopback: true, Kept: true,
		Kills: 5, Used: 4000, Cache: 4000, Known: true, Host: "own", Hosts: "127.0.0.1\tlocalhost\n127.0.1.1\town\n::1\tip6-localhost ip6-loopback\n10.0.0.1\ta.test\n10.0.0.2\tb.test\n",
		Dir: "/", Descriptors: []string{"0", "1", "2"}, Seccomp: "2", Session: true, Files: got.Files, Program: "-rwxr-xr-x 0x7", Victim: strconv.Itoa(2 * child.Badness), Queue: 1000,
		Meminfo: string(memoryText(1<<30, cgroup.Memory{})), Online: "0", Disk: 16 << 20, Threads: got.Threads}
	change(&want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("its envd (-want +got):\n%s", diff)
	}
}

// grow starts the updates of the memory that programs see, and then changes all limits of the sandbox.
func (s *apartSandbox) grow(t *testing.T, room role, id uint64) {
	t.Helper()
	var files wire.Files
	for _, name := range []wire.FileName{wire.FileMeminfo, wire.FileProc} {
		file, err := s.files.Take(name)
		must.Do(t, err)
		files.Add(name, file)
	}
	use, err := envdFiles(t).Take(wire.FileMemoryUse)
	must.Do(t, err)
	memory, known := cgroup.ReadMemory(use)
	files.Add(wire.FileMemoryUse, use)
	must.Do(t, room.SendFiles(wire.Message{Kind: wire.KindMeminfo, ID: id, Spec: wire.Encode(wire.MeminfoSpec{Total: 1 << 30})}, &files))
	files.Close()
	text := string(memoryText(1<<30, memory))
	patience.Until(t, "the memory in use is shown", func() bool { return known && factsFrom(t, asked(t, s.envd, "")).Meminfo == text })

	tree, err := s.files.Take(wire.FileFiles)
	must.Do(t, err)
	defer tree.Close()
	must.Do(t, room.SendFiles(wire.Message{Kind: wire.KindResize, ID: id, Spec: wire.Encode(wire.ResizeSpec{Disk: 8 << 20, Memory: 1 << 29, Processors: []int{0, 1}})}, wire.Lent(wire.FileFiles, tree)))
	if m, _ := expect(t, room.Conn, wire.KindResized, 0); m.ID != id || m.Error != "" {
		t.Errorf("got the answer %+v", m)
	}
	text = string(memoryText(1<<29, memory))
	patience.Until(t, "the changed memory is shown", func() bool { return factsFrom(t, asked(t, s.envd, "")).Meminfo == text })
	s.facts(t, func(want *facts) { want.Meminfo, want.Online, want.Disk = text, "0,1", 8<<20 })
}

// TestSandboxApart starts a room in namespaces and a sandbox in it, and checks each request about it.
func TestSandboxApart(t *testing.T) {
	t.Parallel()
	room := apartRoom(t)
	const id = 7
	var s apartSandbox
	s.build(t, room, id)
	must.Do(t, room.Send(wire.Message{Kind: wire.KindName, ID: id, Host: "own"}))
	if m, _ := expect(t, room.Conn, wire.KindNamed, 0); m.ID != id || m.Error != "" {
		t.Errorf("got the answer %+v", m)
	}
	s.begin(t)
	s.facts(t, func(*facts) {})
	s.grow(t, room, id)

	must.Do(t, room.Send(wire.Message{Kind: wire.KindSockets, ID: id}))
	m, sent := expect(t, room.Conn, wire.KindSockets, 2)
	sockets := sent.TakeList(wire.FileSocket)
	if m.ID != id || m.Error != "" || len(sockets) == 0 {
		t.Fatalf("got the answer %+v with %d sockets", m, len(sockets))
	}
	defer wire.CloseAll(sockets)
	if err := unix.Connect(int(sockets[0].Fd()), &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: protocol.PortEnvd}); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		t.Errorf("a connection to its loopback: %v", err)
	}
	conn, err := net.FileConn(sockets[0])
	must.Do(t, err)
	defer conn.Close()
	if got := factsFrom(t, answered(t, conn, "")); got.Host != "own" {
		t.Errorf("its loopback leads to %+v", got)
	}

	for _, kind := range []wire.Kind{wire.KindName, wire.KindSockets, wire.KindMeminfo, wire.KindResize, wire.KindKill} { // another one, which has no answer
		var files wire.Files
		if kind == wire.KindResize {
			reopen(t, os.DevNull, &files, wire.FileFiles)
		}
		must.Do(t, room.SendFiles(wire.Message{Kind: kind, ID: id + 1, Spec: json.RawMessage("{}")}, &files))
		files.Close()
	}
	must.Do(t, room.Send(wire.Message{Kind: wire.KindKill, ID: id}))
	if status := exitOf(t, room.Conn, id); status.Signal() != unix.SIGKILL {
		t.Errorf("it ended with %v", status)
	}
	room.Close()
	patience.Receive(t, "the end of the room", room.Done)
	if room.Status() != 0 {
		t.Errorf("the room ended with %v", room.Status())
	}
}

// mountOf returns a mount of a directory of the machine.
func mountOf(t *testing.T, dir string) *os.File {
	t.Helper()
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	must.Do(t, err)
	must.Do(t, unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: wire.LayerAttributes}))
	return os.NewFile(uintptr(fd), dir)
}

// TestMounters checks what a mounter makes of a sandbox that has no owner yet.
func TestMounters(t *testing.T) {
	t.Parallel()
	room := apartRoom(t)
	layer := t.TempDir()
	must.Do(t, errors.Join(os.Chmod(layer, 0o755), os.Chmod(filepath.Dir(layer), 0o755), os.Mkdir(layer+"/0", 0o755), os.WriteFile(layer+"/0/own", nil, 0o644)))
	certificate := []byte("certificate\n")
	for id, name := range []string{"authority", "files", "enterer", "enterer with an authority"} {
		s := apartSandbox{spec: wire.InitSpec{Late: strings.HasPrefix(name, "enterer")}}
		s.build(t, room, uint64(id))
		must.Do(t, room.Send(wire.Message{Kind: wire.KindName, ID: uint64(id), Host: "own"}))
		expect(t, room.Conn, wire.KindNamed, 0)
		switch name {
		case "authority":
			s.mount(t, wire.RoleMounter, wire.InitSpec{Runner: s.spec.Runner, Authority: certificate}, nil)
		case "files":
			spec := s.spec
			spec.Layers, spec.Mounter = []wire.Layer{{Trees: []string{""}}}, false
			files, err := s.files.Take(wire.FileFiles)
			must.Do(t, err)
			var passed wire.Files
			passed.Add(wire.FileFiles, files)
			passed.Add(wire.FileLayer.Numbered(0), mountOf(t, layer))
			spec.Mounted = nil
			for i, tree := range spec.Trees {
				passed.Add(wire.FileTree.Numbered(i), mountOf(t, tree))
				spec.Mounted = append(spec.Mounted, true)
			}
			m, answer := s.mount(t, wire.RoleMounter, spec, &passed)
			passed.Close()
			replaced, err := answer.Take(wire.FileFiles)
			if err != nil || len(m.Notes) > 0 || !exists(fmt.Sprintf("/proc/self/fd/%d/root-upper", replaced.Fd())) && !exists(fmt.Sprintf("/proc/self/fd/%d/%s", replaced.Fd(), rootUpper)) {
				t.Errorf("%s: got %+v and the error %v", name, m, err)
			}
			answer.Close()
			must.Do(t, replaced.Close())
		case "enterer":
			s.mount(t, wire.RoleEnterer, wire.EnterSpec{}, nil)
		default:
			s.mount(t, wire.RoleEnterer, wire.EnterSpec{Authority: certificate}, nil)
		}
		if _, _, err := s.mounter.Receive(0); !errors.Is(err, io.EOF) {
			t.Errorf("%s: the mounter stays: %v", name, err)
		}
		s.begin(t)
		s.facts(t, func(want *facts) {
			want.Certificate = strings.Contains(name, "authority")
			if own := slices.Contains(want.Files, "own"); own != (name == "files") || !slices.Contains(want.Files, "usr") || slices.Contains(want.Files, "root-upper") {
				t.Errorf("%s: its root has %v", name, want.Files)
			}
		})
	}
	room.Close()
	patience.Receive(t, "the end of the room", room.Done)
}

// TestZygote checks what the driver of the zygote is started with, and that processes which it leaves do not
// keep the room from ending.
func TestZygote(t *testing.T) {
	t.Parallel()
	room := apartRoom(t)
	zygote := spawned(t, room.Conn, wire.Message{ID: 1, Role: wire.RoleZygote}, &wire.Files{})
	spec := wire.ZygoteSpec{InitSpec: wire.InitSpec{Runner: wire.Runner{Ranged: true}, Path: "/of/programs", Disk: 16 << 20}}
	spec.Trees, spec.Mounted, spec.Links = machineTrees()
	// It gets its script as an argument, and a process of its group outlives it.
	const driver = `true & printf '{"kind":"ready","host":"%s","error":"%s"}' "$(uname -n)" "$1 $OPENBLAS_NUM_THREADS $(umask) $(grep CapEff /proc/self/status | cut -f 2) $(test -s "$0" && echo script)" >&3`
	spec.Config.Python = []string{"/bin/sh", "-c", driver}
	must.Do(t, zygote.Assign(patience.Context(t), wire.RoleZygote, spec, nil))
	m, _ := expect(t, zygote, wire.KindReady, 0)
	if want := fmt.Sprintf("--zygote 1 0022 %016x script", uint64(1<<unix.CAP_SETUID)); m.Host != "zygote" || m.Error != want {
		t.Errorf("on %s: got %q, want %q", m.Host, m.Error, want)
	}
	zygote.Close()
	if status := exitOf(t, room.Conn, 1); status != 0 {
		t.Errorf("it ended with %v", status)
	}
	if left, err := orphan.ChildrenOf(room.Cmd.Process.Pid); err != nil || len(left) > 0 {
		t.Errorf("it left the processes %v, and the error is %v", left, err)
	}
	room.Close()
	patience.Receive(t, "the end of the room", room.Done)
}
