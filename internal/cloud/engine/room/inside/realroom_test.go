//go:build linux

package inside

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/counter"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/instance"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/place"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// guardedRoom starts a room in place, and returns it and its guard.
func guardedRoom(t *testing.T) (guard role, room *wire.Conn) {
	t.Helper()
	room, far, err := wire.Pair(wire.MaxMessage)
	must.Do(t, err)
	t.Cleanup(room.Close)
	guard = startRole(t, &syscall.SysProcAttr{Setsid: true}, spawn.Placement{}, wire.RoleGuard, struct{}{}, wire.Lent(wire.FileRoom, far))
	must.Do(t, far.Close())
	must.Do(t, room.Handshake(patience.Context(t), wire.RoleRoom, wire.RoomSpec{InPlace: true}, nil))
	expect(t, room, wire.KindReady, 0)
	return guard, room
}

// TestSandboxInPlace starts a room and its guard as processes, and sandboxes without namespaces in it, and
// checks what their envds have, and that nothing is left of them.
func TestSandboxInPlace(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can start processes of another user")
	}
	guard, room := guardedRoom(t)
	const own = 0x70000001
	trees, _, _ := machineTrees()
	closed := t.TempDir()
	must.Do(t, os.Chmod(closed, 0o700))
	for id, restricted := range []bool{false, true} {
		root := place.Root{Dir: t.TempDir(), Restricted: restricted}
		must.Do(t, errors.Join(os.MkdirAll(root.Home(), 0o755), os.MkdirAll(root.Temp(), 0o755)))
		message, user := wire.Message{ID: uint64(id)}, uint32(0)
		if restricted {
			message.UID, user = own, own
			must.Do(t, errors.Join(os.Chmod(filepath.Dir(root.Dir), 0o755), filepath.WalkDir(root.Dir, func(path string, _ fs.DirEntry, err error) error { return errors.Join(err, os.Chown(path, own, own)) })))
		}
		envd := spawned(t, room, message, &wire.Files{})
		runner := wire.Runner{Root: &root}
		must.Do(t, envd.Assign(patience.Context(t), wire.RoleInit, wire.InitSpec{Runner: runner, Path: "/of/programs", Trees: append([]string{closed}, trees...), Limits: []wire.Rlimit{{unix.RLIMIT_MSGQUEUE, 2000}}}, nil))
		if m, _ := expect(t, envd, wire.KindReady, 0); len(m.Hidden) != id || restricted && m.Hidden[0] != closed || len(m.Notes) > 0 {
			t.Errorf("restricted %v: it was built as %+v", restricted, m)
		}
		must.Do(t, envd.Send(wire.Message{Kind: wire.KindGo}))
		must.Do(t, envd.AwaitHello(patience.Context(t)))
		must.Do(t, envd.Assign(patience.Context(t), wire.RoleEnvd, wire.EnvdSpec{Runner: runner, Egress: true}, envdFiles(t)))
		expect(t, envd, wire.KindReady, 0)
		if m, _ := expect(t, envd, wire.KindLog, 0); string(m.Spec) != `"began"` {
			t.Errorf("it logged %s", m.Spec)
		}
		got := factsFrom(t, asked(t, envd, ""))
		want := facts{Users: usersOf(&root), Root: root.Dir, Temp: root.Temp(), Run: root.Run(), Config: json.RawMessage(`{"own":1}`), Private: restricted, Restricted: restricted, Kept: restricted,
			Kills: 5, Used: 4000, Cache: 4000, Known: true, Host: got.Host, Hosts: got.Hosts, Program: got.Program, Meminfo: got.Meminfo, Online: got.Online, Disk: got.Disk, Threads: got.Threads, Victim: strconv.Itoa(2 * child.Badness), Queue: 2000, Dir: root.Home(), Descriptors: []string{"0", "1", "2"}, Death: int32(unix.SIGKILL), Seccomp: map[bool]string{true: "2", false: "0"}[restricted],
			Session: true, Files: []string{"home", "tmp"}}
		for i := range want.Users {
			want.Users[i].UID, want.Users[i].GID = user, user
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("restricted %v: its envd (-want +got):\n%s", restricted, diff)
		}
		pid, err := strconv.Atoi(asked(t, envd, "linger"))
		must.Do(t, err)
		must.Do(t, room.Send(wire.Message{Kind: wire.KindKill, ID: uint64(id)}))
		if m, _ := expect(t, room, wire.KindEnding, 0); m.ID != uint64(id) || syscall.WaitStatus(m.Status).Signal() != unix.SIGKILL {
			t.Errorf("got the end %+v", m)
		}
		if status := exitOf(t, room, uint64(id)); status.Signal() != unix.SIGKILL || unix.Kill(pid, 0) == nil {
			t.Errorf("restricted %v: got the status %v, and a process that outlives its sandbox: %v", restricted, status, unix.Kill(pid, 0) == nil)
		}
	}
	room.Close()
	m, _ := expect(t, guard.Conn, wire.KindReady, 0)
	patience.Receive(t, "the end of the guard", guard.Done)
	if m.Status != 0 || guard.Status() != 0 {
		t.Errorf("the room ended with the status %v, and its guard with %v", m.Status, guard.Status())
	}
}

// TestEndsOfGuardedRooms checks that a room in place ends with the server, and after a message that is not
// for it, together with its sandboxes, and that its guard reports how.
func TestEndsOfGuardedRooms(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		kind wire.Kind // "": the server ends
		exit int
	}{"without a server": {"", 0}, "a name": {wire.KindName, 1}, "sockets": {wire.KindSockets, 1}, "meminfo": {wire.KindMeminfo, 1}, "a resize": {wire.KindResize, 1}} {
		guard, room := guardedRoom(t)
		envd := spawned(t, room, wire.Message{ID: 3}, &wire.Files{})
		if tt.kind == "" {
			room.Close()
		} else {
			must.Do(t, room.Send(wire.Message{Kind: tt.kind, ID: 3, Spec: json.RawMessage("{}")}))
		}
		m, _ := expect(t, guard.Conn, wire.KindReady, 0)
		patience.Receive(t, "the end of the guard", guard.Done)
		if status := syscall.WaitStatus(m.Status); !status.Exited() || status.ExitStatus() != tt.exit || guard.Status() != 0 {
			t.Errorf("%s: the room ended with the status %v, and its guard with %v", name, status, guard.Status())
		}
		if _, _, err := envd.Receive(0); err == nil {
			t.Errorf("%s: a sandbox goes on", name)
		}
		room.Close()
	}
}

// TestKeeper checks that a keeper cleans up when the server ends, and otherwise fails.
func TestKeeper(t *testing.T) {
	t.Parallel()
	for _, told := range []bool{false, true} {
		dir := t.TempDir() + "/instance"
		must.Do(t, os.Mkdir(dir, 0o700))
		lock, err := os.Create(dir + "/lock")
		must.Do(t, err)
		must.Do(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
		keeper := startRole(t, &syscall.SysProcAttr{Setsid: true}, spawn.Placement{}, wire.RoleKeeper, instance.Spec{Dir: dir, Roots: dir + "/roots"}, wire.Lent(wire.FileLock, lock))
		expect(t, keeper.Conn, wire.KindReady, 0)
		must.Do(t, lock.Close())
		other, err := os.Open(dir + "/lock")
		must.Do(t, err)
		if err := unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
			t.Errorf("the keeper does not hold its lock: %v", err)
		}
		must.Do(t, other.Close())
		if told {
			must.Do(t, keeper.Send(wire.Message{Kind: wire.KindGo}))
			if m, _, err := keeper.Receive(0); err != nil || m.Kind != wire.KindFailed || !strings.Contains(m.Error, "the keeper is told nothing") {
				t.Errorf("got the answer %+v and the error %v", m, err)
			}
		} else {
			keeper.Close()
		}
		patience.Receive(t, "the end of the keeper", keeper.Done)
		if status := keeper.Status(); (status == 0) == told || exists(dir) != told {
			t.Errorf("told %v: it ended with the status %v, and the directory is left: %v", told, status, exists(dir))
		}
	}
}

// TestRoomFails checks that a room that cannot be prepared says why.
func TestRoomFails(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root has ranges of ids")
	}
	for want, spec := range map[string]wire.RoomSpec{
		"limit a counter of the user namespace": {Ranged: true, Counters: counter.Maxima{"none": 1}},
		"set resource limit 1048576 to 7":       {Ranged: true, Limits: []wire.Rlimit{{1 << 20, 7}}},
	} {
		attr := &syscall.SysProcAttr{Cloneflags: spawn.Namespaces, Setsid: true}
		spawn.MapIDs(attr, true, spawn.IDBase, spawn.IDCount, 0, 0)
		room := startRole(t, attr, spawn.Placement{Owner: spawn.IDBase}, wire.RoleRoom, spec, nil)
		m, _, err := room.Receive(0)
		if err != nil || m.Kind != wire.KindFailed || !strings.Contains(m.Error, want) {
			t.Errorf("got %+v and error %v, want %s", m, err, want)
		}
		patience.Receive(t, "the end of the room", room.Done)
	}
}

// TestEnvdIsRefused checks that an envd does not begin with a description or files that it does not know.
func TestEnvdIsRefused(t *testing.T) { //nolint:paralleltest // it handles signals
	defer signal.Reset()
	runner := wire.Runner{Root: &place.Root{Dir: t.TempDir()}}
	for name, tt := range map[string]struct {
		spec  json.RawMessage
		files func(*wire.Files)
		want  string
	}{
		"no description": {json.RawMessage("["), func(*wire.Files) {}, "unexpected end of JSON input"},
		"no files":       {wire.Encode(wire.EnvdSpec{Runner: runner}), func(files *wire.Files) { files.Close() }, `the file "config" is missing`},
		"a directory": {wire.Encode(wire.EnvdSpec{Runner: runner}), func(files *wire.Files) {
			files.Close()
			reopen(t, t.TempDir(), files, wire.FileConfig)
		}, "read the configuration"},
		"another file": {wire.Encode(wire.EnvdSpec{Runner: runner}), func(files *wire.Files) { reopen(t, os.DevNull, files, wire.FileTo) }, "broke the protocol"},
	} {
		files := envdFiles(t)
		tt.files(files)
		err := runEnvd(t.Context(), nil, tt.spec, files, func(context.Context, *Guest) error { return errors.New("it is served") })
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got error %v, want %s", name, err, tt.want)
		}
		files.Close()
	}
	text := strings.Repeat(" ", guest.MaxConfig+1)
	var files wire.Files
	path := t.TempDir() + "/config"
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	reopen(t, path, &files, wire.FileConfig)
	if config, err := takeConfig(&files); err != nil || len(config) != guest.MaxConfig {
		t.Errorf("got %d bytes and error %v, want %d", len(config), err, guest.MaxConfig)
	}
}
