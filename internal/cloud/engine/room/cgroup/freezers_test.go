//go:build linux

package cgroup

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// frozenFiles are the files of a group whose processes were all moved and frozen.
var frozenFiles = map[string]string{
	"f/cgroup.freeze": "", "f/cgroup.procs": "", "f/cgroup.threads": "1\n2\n", "f/cgroup.events": "populated 1\nfrozen 1\n",
	"tasks": "1\n2\n2\n", "cgroup.procs": "", "cpu.cfs_quota_us": "200000\n", "cpu.cfs_period_us": "100000\n",
}

func freezerOf(dir string) *Freezer {
	return &Freezer{dir: dir + "/f", home: dir, members: dir + "/tasks", cpu: dir, made: true}
}

// TestFreezeFails makes each call of a freeze fail. No process may stay frozen, and no file open.
// It is not parallel, because it counts the descriptors of the process.
func TestFreezeFails(t *testing.T) { //nolint:paralleltest // see above
	for number, most := range map[uint32]int{unix.SYS_OPENAT: 99, unix.SYS_WRITE: 99, unix.SYS_READ: 99, unix.SYS_PREAD64: 1} { // the second finds only the end
		for n, failed := 1, true; failed && n <= most; n++ {
			dir := groupOf(t, frozenFiles)
			before := descriptors(t)
			var err error
			failed, err = calltest.FailNth(t, number, n, unix.EIO, func() error { return freezerOf(dir).Freeze(t.Context()) })
			want := "1"
			if failed {
				want = "0"
			}
			if errors.Is(err, unix.EIO) != failed || n == 1 && !failed {
				t.Errorf("call %d of number %d failed, %v: got %v", n, number, failed, err)
			}
			checkFiles(t, "frozen", dir, with(frozenFiles, "f/cgroup.freeze", want))
			if got := descriptors(t); got != before {
				t.Errorf("call %d of number %d: got %d descriptors, want %d", n, number, got, before)
			}
		}
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	must.Do(t, err)
	return len(all)
}

// TestFreezeMakesTheGroup checks that the group is made at the first freeze, that a group that cannot be
// made is tried again, and that thawing what is gone is no error.
func TestFreezeMakesTheGroup(t *testing.T) {
	t.Parallel()
	dir := groupOf(t, map[string]string{"tasks": ""})
	f := freezerOf(dir)
	f.made = false
	must.Is(t, f.Freeze(t.Context()), os.ErrNotExist) // a directory here has no files of a group
	if !f.made || !exists(f.dir) {
		t.Error("the group was not made")
	}
	f.made = false
	must.Is(t, f.Freeze(t.Context()), os.ErrExist)
	if f.made {
		t.Error("a group counts as made that is another's")
	}
	must.Do(t, f.Thaw())
	f = freezerOf(groupOf(t, frozenFiles))
	if failed, err := calltest.FailNth(t, unix.SYS_WRITE, 1, unix.ENODEV, f.Thaw); !failed || err != nil {
		t.Errorf("a group that is being removed: failed %v, %v, want no error", failed, err)
	}
	if failed, err := calltest.FailNth(t, unix.SYS_WRITE, 1, unix.EIO, f.Thaw); !failed || !errors.Is(err, unix.EIO) {
		t.Errorf("a group that stays frozen: failed %v, %v, want EIO", failed, err)
	}
}

// TestFreezeEnds checks that a freeze ends with its context, while processes are being moved and while
// they have not stopped, and that they go on then.
func TestFreezeEnds(t *testing.T) {
	t.Parallel()
	tired := errors.New("tired")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(tired)
	for name, tt := range map[string]struct{ file, text, want, procs string }{
		"a process is missing": {"tasks", "1\n2\n3\n4\n3\n", "2 threads were still to be frozen", "34"},
		"a process runs":       {"f/cgroup.events", "populated 1\nfrozen 0\n", "processes were still running", ""},
		"nothing is said":      {"f/cgroup.events", "frozen 10\nnot frozen 1\n", "processes were still running", ""},
	} {
		files := with(frozenFiles, tt.file, tt.text)
		dir := groupOf(t, files)
		if err := freezerOf(dir).Freeze(ctx); !errors.Is(err, tired) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
		checkFiles(t, name, dir, with(files, "f/cgroup.freeze", "0", "f/cgroup.procs", tt.procs))
	}
	dir := groupOf(t, frozenFiles)
	must.Do(t, freezerOf(dir).Freeze(ctx)) // all is done already
	dir = groupOf(t, with(frozenFiles, "f/cgroup.events", ""))
	if err := freezerOf(dir).Freeze(t.Context()); err == nil {
		t.Error("a group that says nothing counts as frozen")
	}
}

// TestGatherAndRelease checks that a process may end before it is moved, and that only those that do not
// belong to the sandbox are moved back.
func TestGatherAndRelease(t *testing.T) {
	t.Parallel()
	files := with(frozenFiles, "f/cgroup.threads", "1\n8\n2\n9\n8\n")
	for _, tt := range []struct {
		fails unix.Errno // of the write with which 8 is moved back
		moved string
	}{{0, "9"}, {unix.ESRCH, "9"}, {unix.EPERM, ""}} {
		dir := groupOf(t, files)
		n := 2 // after that of cgroup.freeze
		if tt.fails == 0 {
			n = 99
		}
		_, err := calltest.FailNth(t, unix.SYS_WRITE, n, tt.fails, func() error { return freezerOf(dir).Freeze(t.Context()) })
		refused := tt.fails == unix.EPERM
		if refused != errors.Is(err, unix.EPERM) || !refused && err != nil {
			t.Errorf("%v: got %v", tt.fails, err)
		}
		checkFiles(t, "released", dir, with(files, "f/cgroup.freeze", map[bool]string{false: "1", true: "0"}[refused], "cgroup.procs", tt.moved))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := groupOf(t, with(frozenFiles, "tasks", "1\n2\n3\n"))
	failed, err := calltest.FailNth(t, unix.SYS_WRITE, 2, unix.ESRCH, func() error { return freezerOf(dir).Freeze(ctx) })
	if !failed || !errors.Is(err, context.Canceled) {
		t.Errorf("a process that ended: failed %v, got %v, want only the end of the context", failed, err)
	}
	failed, err = calltest.FailNth(t, unix.SYS_WRITE, 2, unix.EPERM, func() error { return freezerOf(dir).Freeze(t.Context()) })
	if !failed || !errors.Is(err, unix.EPERM) {
		t.Errorf("a process that may not be moved: failed %v, got %v, want the error", failed, err)
	}
}

// TestSlowDownFails makes each call of slowDown fail. restore always brings the limit back.
func TestSlowDownFails(t *testing.T) {
	t.Parallel()
	for _, number := range []uint32{unix.SYS_OPENAT, unix.SYS_WRITE, unix.SYS_READ} {
		for n, failed := 1, true; failed; n++ {
			dir := groupOf(t, frozenFiles)
			restore, err := func() {}, error(nil)
			failed, err = calltest.FailNth(t, number, n, unix.EIO, func() (err error) {
				restore, err = freezerOf(dir).slowDown()
				return err
			})
			if errors.Is(err, unix.EIO) != failed {
				t.Errorf("call %d of number %d failed, %v: got %v", n, number, failed, err)
			}
			if err == nil {
				checkFiles(t, "slow", dir, with(frozenFiles, "cpu.cfs_quota_us", "1000", "cpu.cfs_period_us", "1000000"))
			}
			restore()
			checkFiles(t, "restored", dir, frozenFiles)
		}
	}
	f := freezerOf(groupOf(t, frozenFiles))
	f.cpu = ""
	restore, err := f.slowDown()
	must.Do(t, err)
	restore()
}

// TestAddFreezer checks with which group sandboxes are frozen, and the reason where there is none.
func TestAddFreezer(t *testing.T) {
	t.Parallel()
	files := map[string]string{"cgroup.procs": "", "x/cgroup.freeze": "", "x/cgroup.procs": ""}
	may := groupOf(t, files)
	without := func(name string) string {
		dir := groupOf(t, files)
		must.Do(t, os.Remove(filepath.Join(dir, name)))
		return dir
	}
	one := map[string]Hierarchy{"pids": {"/pids", 1}}
	v1 := mount{"/pids", "/pids", 1, []string{"pids"}}
	v2 := func(dir string) mount { return mount{dir, dir, 2, nil} }
	for _, tt := range []struct {
		name      string
		groups    map[string]Hierarchy
		mounts    []mount
		dir, home string
		why       string
	}{
		{"a group of version 2", map[string]Hierarchy{"pids": {"/pids", 1}, "cpu": {"/cpu", 2}}, []mount{v2(may)}, "/cpu", "", ""},
		{"beside version 1", one, []mount{v1, v2(may)}, may + "/x", may, ""},
		{"before version 1", one, []mount{v2(may), v1}, may + "/x", may, ""},
		{"no group", nil, []mount{v2(may)}, "", "", "no group lists the processes"},
		{"no version 2", one, []mount{v1}, "", "", "no version 2 hierarchy"},
		{"its own group may not be left", one, []mount{v2(without("cgroup.procs")), v2(may)}, "", "", "cgroup.procs"},
		{"nobody freezes", one, []mount{v1, v2(without("x/cgroup.freeze"))}, "", "", "cgroup.freeze"},
		{"nobody joins", one, []mount{v1, v2(without("x/cgroup.procs"))}, "", "", "cgroup.procs"},
		{"no group may be made", one, []mount{v2(groupOf(t, map[string]string{"cgroup.procs": "", "x/y/z": ""}) + "/x/y")}, "", "", "cgroup.procs"},
	} {
		g := &Groups{byController: tt.groups}
		g.addFreezer(tt.mounts, "x")
		how, why := g.FreezesWith()
		if g.freezer.dir != tt.dir || g.freezer.home != tt.home || (how == "control group v2") != (tt.dir != "") {
			t.Errorf("%s: got %q: %+v, want %s and home %s", tt.name, how, g.freezer, tt.dir, tt.home)
		}
		if (why != nil) != (tt.why != "") || why != nil && !strings.Contains(why.Error(), tt.why) {
			t.Errorf("%s: got the reason %v, want %q", tt.name, why, tt.why)
		}
		if has := slices.Contains(g.Directories(), may+"/x"); has != (tt.home != "") {
			t.Errorf("%s: the keeper removes %v", tt.name, g.Directories())
		}
	}
	dir := groupOf(t, map[string]string{"cgroup.procs": ""})
	if err := tryFreezer(dir, "new"); !errors.Is(err, os.ErrNotExist) || exists(dir+"/new") {
		t.Errorf("got %v, want an error and no group left", err)
	}
	must.Do(t, os.WriteFile(dir+"/file", nil, 0o600))
	failed, err := calltest.FailNth(t, unix.SYS_MKDIRAT, 1, unix.EROFS, func() error { return tryFreezer(dir, "new") })
	if !failed || !errors.Is(err, unix.EROFS) {
		t.Errorf("failed %v: got %v, want EROFS", failed, err)
	}
}

// TestNewFreezer checks how the processes of a sandbox get into the group that freezes.
func TestNewFreezer(t *testing.T) {
	t.Parallel()
	one, two := []Hierarchy{{"/one/1", 1}}, []Hierarchy{{"/two/1", 2}}
	for name, tt := range map[string]struct {
		freezers freezers
		group    Group
		want     *Freezer
	}{
		"none":          {freezers{}, Group{Dirs: one}, nil},
		"of the limits": {freezers{dir: "/two"}, Group{Dirs: two}, &Freezer{dir: "/two/1", made: true}},
		"beside them":   {freezers{dir: "/f", home: "/h"}, Group{Dirs: one}, &Freezer{dir: "/f/1", home: "/h", members: "/one/1/tasks"}},
		"with a share":  {freezers{dir: "/f", home: "/h"}, Group{Dirs: one, CPU: Hierarchy{"/c", 1}}, &Freezer{dir: "/f/1", home: "/h", members: "/one/1/tasks", cpu: "/c"}},
		"version 2":     {freezers{dir: "/f", home: "/h"}, Group{Dirs: one, CPU: Hierarchy{"/c", 2}}, &Freezer{dir: "/f/1", home: "/h", members: "/one/1/tasks"}},
	} {
		got := (&Groups{freezer: tt.freezers}).newFreezer(&tt.group, "1")
		if (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tt.want)
		}
	}
}

// TestRemoveAll checks that groups below others are removed first, and the group that freezes too; what
// is gone already, or was never made, is no error.
func TestRemoveAll(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"limits/a/b", "limits/c", "frozen"} {
		must.Do(t, os.MkdirAll(filepath.Join(dir, name), 0o700))
	}
	s := &Group{Dirs: []Hierarchy{{dir + "/gone", 1}, {dir + "/limits", 1}}, freezer: &Freezer{dir: dir + "/frozen", home: dir}}
	must.Do(t, s.Remove())
	if exists(dir+"/limits") || !exists(dir+"/frozen") {
		t.Error("a group is left, or one was removed that this sandbox did not make")
	}
	s.freezer.made = true
	must.Do(t, s.Remove())
	if exists(dir + "/frozen") {
		t.Error("the group that freezes is left")
	}
	must.Do(t, os.MkdirAll(dir+"/full/a", 0o700))
	must.Do(t, os.WriteFile(dir+"/full/a/file", nil, 0o600))
	must.Do(t, os.Mkdir(dir+"/empty", 0o700))
	if err := Remove(t.Context(), []string{dir + "/full", dir + "/empty"}); !errors.Is(err, unix.ENOTEMPTY) || !strings.Contains(err.Error(), dir+"/full/a:") {
		t.Errorf("got %v, want ENOTEMPTY with the group", err)
	}
	if exists(dir + "/empty") {
		t.Error("a group is left because another cannot be removed")
	}
	must.Is(t, Remove(t.Context(), []string{dir + "/full/a/file"}), unix.ENOTDIR)
}

// TestBusyGroup checks that a group with processes is tried again after they were killed, and that no
// process is killed that is not visible here: kill(0) ends this one.
func TestBusyGroup(t *testing.T) {
	t.Parallel()
	dir := groupOf(t, map[string]string{"cgroup.procs": "0\n-1\n4194305\nx\n"})
	var killed []int32
	busy := 0
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and not unlocked: the thread keeps the filter
		ended, err := calltest.Watch([]uint32{unix.SYS_RMDIR, unix.SYS_UNLINKAT, unix.SYS_KILL}, func(c calltest.Call) (unix.Errno, bool) {
			if c.Number == unix.SYS_KILL {
				killed = append(killed, int32(c.Arguments[0]))
				return unix.ESRCH, false
			}
			busy++
			if busy < 3 {
				return unix.EBUSY, false
			}
			return unix.ENOENT, true // another removed it
		})
		if err == nil {
			if err = Remove(context.Background(), []string{dir}); err == nil {
				<-ended // it has seen that another removed it, and does not write killed again
			}
		}
		done <- err
	}()
	err := <-done
	if errors.Is(err, calltest.ErrUnwatched) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	must.Do(t, err)
	if want := []int32{4194305, 4194305}; !slices.Equal(killed, want) {
		t.Errorf("killed %v, want %v", killed, want)
	}
}

// TestStopForks checks that the first means is used that the group has and that the kernel accepts.
func TestStopForks(t *testing.T) {
	t.Parallel()
	all := map[string]string{"cgroup.kill": "", "pids.max": "9", "cgroup.freeze": "0"}
	dir := groupOf(t, all)
	s := &Group{Dirs: []Hierarchy{{dir + "/gone", 2}, {dir, 2}}}
	s.StopForks()
	checkFiles(t, "all", dir, with(all, "cgroup.kill", "1"))
	must.Do(t, os.Remove(dir+"/cgroup.kill"))
	s.StopForks()
	checkFiles(t, "without kill", dir, map[string]string{"pids.max": "0", "cgroup.freeze": "0"})
	must.Do(t, os.Remove(dir+"/pids.max"))
	s.StopForks()
	checkFiles(t, "only freeze", dir, map[string]string{"cgroup.freeze": "1"})
	dir = groupOf(t, all)
	failed, err := calltest.FailNth(t, unix.SYS_WRITE, 1, unix.EOPNOTSUPP, func() error { stopForks(dir); return nil })
	if !failed || err != nil {
		t.Errorf("failed %v: %v", failed, err)
	}
	checkFiles(t, "kill is refused", dir, with(all, "pids.max", "0"))
}

// TestWithout checks that the rest is in order, each element once.
func TestWithout(t *testing.T) {
	t.Parallel()
	if got := without([]int{3, 1, 3, 2, 4, 4}, []int{2, 7, 2}); !slices.Equal(got, []int{3, 1, 4}) {
		t.Errorf("got %v", got)
	}
}
