package mounts

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/fdtest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// Ids of the tests: stranger owns directories, and the others are ids of a sandbox.
const stranger, sandboxUser, sandboxGroup, sandboxRoot = 1234, 70001, 70002, 70003

var owner = Owner{User: sandboxUser, Group: sandboxGroup, Root: sandboxRoot}

// self opens the program of this test.
func self(t *testing.T) *os.File {
	t.Helper()
	path, err := os.Executable()
	must.Do(t, err)
	binary, err := os.Open(path)
	must.Do(t, err)
	t.Cleanup(func() { binary.Close() })
	return binary
}

// rootOnly skips a test that needs the rights of root over mounts.
func rootOnly(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may clone mounts")
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, "/proc", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		t.Skipf("this root may not clone mounts: %v", err)
	}
	must.Do(t, unix.Close(fd))
}

// opened makes a directory with a file, which belong to the ids, and opens it. If the file system cannot
// map ids, it skips the test.
func opened(t *testing.T, uid, gid int) (*os.File, engine.Mount) {
	t.Helper()
	m := engine.Mount{Dir: filepath.Join(t.TempDir(), "d"), Path: "/data"}
	file := filepath.Join(m.Dir, "name")
	must.Do(t, errors.Join(os.Mkdir(m.Dir, 0o755), os.WriteFile(file, nil, 0o644), os.Chown(file, uid, gid), os.Chown(m.Dir, uid, gid)))
	dir, err := OpenDir(m)
	must.Do(t, err)
	t.Cleanup(func() { dir.Close() })

	fd, err := unix.OpenTree(int(dir.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	must.Do(t, err)
	ids := []syscall.SysProcIDMap{{ContainerID: stranger, HostID: sandboxUser, Size: 1}}
	namespace, err := spawn.UserNamespace(self(t), ids, ids)
	must.Do(t, err)
	err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(namespace.Fd())})
	must.Do(t, errors.Join(unix.Close(fd), namespace.Close()))
	if err != nil {
		t.Skipf("the file system of temporary files cannot map ids: %v", err)
	}
	return dir, m
}

// restrictions are flags of a mount that tests compare.
const restrictions = unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NODEV

// TestShow checks the rights over a directory in its mount: the owner is the user of the sandbox, root of
// the sandbox makes files, root of the host makes none, and nothing is made in a read-only mount.
func TestShow(t *testing.T) {
	t.Parallel()
	rootOnly(t)
	for _, writable := range []bool{false, true} {
		dir, m := opened(t, stranger, stranger)
		m.Writable = writable
		mount, err := Show(dir, m, self(t), owner)
		must.Do(t, err)
		defer mount.Close()
		var file unix.Stat_t
		must.Do(t, unix.Fstatat(int(mount.Fd()), "name", &file, 0))
		if file.Uid != sandboxUser || file.Gid != sandboxGroup {
			t.Errorf("writable %v: got owner %d:%d, want %d:%d", writable, file.Uid, file.Gid, sandboxUser, sandboxGroup)
		}
		want, wantErr := restrictions, unix.EROFS
		if writable {
			want, wantErr = want&^unix.ST_RDONLY, unix.EOVERFLOW
		}
		if got := flags(t, mount); got != want {
			t.Errorf("writable %v: got flags %#x, want %#x", writable, got, want)
		}
		if err := unix.Mkdirat(int(mount.Fd()), "of-root", 0o700); !errors.Is(err, wantErr) {
			t.Errorf("writable %v: got %v from a new directory of root, want %v", writable, err, wantErr)
		}
	}
}

// TestShowOfRoot checks that a directory of root, or of its group, is only shown read-only.
func TestShowOfRoot(t *testing.T) {
	t.Parallel()
	rootOnly(t)
	for _, ids := range [][2]int{{0, 0}, {0, stranger}, {stranger, 0}} {
		dir, m := opened(t, ids[0], ids[1])
		mount, err := Show(dir, m, self(t), owner)
		must.Do(t, err)
		must.Do(t, mount.Close())
		m.Writable = true
		mount, err = Show(dir, m, self(t), owner)
		if mount != nil || !errors.Is(err, &engine.LackError{Feature: engine.Mounts}) || !strings.Contains(err.Error(), "belongs to root") {
			t.Errorf("%v: got %v and %v, want only that it belongs to root", ids, mount, err)
		}
	}
}

// TestShowWithoutIDs checks a file system that cannot map ids: its directories are only shown read-only,
// and only to a sandbox without capabilities. The advice in the error names what would help.
func TestShowWithoutIDs(t *testing.T) { //nolint:paralleltest // it counts the open files of this process
	rootOnly(t)
	in, out, err := os.Pipe()
	must.Do(t, err)
	defer in.Close()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "read line")
	cmd.Stdin, cmd.SysProcAttr = in, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	must.Do(t, cmd.Start())
	defer func() {
		out.Close()
		_ = cmd.Wait() // with the status of a read at the end
	}()
	m := engine.Mount{Dir: "/proc/" + strconv.Itoa(cmd.Process.Pid), Path: "/data"}
	dir, err := OpenDir(m)
	must.Do(t, err)
	defer dir.Close()
	binary := self(t)

	powerless := owner
	powerless.Powerless = true
	mount, err := Show(dir, m, binary, powerless)
	must.Do(t, err)
	if got := flags(t, mount); got != restrictions {
		t.Errorf("got flags %#x, want %#x", got, restrictions)
	}
	must.Do(t, mount.Close())
	before := namespacesAndMounts(t)
	for _, tt := range []struct {
		writable bool
		owner    Owner
		advice   string
	}{
		{true, powerless, "show it read-only"},
		{true, owner, "use a directory on another one"},
		{false, owner, "use a directory on another one"},
	} {
		m.Writable = tt.writable
		mount, err := Show(dir, m, binary, tt.owner)
		if mount != nil || !errors.Is(err, &engine.LackError{Feature: engine.Mounts}) || !strings.Contains(err.Error(), tt.advice) {
			t.Errorf("writable %v, %+v: got %v and %v, want only an error with %q", tt.writable, tt.owner, mount, err, tt.advice)
		}
	}
	if after := namespacesAndMounts(t); after != before {
		t.Errorf("%d namespaces and mounts are open, want %d", after, before)
	}
}

// TestShowFails checks the failures of each step, and that the mount of a failed step does not stay open.
func TestShowFails(t *testing.T) { //nolint:paralleltest // it counts the open files of this process
	rootOnly(t)
	dir, m := opened(t, stranger, stranger)
	in, out, err := os.Pipe()
	must.Do(t, err)
	must.Do(t, out.Close())
	defer in.Close()
	closed, err := OpenDir(m)
	must.Do(t, err)
	must.Do(t, closed.Close())
	null, err := os.Open(os.DevNull)
	must.Do(t, err)
	defer null.Close()
	before := openFiles(t)
	for want, show := range map[string]func() (*os.File, error){
		"bad file descriptor": func() (*os.File, error) { return Show(closed, m, self(t), owner) },
		"cannot be cloned":    func() (*os.File, error) { return Show(in, m, null, owner) },
		"map its owner":       func() (*os.File, error) { return Show(dir, m, null, owner) },
	} {
		mount, err := show()
		if mount != nil || err == nil || !strings.HasPrefix(err.Error(), "the directory "+m.Dir+" for /data: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v and %v, want only an error with %q", mount, err, want)
		}
		if _, lack := errors.AsType[*engine.LackError](err); lack != (want == "cannot be cloned") {
			t.Errorf("got %v, want a lack only of mounts that can be cloned", err)
		}
	}
	if after := openFiles(t); after != before+1 { // the program, for the first step
		t.Errorf("%d files are open, want %d", after, before+1)
	}
}

// TestOwnedBy checks the mapping of ids: the owner has the rights of the sandbox's user, and files of root
// of a sandbox belong to root, except where that would map an id twice.
func TestOwnedBy(t *testing.T) {
	t.Parallel()
	one := func(owner, id int) syscall.SysProcIDMap {
		return syscall.SysProcIDMap{ContainerID: owner, HostID: id, Size: 1}
	}
	for _, tt := range []struct {
		owner, id, root int
		want            []syscall.SysProcIDMap
	}{
		{1, 2, 3, []syscall.SysProcIDMap{one(1, 2), one(StrangerID, 3)}},
		{1, 2, 2, []syscall.SysProcIDMap{one(1, 2)}},
		{StrangerID, 2, 3, []syscall.SysProcIDMap{one(StrangerID, 2)}},
	} {
		if diff := cmp.Diff(tt.want, ownedBy(tt.owner, tt.id, tt.root)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", tt, diff)
		}
	}
}

// TestOpenWithFewFiles checks that nothing stays open if there are not enough files for the directories.
func TestOpenWithFewFiles(t *testing.T) { //nolint:paralleltest // it changes a limit of this process
	top := tree(t)
	var own unix.Rlimit
	must.Do(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &own))
	null, err := os.Open(os.DevNull)
	must.Do(t, err)
	free := int(null.Fd()) // the lowest number that no other descriptor has
	must.Do(t, null.Close())
	for more := range 2 {
		few := own
		few.Cur = uint64(free + more)
		must.Do(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
		_, err := Open(Options{All: []Mount{{Dir: top, Path: "/x"}}})
		must.Do(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &own))
		must.Is(t, err, syscall.EMFILE)
		if left := fdtest.Open(t, top); len(left) > 0 {
			t.Errorf("with %d files: left open: %q", more, left)
		}
	}
}

// flags returns those restrictions that a mount has.
func flags(t *testing.T, mount *os.File) int {
	t.Helper()
	var stat unix.Statfs_t
	must.Do(t, unix.Fstatfs(int(mount.Fd()), &stat))
	return int(stat.Flags) & restrictions
}

// openFiles counts the open files of this process.
func openFiles(t *testing.T) int {
	t.Helper()
	all, err := filepath.Glob("/proc/self/fd/*")
	must.Do(t, err)
	return len(all)
}

// TestAll checks that the mounts of all sandboxes are those that were asked for, without links in the
// path on the host.
func TestAll(t *testing.T) {
	t.Parallel()
	top, err := filepath.EvalSymlinks(tree(t))
	must.Do(t, err)
	s := open(t, Options{All: []Mount{{Dir: filepath.Join(top, "link"), Path: "/x"}, {Dir: filepath.Join(top, "out"), Path: "/y", Writable: true}}})
	want := []engine.Mount{{Dir: filepath.Join(top, "in"), Path: "/x"}, {Dir: filepath.Join(top, "out"), Path: "/y", Writable: true}}
	if diff := cmp.Diff(want, s.All(), cmpopts.IgnoreFields(engine.Mount{}, "File")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if text := nameIn(t, s.All()[1].File); text != "out" {
		t.Errorf("got %q, want the text of the opened directory", text)
	}
}
