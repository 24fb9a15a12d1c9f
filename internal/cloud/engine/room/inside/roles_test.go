//go:build linux

package inside

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/hello"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/instance"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/saved"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/must"
)

// asideFrom calls do like apart, with a host name of its own, and lets it execute no program, and replace no
// descriptor of the test. All calls with the numbers fail, too.
func asideFrom(t *testing.T, do func() error, numbers ...uint32) {
	t.Helper()
	apart(t, func() error {
		if err := unix.Unshare(unix.CLONE_NEWUTS); err != nil {
			return err
		}
		if err := failAll(append(numbers, unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_DUP3)...); err != nil {
			return err
		}
		return do()
	})
}

// TestRolesAreRefused checks that no role begins with a description that cannot be read, or without the
// files that belong to it.
func TestRolesAreRefused(t *testing.T) {
	t.Parallel()
	room := &roomProcess{running: map[uint64]*os.Process{1: {Pid: os.Getpid()}}}
	of := func(run func(*wire.Conn, json.RawMessage, *wire.Files) error) func(json.RawMessage, *wire.Files) error {
		return func(raw json.RawMessage, files *wire.Files) error { return run(nil, raw, files) }
	}
	for name, tt := range map[string]struct {
		run   func(json.RawMessage, *wire.Files) error
		spec  any // nil: any description is refused, and none is needed
		needs []wire.FileName
		whole bool // no other file may be passed
	}{
		"keeper":  {func(raw json.RawMessage, files *wire.Files) error { return keep(context.Background(), nil, raw, files) }, instance.Spec{}, []wire.FileName{wire.FileLock}, false},
		"guard":   {func(_ json.RawMessage, files *wire.Files) error { return runGuard(nil, files) }, nil, []wire.FileName{wire.FileRoom}, false},
		"room":    {of(runRoom), nil, nil, false},
		"zygote":  {of(runZygote), nil, nil, false},
		"saver":   {of(runSaver), wire.SaveSpec{}, []wire.FileName{wire.FileFiles, wire.FileTo}, true},
		"mounter": {of(runMounter), wire.InitSpec{}, []wire.FileName{wire.FileFiles}, false},
		"enterer": {of(runEnterer), nil, nil, false},
		"resize": {func(raw json.RawMessage, files *wire.Files) error {
			return room.resize(wire.Message{ID: 1, Spec: raw}, files)
		}, wire.ResizeSpec{}, []wire.FileName{wire.FileFiles}, false},
		"meminfo": {func(raw json.RawMessage, files *wire.Files) error {
			return room.keepMeminfo(wire.Message{ID: 1, Spec: raw}, files)
		}, wire.MeminfoSpec{}, []wire.FileName{wire.FileMeminfo, wire.FileProc}, false},
		"spawn": {func(_ json.RawMessage, files *wire.Files) error { return room.spawn(wire.Message{ID: 1}, files) }, nil, []wire.FileName{wire.FileControl}, false},
	} {
		asideFrom(t, func() error {
			if name != "guard" && name != "spawn" {
				if err := tt.run(json.RawMessage("["), &wire.Files{}); err == nil || errors.Is(err, unix.EIO) || errors.Is(err, wire.ErrProtocol) && !strings.Contains(err.Error(), "JSON") {
					t.Errorf("%s: a malformed description: got error %v", name, err)
				}
			}
			for i := range len(tt.needs) + 1 {
				var files wire.Files
				for n, need := range tt.needs {
					f, err := os.Open(os.DevNull)
					if err != nil {
						return err
					}
					if n == i {
						need = wire.FileMemory
					}
					files.Add(need, f)
				}
				if i == len(tt.needs) {
					if !tt.whole {
						break
					}
					f, err := os.Open(os.DevNull)
					if err != nil {
						return err
					}
					files.Add(wire.FileMemory, f)
				}
				if err := tt.run(wire.Encode(tt.spec), &files); !errors.Is(err, wire.ErrProtocol) {
					t.Errorf("%s, %d of its files: got error %v", name, i, err)
				}
				files.Close()
			}
			return nil
		})
	}
}

// TestTakeRole checks which roles a process takes, and that its server learns of an error.
func TestTakeRole(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		message wire.Message
		want    string // of the error
		told    bool   // to the server
	}{
		"a role":         {wire.Message{Kind: wire.KindRole, Protocol: hello.Version, Role: wire.RoleSaver}, "<nil>", false},
		"one that fails": {wire.Message{Kind: wire.KindRole, Protocol: hello.Version, Role: wire.RoleInit}, "broken", true},
		"another role":   {wire.Message{Kind: wire.KindRole, Protocol: hello.Version, Role: wire.RoleRoom}, `role "room"`, true},
		"another server": {wire.Message{Kind: wire.KindRole, Protocol: hello.Version + 1, Role: wire.RoleSaver}, "the server speaks version", false},
		"no role":        {wire.Message{Kind: wire.KindGo}, "came instead of", false},
	} {
		server, control, err := bridgeEnds()
		must.Do(t, err)
		must.Do(t, server.Send(tt.message))
		ran := false
		err = takeRole(control, map[wire.Role]func(wire.Message, *wire.Files) error{
			wire.RoleSaver: func(wire.Message, *wire.Files) error { ran = true; return nil },
			wire.RoleInit:  func(wire.Message, *wire.Files) error { return broken },
		})
		control.Close()
		m, _, _ := server.Receive(0)
		told := m.Kind == wire.KindFailed && m.Error == fmt.Sprint(err)
		if !strings.Contains(fmt.Sprint(err), tt.want) || ran != (err == nil) || told != tt.told {
			t.Errorf("%s: got error %v, it ran: %v, and the server received %+v", name, err, ran, m)
		}
		server.Close()
	}
	if _, err := takeControl(broken); !errors.Is(err, broken) {
		t.Errorf("without a hello: got error %v", err)
	}
}

// TestZygoteFails checks that the zygote goes on to the next step only when each earlier one is done. The
// last of these steps passes on the socket.
func TestZygoteFails(t *testing.T) {
	t.Parallel()
	server, control, err := bridgeEnds()
	must.Do(t, err)
	defer server.Close()
	defer control.Close()
	const last = "dup3: input/output error"
	for name, tt := range map[string]struct {
		refused uint32
		tree    string
		want    string
	}{
		"all steps": {0, "", last}, "its name": {unix.SYS_SETHOSTNAME, "", "set hostname: "}, "its files": {0, "/none", "/none"},
	} {
		var files wire.Files
		spec := wire.ZygoteSpec{InitSpec: *buildSpec(t, &files), Config: guest.Config{Python: []string{"/none/python"}}}
		if tt.tree != "" {
			spec.Trees = []string{tt.tree}
		}
		numbers := []uint32{tt.refused}
		if tt.refused == 0 {
			numbers = nil
		}
		asideFrom(t, func() error {
			err := runZygote(control, wire.Encode(spec), &files)
			if got := fmt.Sprint(err); !strings.Contains(got, tt.want) || (got == last) != (tt.want == last) {
				t.Errorf("%s: got error %v, want %s", name, err, tt.want)
			}
			return nil
		}, numbers...)
		files.Close()
	}
}

// TestResizeIsAnswered checks the answer of the room to the request for a resize, also if it fails.
func TestResizeIsAnswered(t *testing.T) {
	t.Parallel()
	server, control, err := bridgeEnds()
	must.Do(t, err)
	defer server.Close()
	defer control.Close()
	room := &roomProcess{server: control, running: map[uint64]*os.Process{1: {Pid: 1 << 30}}}
	dir := t.TempDir()
	for name, tt := range map[string]struct {
		id   uint64
		spec wire.ResizeSpec
		want string // "-": no answer
	}{
		"no such sandbox": {2, wire.ResizeSpec{Memory: 1}, "-"}, "nothing": {1, wire.ResizeSpec{}, ""},
		"no disk of its own": {1, wire.ResizeSpec{Disk: 1 << 20}, "fs"}, "no process": {1, wire.ResizeSpec{Processors: []int{0}}, "/proc/1073741824/root"},
		"a disk fails first": {1, wire.ResizeSpec{Disk: 1 << 20, Processors: []int{0}}, "fs"},
	} {
		var files wire.Files
		reopen(t, dir, &files, wire.FileFiles)
		must.Do(t, room.resize(wire.Message{ID: tt.id, Spec: wire.Encode(tt.spec)}, &files))
		if tt.want == "-" {
			continue // the next answer is another one's
		}
		m, _, err := server.Expect(wire.KindResized, 0)
		if err != nil || m.ID != tt.id || (m.Error == "") != (tt.want == "") || !strings.Contains(m.Error, tt.want) {
			t.Errorf("%s: got %+v and error %v, want %q", name, m, err, tt.want)
		}
	}
}

// TestRefusedTrees checks the trees of saved files, and the mounts of trees, that a build refuses.
func TestRefusedTrees(t *testing.T) { //nolint:paralleltest // it changes its directory
	inStage(t, map[string]string{"a/b": "x"})
	must.Do(t, errors.Join(os.Mkdir("upper", 0o755), os.Mkdir("from", 0o755)))
	for _, mounted := range [][]bool{nil, {true, false}} {
		if _, err := openTrees(&wire.InitSpec{Trees: []string{"/tmp"}, Mounted: mounted}, &wire.Files{}); !errors.Is(err, wire.ErrProtocol) || !strings.Contains(err.Error(), "1 trees and ") {
			t.Errorf("%v: got error %v", mounted, err)
		}
	}
	_, err := openTrees(&wire.InitSpec{Trees: []string{"/tmp"}, Mounted: []bool{true}}, &wire.Files{})
	must.Is(t, err, wire.ErrProtocol)
	for _, layered := range []bool{false, true} {
		for tree, refused := range map[string]bool{"/a": true, "/a/b/c": true, "/ab": false} {
			to, err := os.Create("saved")
			must.Do(t, err)
			from, err := os.Open("from")
			must.Do(t, err)
			must.Do(t, saved.Write(to, "l", []saved.Section{{Name: tree, Dir: from, Overlay: true}}))
			_, err = to.Seek(0, 0)
			must.Do(t, err)
			spec := &wire.InitSpec{Saved: "l", Trees: []string{"/a/b"}}
			if layered {
				spec.Layers = []wire.Layer{{Dir: "/none"}}
			}
			b := &built{restored: map[string]bool{}}
			err = b.restore(spec, to)
			if got := err != nil && strings.Contains(err.Error(), "a part of something else: /a/b"); got != refused || (err != nil) != refused {
				t.Errorf("layers %v, %s: got error %v", layered, tree, err)
			}
			must.Do(t, os.RemoveAll("upper/1"))
		}
	}
}

// TestSpawnThatFails checks that the server learns of a sandbox that cannot be started, and that the room
// ends if its thread cannot leave the groups of the sandbox.
func TestSpawnThatFails(t *testing.T) {
	t.Parallel()
	server, control, err := bridgeEnds()
	must.Do(t, err)
	defer server.Close()
	defer control.Close()
	for flag, away := range map[int]bool{os.O_RDONLY: true, os.O_WRONLY: false} {
		null, err := os.OpenFile(os.DevNull, flag, 0)
		must.Do(t, err)
		room := &roomProcess{server: control, RoomSpec: wire.RoomSpec{InPlace: true}, binary: null, home: []*os.File{null}, running: map[uint64]*os.Process{}}
		var files wire.Files
		reopen(t, os.DevNull, &files, wire.FileControl)
		closed, err := os.Open(os.DevNull) // as if it were a group that cannot be joined
		must.Do(t, err)
		files.AddList(wire.FileGroup, []*os.File{closed})
		err = room.spawn(wire.Message{ID: 7}, &files)
		if errors.Is(err, spawn.ErrAway) != away || (err != nil) != away || len(room.running) > 0 {
			t.Errorf("away %v: got error %v, and %d sandboxes run", away, err, len(room.running))
		}
		if !away {
			m, _, err := server.Receive(0)
			if err != nil || m.Kind != wire.KindFailed || m.ID != 7 || !strings.Contains(m.Error, "join a control group") {
				t.Errorf("the server received %+v and error %v", m, err)
			}
		}
		if _, err := closed.Stat(); !errors.Is(err, os.ErrClosed) || files.Len() > 0 {
			t.Errorf("away %v: %d files are left, and a group is open (%v)", away, files.Len(), err)
		}
		must.Do(t, null.Close())
	}
}

// TestPathsThatAreInTheWay checks what the helpers of a build do at paths that lead to nothing, or through
// a file.
func TestPathsThatAreInTheWay(t *testing.T) { //nolint:paralleltest // it changes its directory
	inStage(t, map[string]string{"file": "text", "dir/": "", "loop": "->loop"})
	read := func(name string) error { _, err := readInRoot(name); return err }
	for name, tt := range map[string]struct {
		err, want error
	}{
		"cover nothing": {cover("root/none"), nil}, "cover below a file": {cover("root/file/a"), unix.ENOTDIR},
		"open nothing up": {openUp("root/none", 0o755), unix.ENOENT}, "open a file up": {openUp("root/file", 0o755), nil},
		"read nothing": {read("/none"), nil}, "read a loop": {read("/loop"), nil}, "read below a file": {read("/file/a"), nil}, "read a directory": {read("/dir"), nil},
	} {
		if !errors.Is(tt.err, tt.want) || tt.want == nil && tt.err != nil {
			t.Errorf("%s: got error %v, want %v", name, tt.err, tt.want)
		}
	}
	if got := shown(t, "root")["file"]; got != "-rwxr-xr-x text" {
		t.Errorf("got the file %s, want it opened up", got)
	}
	for _, volume := range []wire.Volume{{Dir: "/none", Path: "/a"}, {Dir: "/etc/hostname", Path: "/a"}} {
		if _, err := openVolume(volume, nil); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
			t.Errorf("the volume %s: got error %v", volume.Dir, err)
		}
	}
	_, err := openVolumes([]wire.Volume{{Path: "/a"}}, &wire.Files{})
	must.Is(t, err, wire.ErrProtocol)
}
