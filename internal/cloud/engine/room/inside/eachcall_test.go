//go:build linux

package inside

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/hello"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/place"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/saved"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/must"
)

// watchedCalls are the system calls that TestEachCallOfAStepFails makes fail, one after the other. refusedCalls
// are those that calltest cannot watch: all of a thread fail.
var (
	watchedCalls = map[string]uint32{
		"accept4": unix.SYS_ACCEPT4, "bind": unix.SYS_BIND, "connect": unix.SYS_CONNECT, "listen": unix.SYS_LISTEN, "setsockopt": unix.SYS_SETSOCKOPT,
		"chdir": unix.SYS_CHDIR, "dup3": unix.SYS_DUP3, "fchmod": unix.SYS_FCHMOD, "fsconfig": unix.SYS_FSCONFIG, "fsmount": unix.SYS_FSMOUNT, "fsopen": unix.SYS_FSOPEN, "fspick": unix.SYS_FSPICK,
		"fstat": unix.SYS_FSTAT, "fsync": unix.SYS_FSYNC, "ftruncate": unix.SYS_FTRUNCATE, "pwrite64": unix.SYS_PWRITE64, "getdents64": unix.SYS_GETDENTS64, "lseek": unix.SYS_LSEEK, "mkdirat": unix.SYS_MKDIRAT, "mount": unix.SYS_MOUNT, "mount_setattr": unix.SYS_MOUNT_SETATTR,
		"move_mount": unix.SYS_MOVE_MOUNT, "openat": unix.SYS_OPENAT, "openat2": unix.SYS_OPENAT2, "open_tree": unix.SYS_OPEN_TREE, "pivot_root": unix.SYS_PIVOT_ROOT, "prctl": unix.SYS_PRCTL, "recvmsg": unix.SYS_RECVMSG,
		"sendmsg": unix.SYS_SENDMSG, "sendto": unix.SYS_SENDTO, "setns": unix.SYS_SETNS, "umount2": unix.SYS_UMOUNT2, "unlinkat": unix.SYS_UNLINKAT, "unshare": unix.SYS_UNSHARE,
	}
	refusedCalls = map[string]uint32{"getsockname": unix.SYS_GETSOCKNAME, "socket": unix.SYS_SOCKET, "prlimit64": unix.SYS_PRLIMIT64}
)

// step is a part of a role. Its first function prepares it on a thread that may be changed.
type step struct {
	prepare func() (do func() error, err error)
	calls   string   // their names
	may     []string // calls, with their number, whose failure is no error
}

// fails makes the n-th of the calls fail. failed is false if there are fewer.
func (s step) fails(t *testing.T, call string, n int) (failed bool) {
	t.Helper()
	apart(t, func() error {
		do, err := s.prepare()
		if err != nil {
			return err
		}
		var text string
		var watched error
		if number := watchedCalls[call]; number == 0 {
			if err := failAll(refusedCalls[call]); err != nil {
				return err
			}
			text = map[int]string{1: "?"}[n]
			if n == 1 {
				err = do()
			}
		} else {
			text, watched = failNth(number, n, 1, func() error { err = do(); return nil })
		}
		failed = text != ""
		switch {
		case !failed && (err != nil || n == 1) && watchedCalls[call] != 0:
			t.Errorf("%s, after %d calls: got error %v", call, n-1, err)
		case failed && !errors.Is(err, unix.EIO) && !slices.Contains(s.may, fmt.Sprintf("%s %d", call, n)):
			t.Errorf("the call %d of %s, with %q, failed: got error %v, want its error", n, call, text, err)
		}
		return watched
	})
	return failed
}

// stepsOfRooms are steps of the room and of first stages.
func stepsOfRooms() map[string]step {
	return map[string]step{
		"a private copy": {func() (func() error, error) {
			host, err := os.Open("/etc/hostname")
			return func() error {
				_, err := privateCopy(host)
				return err
			}, err
		}, "fsopen fsconfig fsmount openat lseek fchmod mount_setattr", []string{"fsconfig 1"}},
		"a room": {func() (func() error, error) {
			host, err := os.Open("/etc/hostname")
			return func() error { // it closes a descriptor that would be the test's
				err := unix.Unshare(unix.CLONE_FILES)
				if err == nil {
					err = unix.Dup3(int(host.Fd()), hello.BinaryFD, unix.O_CLOEXEC)
				}
				r := &roomProcess{}
				if err = errors.Join(err, r.prepare()); err == nil {
					err = r.binary.Close() // a finalizer would close the test's descriptor of this number
				}
				return err
			}, err
		}, "mount fsopen", nil},
		"a limit of a room": {func() (func() error, error) {
			return (&roomProcess{RoomSpec: wire.RoomSpec{Limits: []wire.Rlimit{{unix.RLIMIT_MSGQUEUE, 1}}}}).prepare, nil
		}, "prlimit64", nil},
		"gVisor's network": {func() (func() error, error) {
			return func() error { return inNetwork(func() error { return nil }) }, loopbackUp()
		}, "openat unshare setns sendto socket", []string{"sendto 2"}},
		"the egress path": {func() (func() error, error) {
			return func() error {
				made, _, err := makeEgressPath(wire.EgressBuild, true)
				wire.CloseAll(made)
				return err
			}, loopbackUp()
		}, "openat sendto sendmsg socket", nil}, // netlink closes a descriptor twice if it cannot be bound
		"a listener": {func() (func() error, error) {
			return func() error {
				f, err := transparentSocket(unix.SOCK_STREAM, listenerPort)
				if err == nil {
					err = f.Close()
				}
				return err
			}, loopbackUp()
		}, "setsockopt bind socket", nil},
		"a trial of the egress path": {func() (func() error, error) {
			if err := loopbackUp(); err != nil {
				return nil, err
			}
			made, _, err := makeEgressPath(wire.EgressBuild, true)
			return func() error { return errors.Join(tryEgressPath(made), made[0].Close(), made[1].Close()) }, err
		}, "listen connect accept4 getsockname", nil},
		"denied networks": {func() (func() error, error) {
			return func() error { return denyNetworks([]string{"10.0.0.0/8"}) }, nil
		}, "openat sendto socket", nil},
		"sockets": {func() (func() error, error) {
			return func() error { _, err := newSockets(); return err }, nil
		}, "socket", nil},
	}
}

// stepsOfMounters are steps of the processes that replace a file system.
func stepsOfMounters(control *wire.Conn) map[string]step {
	return map[string]step{
		"a mounter": {func() (func() error, error) {
			var first, files wire.Files
			b, err := build(namespaces{}, &wire.InitSpec{Disk: 1 << 20}, &first)
			if err != nil {
				return nil, err
			}
			files.Add(wire.FileFiles, b.files)
			return func() error { return runMounter(control, wire.Encode(wire.InitSpec{Disk: 1 << 20}), &files) }, nil
		}, "prctl move_mount chdir pivot_root umount2 sendmsg", nil},
		"an authority": {func() (func() error, error) {
			_, err := build(namespaces{}, &wire.InitSpec{Disk: 1 << 20}, &wire.Files{})
			return func() error {
				return runMounter(control, wire.Encode(wire.InitSpec{Authority: []byte("x")}), &wire.Files{})
			}, err
		}, "prctl mount mount_setattr sendmsg", nil},
		"an enterer": {func() (func() error, error) {
			_, err := build(namespaces{}, &wire.InitSpec{Disk: 1 << 20, Late: true}, &wire.Files{})
			return func() error { return runEnterer(control, wire.Encode(wire.EnterSpec{}), &wire.Files{}) }, err
		}, "prctl chdir pivot_root umount2 sendmsg", nil},
	}
}

// otherSteps are steps of other roles.
func otherSteps(t *testing.T, control *wire.Conn) map[string]step {
	t.Helper()
	return map[string]step{
		"an envd": {func() (func() error, error) {
			return func() error { _, _, err := holdEnvd(wire.Encode(wire.EnvdSpec{})); return err }, nil
		}, "prctl", nil},
		"devices": {func() (func() error, error) {
			err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("tmpfs", "/mnt", "tmpfs", 0, ""), unix.Chdir("/mnt"))
			if err != nil {
				return nil, err
			}
			fd, err := unix.OpenTree(unix.AT_FDCWD, "/dev", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
			return func() error {
				nodes, err := openMade(os.NewFile(uintptr(fd), "devices"))
				wire.CloseAll(nodes)
				return err
			}, err
		}, "mkdirat move_mount open_tree", nil},
		"a saver in place": {func() (func() error, error) {
			files, _, err := placeToSave(t)
			return func() error { return runSaver(control, wire.Encode(wire.SaveSpec{Layout: "l", InPlace: true}), files) }, err
		}, "fsync sendmsg", nil},
		"a larger disk": {func() (func() error, error) {
			if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("tmpfs", "/mnt", "tmpfs", 0, "")); err != nil {
				return nil, err
			}
			tree, err := os.Open("/mnt")
			return func() error { return resizeDisk(tree, 1<<20) }, err
		}, "fspick fsconfig", nil},
		"more processors": {func() (func() error, error) {
			dir := t.TempDir()
			if err := os.WriteFile(dir+"/cpuinfo", nil, 0o644); err != nil {
				return nil, err
			}
			tree, err := os.Open(dir)
			return func() error { return recount(tree, os.Getpid(), []int{0}) }, err
		}, "openat openat2 pwrite64 ftruncate", []string{"openat2 2", "openat2 3", "pwrite64 2", "pwrite64 3"}}, // the sandbox may have replaced the others
		"a control connection": {func() (func() error, error) {
			return func() error {
				_, far, err := wire.Pair(wire.MaxMessage)
				if err == nil {
					err = unix.Unshare(unix.CLONE_FILES)
				}
				if err == nil {
					err = unix.Dup3(int(far.Fd()), hello.ControlFD, unix.O_CLOEXEC)
				}
				if err != nil {
					return err
				}
				c, err := takeControl(nil)
				if err == nil {
					c.Close() // a finalizer would close the test's descriptor of this number
				}
				return err
			}, nil
		}, "openat getdents64", nil},
	}
}

// TestEachCallOfAStepFails makes each system call of some steps of roles fail. The step then fails, too.
func TestEachCallOfAStepFails(t *testing.T) { //nolint:paralleltest // a program that starts meanwhile would have files open
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	server, control, err := bridgeEnds()
	must.Do(t, err)
	defer server.Close()
	defer control.Close()
	go func() {
		for {
			if _, files, err := server.Receive(8); err != nil {
				return
			} else {
				files.Close()
			}
		}
	}()
	all := stepsOfRooms()
	maps.Copy(all, stepsOfMounters(control))
	maps.Copy(all, otherSteps(t, control))
	for name, s := range all {
		for call := range strings.FieldsSeq(s.calls) {
			for n := 1; s.fails(t, call, n); n++ {
				if n > 60 {
					t.Fatalf("%s: %s never ends", name, call)
				}
			}
		}
	}
}

// placeToSave returns the files of a saver of a sandbox in place, and its directory.
func placeToSave(t *testing.T) (*wire.Files, string, error) {
	t.Helper()
	dir := t.TempDir()
	err := errors.Join(os.MkdirAll(dir+"/root/home/user", 0o755), os.MkdirAll(dir+"/root/run", 0o755), os.WriteFile(dir+"/root/run/own", nil, 0o644), os.WriteFile(dir+"/root/home/user/own", []byte("text"), 0o640))
	if err != nil {
		return nil, "", err
	}
	var files wire.Files
	from, err := os.Open(dir + "/root")
	to, failed := os.Create(dir + "/saved")
	files.Add(wire.FileFiles, from)
	files.Add(wire.FileTo, to)
	return &files, dir, errors.Join(err, failed)
}

// TestPlaceReturns saves the files of a sandbox in place, and restores them for another one.
func TestPlaceReturns(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	server, control, err := bridgeEnds()
	must.Do(t, err)
	defer server.Close()
	defer control.Close()
	files, dir, err := placeToSave(t)
	must.Do(t, err)
	must.Do(t, os.Chown(dir+"/root/home/user/own", 1007, 1007))
	must.Do(t, runSaver(control, wire.Encode(wire.SaveSpec{Layout: "l", InPlace: true, FirstID: 1007}), files))
	files.Close()
	_, _, err = server.Expect(wire.KindReady, 0)
	must.Do(t, err)
	root := place.Root{Dir: t.TempDir()}
	restore := func(layout string) error {
		var saved wire.Files
		reopen(t, dir+"/saved", &saved, wire.FileSaved)
		defer saved.Close()
		return restoreInPlace(&wire.InitSpec{Runner: wire.Runner{Root: &root}, Saved: layout}, &saved)
	}
	must.Is(t, restore("another"), saved.ErrLayout)
	must.Is(t, restore(""), wire.ErrProtocol)
	must.Is(t, restoreInPlace(&wire.InitSpec{Saved: "l"}, &wire.Files{}), wire.ErrProtocol)
	root.Dir = t.TempDir()
	must.Do(t, restore("l"))
	got := shown(t, root.Dir)
	if got["home/user/own"] != "-rw-r----- text" || len(got) != 3 || ownerOf(t, root.Dir+"/home/user/own") != "0:0" {
		t.Errorf("got the files %v, and one that belongs to %s", got, ownerOf(t, root.Dir+"/home/user/own"))
	}
}
