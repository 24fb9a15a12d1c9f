//go:build linux

package envd

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestEachCallOfTheFilesystemFails makes each system call of a request fail. It checks which failures are
// failures of the request, and that none loses a file.
func TestEachCallOfTheFilesystemFails(t *testing.T) {
	t.Parallel()
	d := serve(t)
	s, ctx := &filesystemService{d.server}, t.Context()
	move := func(to string) func() error {
		return func() error {
			_, err := s.Move(ctx, connect.NewRequest(&filesystem.MoveRequest{Source: "tree/a", Destination: to}))
			return err
		}
	}
	parts := strings.Count(d.home, "/") + 1 // of the path of the tree; each is looked at
	resolved := []int{1}
	for n := range parts {
		resolved = append(resolved, n+2)
	}
	const status, open, list, mkdir, chown, rename, remove = unix.SYS_NEWFSTATAT, unix.SYS_OPENAT, unix.SYS_GETDENTS64, unix.SYS_MKDIRAT, unix.SYS_FCHOWNAT, unix.SYS_RENAMEAT, unix.SYS_UNLINKAT
	for name, tt := range map[string]struct {
		do    func() error
		fails map[uint32][]int // the failures that fail the request, by the number of the call
	}{
		"Stat": {func() error {
			_, err := s.Stat(ctx, connect.NewRequest(&filesystem.StatRequest{Path: "tree/a"}))
			return err
		}, map[uint32][]int{status: {1}, unix.SYS_LLISTXATTR: nil}},
		"Stat of a link": {func() error {
			_, err := s.Stat(ctx, connect.NewRequest(&filesystem.StatRequest{Path: "tree/link"}))
			return err
		}, map[uint32][]int{status: {1}, unix.SYS_READLINKAT: nil}},
		"MakeDir": {func() error {
			_, err := s.MakeDir(ctx, connect.NewRequest(&filesystem.MakeDirRequest{Path: "tree/b/c"}))
			return err
		}, map[uint32][]int{status: {2, 3, 4, 5}, mkdir: {1, 2}, chown: {1, 2}}},
		"Move":                   {move("tree/b/c"), map[uint32][]int{status: {2, 3, 4, 5, 7}, rename: {1}, mkdir: {1}, chown: {1}}},
		"Move to a second name":  {move("tree/second"), map[uint32][]int{status: {2, 3, 4, 5}, remove: {1}}},
		"Move to the same entry": {move("linked/a"), map[uint32][]int{status: {2, 3, 4, 5, 6, 7}}},
		"ListDir": {func() error {
			_, err := s.ListDir(ctx, connect.NewRequest(&filesystem.ListDirRequest{Path: "tree", Depth: 2}))
			return err
		}, map[uint32][]int{status: resolved, open: {1}, list: {1, 2}}},
		"Remove": {func() error {
			_, err := s.Remove(ctx, connect.NewRequest(&filesystem.RemoveRequest{Path: "tree/dir"}))
			return err
		}, map[uint32][]int{list: {1, 2, 3, 4}}},
	} {
		for call, fails := range tt.fails {
			for n, more := 1, true; more; n++ {
				must.Do(t, errors.Join(os.MkdirAll(d.home+"/tree/dir/below", 0o700), os.Symlink("tree", d.home+"/linked"), os.Symlink("a", d.home+"/tree/link")))
				put(t, d.home+"/tree/a", "text")
				must.Do(t, os.Link(d.home+"/tree/a", d.home+"/tree/second"))
				var err error
				more, err = calltest.FailNth(t, call, n, unix.EIO, tt.do)
				if want := slices.Contains(fails, n); want != (err != nil) || want && (connect.CodeOf(err) != connect.CodeInternal || !strings.Contains(err.Error(), unix.EIO.Error())) {
					t.Errorf("%s, call %d of number %d fails: got error %v, want one: %v", name, n, call, err, want)
				}
				if got := content(t, d.home+"/tree/second"); got != "text" {
					t.Errorf("%s, call %d of number %d fails: the file has %q, want %q", name, n, call, got, "text")
				}
				if _, err := os.Lstat(d.home + "/tree/a"); err != nil && !strings.HasPrefix(name, "Move") {
					t.Errorf("%s, call %d of number %d fails: %v", name, n, call, err)
				}
				must.Do(t, errors.Join(os.RemoveAll(d.home+"/tree"), os.Remove(d.home+"/linked")))
			}
		}
	}
}

// TestEachCallOfAComposeFails makes each system call of a request to join files fail. Either all is done, or
// the request fails, and then no content is lost. No temporary file is left.
func TestEachCallOfAComposeFails(t *testing.T) {
	t.Parallel()
	d := serve(t)
	user := &d.server.users.list[0]
	if user.UID == 0 {
		user.UID, user.GID = 54321, 54322
	}
	for call, number := range map[string]uint32{
		"openat": unix.SYS_OPENAT, "newfstatat": unix.SYS_NEWFSTATAT, "fstat": unix.SYS_FSTAT, "fchmod": unix.SYS_FCHMOD, "fchown": unix.SYS_FCHOWN,
		"copy_file_range": unix.SYS_COPY_FILE_RANGE, "renameat": unix.SYS_RENAMEAT, "unlinkat": unix.SYS_UNLINKAT, "mkdirat": unix.SYS_MKDIRAT,
	} {
		for n, more := 1, true; more; n++ {
			put(t, d.home+"/1", "one ")
			put(t, d.home+"/2", "two")
			var err error
			more, err = calltest.FailNth(t, number, n, unix.EIO, func() error {
				_, err := d.server.composeFiles(&composeRequest{SourcePaths: []string{"1", "2", "1"}, Destination: "sub/x"})
				return err
			})
			what := call + " fails"
			if err != nil && !errors.Is(err, unix.EIO) {
				t.Errorf("%s: got error %v", what, err)
			}
			joined, gone := os.ReadFile(d.home + "/sub/x")
			info, _ := os.Stat(d.home + "/sub/x") // nil if it is gone
			if gone == nil && (string(joined) != "one twoone " || info.Mode() != 0o644 || owner(t, d.home+"/sub/x") != owner(t, d.home+"/sub")) {
				t.Errorf("%s: got %q, mode %v, owner %s", what, joined, info.Mode(), owner(t, d.home+"/sub/x"))
			}
			_, first := os.Stat(d.home + "/1")
			_, second := os.Stat(d.home + "/2")
			done, untouched := gone == nil && first != nil && second != nil, first == nil && second == nil
			if err == nil && !done || gone != nil && !untouched {
				t.Errorf("%s: after error %v: the file: %v, its sources: %v, %v", what, err, gone, first, second)
			}
			if left, err := filepath.Glob(d.home + "/sub/.*"); err != nil || len(left) > 0 {
				t.Errorf("%s: %v is left, error %v", what, left, err)
			}
			must.Do(t, errors.Join(os.RemoveAll(d.home+"/sub"), os.RemoveAll(d.home+"/1"), os.RemoveAll(d.home+"/2")))
		}
	}
}

// TestStatusOfBrokenRequests checks the answers of requests in which one system call after the other fails, and that
// no file stays open.
func TestStatusOfBrokenRequests(t *testing.T) {
	t.Parallel()
	d := serve(t)
	const compose = `{"source_paths":["a"],"destination":"b"}`
	for name, tt := range map[string]struct {
		number  uint32
		as      unix.Errno
		handler http.HandlerFunc
		target  string
		body    string
		status  int
		want    string
	}{
		"a download that cannot be opened": {unix.SYS_OPENAT, unix.EIO, d.server.download, "/files?path=a", "", 500, "error opening file '" + d.home + "/a': open"},
		"a download of an unknown kind":    {unix.SYS_FSTAT, unix.EIO, d.server.download, "/files?path=a", "", 500, "error opening file '" + d.home + "/a': stat"},
		"metrics":                          {unix.SYS_STATFS, unix.EIO, d.server.serveMetrics, "/metrics", "", 500, `{"code":500,"message":"envd: measure the disk: input/output error"}`},
		"a full disk":                      {unix.SYS_OPENAT, unix.ENOSPC, d.server.compose, "/files/compose", compose, 507, `{"code":507,"message":"not enough disk space available"}`},
		"a used quota":                     {unix.SYS_OPENAT, unix.EDQUOT, d.server.compose, "/files/compose", compose, 507, `{"code":507,"message":"not enough disk space available"}`},
		"another error":                    {unix.SYS_OPENAT, unix.EIO, d.server.compose, "/files/compose", compose, 500, "input/output error"},
	} {
		refused := 0
		for n, more := 1, true; more; n++ {
			must.Do(t, os.RemoveAll(d.home+"/b"))
			put(t, d.home+"/a", "text")
			w := httptest.NewRecorder()
			var err error
			more, err = calltest.FailNth(t, tt.number, n, tt.as, func() error {
				tt.handler(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, tt.target, strings.NewReader(tt.body)))
				return nil
			})
			must.Do(t, err)
			switch {
			case w.Code == tt.status && strings.Contains(w.Body.String(), tt.want):
				refused++
			case w.Code != http.StatusOK:
				t.Errorf("%s: got %d %s, want %d with %q", name, w.Code, w.Body, tt.status, tt.want)
			}
			if !more && w.Code != http.StatusOK {
				t.Errorf("%s, without a failure: got %d %s", name, w.Code, w.Body)
			}
			if open := descriptors(t)[d.home+"/a"]; open != 0 {
				t.Errorf("%s: the file is open %d times", name, open)
			}
		}
		if refused == 0 {
			t.Errorf("%s: no request was refused", name)
		}
	}
}

// TestFilesThatStayUnopened checks that nothing stays open of a file whose kind cannot be told, or is the wrong one.
func TestFilesThatStayUnopened(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir+"/file", "text")
	must.Do(t, unix.Mkfifo(dir+"/pipe", 0o600))
	for name, do := range map[string]func() error{
		"to read":  func() error { _, err := openRegular(dir + "/file"); return err },
		"to write": func() error { _, _, err := openExisting(dir + "/file"); return err },
	} {
		failed, err := calltest.FailNth(t, unix.SYS_FSTAT, 1, unix.EIO, do)
		if !failed || !errors.Is(err, unix.EIO) {
			t.Errorf("%s: it failed: %v, error %v, want %v", name, failed, err, unix.EIO)
		}
	}
	if f, err := openRegular(dir + "/pipe"); f != nil || err == nil {
		t.Errorf("a pipe: got %v and error %v", f, err)
	}
	for _, path := range []string{"/file", "/pipe"} {
		if n := descriptors(t)[dir+path]; n != 0 {
			t.Errorf("%s is open %d times", path, n)
		}
	}
}

// TestListOfWhatChanges checks that a list has the entries that are still there, whatever became of the others.
func TestListOfWhatChanges(t *testing.T) {
	t.Parallel()
	d := serve(t)
	for _, name := range []string{"/gone", "/replaced", "/stays"} {
		must.Do(t, os.MkdirAll(d.home+name+"/below", 0o700))
	}
	found, err := readDir(d.home)
	must.Do(t, err)
	must.Do(t, errors.Join(os.RemoveAll(d.home+"/gone"), os.RemoveAll(d.home+"/replaced")))
	put(t, d.home+"/replaced", "")
	l := listing{server: d.server}
	must.Do(t, l.add(context.Background(), d.home, "/shown", found, 2))
	var got []string
	for _, entry := range l.entries {
		got = append(got, entry.GetPath())
	}
	if want := []string{"/shown/replaced", "/shown/stays", "/shown/stays/below"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestDirectoriesOfOthers checks that a directory that another process makes meanwhile is no error, and that all
// other failures are.
func TestDirectoriesOfOthers(t *testing.T) {
	t.Parallel()
	user := &User{UID: 54321, GID: 54321}
	for as, want := range map[unix.Errno]error{unix.EEXIST: nil, unix.ENOSPC: unix.ENOSPC} {
		dir := t.TempDir()
		_, err := calltest.FailNth(t, unix.SYS_MKDIRAT, 1, as, func() error { return makeDirs(dir+"/new", user) })
		if !errors.Is(err, want) {
			t.Errorf("%v: got error %v, want %v", as, err, want)
		}
	}
	if err := makeDirs(filepath.Join(t.TempDir(), strings.Repeat("n", 256)), user); !errors.Is(err, unix.ENAMETOOLONG) || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a name that is too long: got error %v, want %v", err, unix.ENAMETOOLONG)
	}
}
