//go:build linux

package survey

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// idle checks that a survey whose workers have ended is unlocked, and counts none of them.
func idle(t *testing.T, w *walk) {
	t.Helper()
	if !w.mu.TryLock() {
		t.Fatal("the survey is still locked")
	}
	defer w.mu.Unlock()
	if w.busy != 0 {
		t.Errorf("got %d workers, want none", w.busy)
	}
}

// paths returns the paths of all directories that a survey has read.
func paths(found []directory) (paths []string) {
	for _, d := range found {
		paths = append(paths, d.path)
	}
	slices.Sort(paths)
	return paths
}

// TestFail checks that a survey keeps the first of its errors, and is not left locked.
func TestFail(t *testing.T) {
	// Not parallel: it fails at once where other tests would hang.
	w := walkOf(t, t.TempDir())
	first := errors.New("first")
	for _, err := range []error{first, errors.New("second")} {
		w.fail(err)
		idle(t, w)
		must.Is(t, w.err, first)
	}
}

// TestReadAll checks that a worker reads all directories until the first error, and passes over
// directories that are gone.
func TestReadAll(t *testing.T) {
	// Not parallel: it fails at once where other tests would hang.
	root := t.TempDir()
	write(t, root, map[string]os.FileMode{"a/b/c/": 0o755, "d/": 0o755})
	before := errors.New("before")
	outside := &fs.PathError{Op: "open", Path: "..", Err: unix.EXDEV}
	for name, tt := range map[string]struct {
		queue []string
		err   error
		left  []string
		found []string
		want  string
	}{
		"all":               {queue: []string{"."}, found: []string{".", "a", "a/b", "a/b/c", "d"}},
		"one is gone":       {queue: []string{"d", "gone", "a/b"}, found: []string{"a/b", "a/b/c", "d"}},
		"nothing":           {},
		"one fails":         {queue: []string{"a", "..", "d"}, found: []string{"d"}, left: []string{"a"}, want: outside.Error()},
		"after an error":    {queue: []string{"a"}, err: before, left: []string{"a"}, want: before.Error()},
		"error without any": {err: before, want: before.Error()},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := walkOf(t, root)
			w.queue, w.err = slices.Clone(tt.queue), tt.err
			w.readAll()
			idle(t, w)
			said := ""
			if w.err != nil {
				said = w.err.Error()
			}
			if said != tt.want || !slices.Equal(w.queue, tt.left) {
				t.Errorf("%s: got error %q with %q left, want %q and %q", name, said, w.queue, tt.want, tt.left)
			}
			if diff := cmp.Diff(tt.found, paths(w.found)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		})
	}
}

// TestFirstErrorStays checks that an error that another worker meets first is not replaced.
func TestFirstErrorStays(t *testing.T) {
	t.Parallel()
	w := walkOf(t, t.TempDir())
	first := errors.New("first")
	w.queue = []string{"."}
	var unwatched error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and not unlocked: the thread, which keeps the filter, ends with the goroutine
		var ended <-chan struct{}
		ended, unwatched = calltest.Watch([]uint32{unix.SYS_OPENAT2}, func(calltest.Call) (unix.Errno, bool) {
			w.fail(first)
			return unix.EIO, true
		})
		if unwatched == nil {
			w.readAll()
			<-ended
		}
	}()
	<-done
	if errors.Is(unwatched, calltest.ErrUnwatched) && os.Getenv("CI") != "true" {
		t.Skip(unwatched)
	}
	must.Do(t, unwatched)
	must.Is(t, w.err, first)
}

// TestReadIsCancelled checks that workers read all known directories while another worker is busy, and
// end with the cause of their context.
func TestReadIsCancelled(t *testing.T) {
	// Not parallel: it fails at once where other tests would hang.
	root := t.TempDir()
	write(t, root, map[string]os.FileMode{"a/b/": 0o755})
	synctest.Test(t, func(t *testing.T) {
		w := walkOf(t, root)
		w.queue = []string{"."}
		w.busy = 1 // another worker, which never ends
		why := errors.New("superseded")
		ctx, cancel := context.WithCancelCause(t.Context())
		var found []string
		go func() {
			synctest.Wait()
			w.mu.Lock()
			found = paths(w.found)
			w.mu.Unlock()
			cancel(why)
		}()
		err := w.read(ctx)
		must.Is(t, err, why)
		w.busy--
		idle(t, w)
		if diff := cmp.Diff([]string{".", "a", "a/b"}, found); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestBounds checks the largest numbers of directories and of private paths, and that an earlier
// error stays.
func TestBounds(t *testing.T) {
	t.Parallel()
	file, closed := directory{path: "last", files: []string{"a", "b"}}, directory{path: "last", private: true}
	many := "too many: more than 10000 files and directories are closed to others, last among them"
	found := make([]directory, maxDirectories, maxDirectories+1)
	before := errors.New("before")
	for name, tt := range map[string]struct {
		d              directory
		private, found int
		err            error
		want           string
		count          int
	}{
		"files below the bound":    {d: file, private: MaxPrivate - 3, count: MaxPrivate - 1},
		"files at the bound":       {d: file, private: MaxPrivate - 2, count: MaxPrivate},
		"files above the bound":    {d: file, private: MaxPrivate - 1, count: MaxPrivate + 1, want: many},
		"a directory at it":        {d: closed, private: MaxPrivate - 1, count: MaxPrivate},
		"a directory above it":     {d: closed, private: MaxPrivate, count: MaxPrivate + 1, want: many},
		"directories at the bound": {found: maxDirectories - 1},
		"directories above it":     {found: maxDirectories, want: "too many: more than 2000000 directories"},
		"files after an error":     {d: file, private: MaxPrivate, err: before, count: MaxPrivate + 2, want: before.Error()},
		"directories after one":    {found: maxDirectories, err: before, want: before.Error()},
	} {
		w := &walk{private: tt.private, found: found[:tt.found], err: tt.err}
		w.add(tt.d)
		said := ""
		if w.err != nil {
			said = w.err.Error()
		}
		if tooMany := errors.Is(w.err, ErrTooMany); said != tt.want || tooMany != (tt.want != "" && tt.err == nil) {
			t.Errorf("%s: got error %q, want %q", name, said, tt.want)
		}
		if w.private != tt.count || len(w.found) != tt.found+1 {
			t.Errorf("%s: counted %d private paths and %d directories, want %d and %d", name, w.private, len(w.found), tt.count, tt.found+1)
		}
	}
}

// TestPrivate checks the paths that a snapshot returns, and that only a private root closes it.
func TestPrivate(t *testing.T) {
	t.Parallel()
	s := &Snapshot{directories: []directory{
		{path: "z", private: true}, {path: "d", files: []string{"y", "x"}}, {path: "b"}, {path: ".", files: []string{"m", "a"}}, {path: "c/d", private: true},
	}}
	want(t, s, "a", "c/d", "d/x", "d/y", "m", "z")
	if s.Closed() {
		t.Error("a snapshot with a public root is closed")
	}
	s.directories[3].private = true
	want(t, s, "a", "c/d", "d/x", "d/y", "m", "z")
	if !s.Closed() {
		t.Error("a snapshot with a private root is not closed")
	}
}

// TestUnchanged checks that a survey of an unchanged tree with many directories is the earlier one, and that one
// change adds no directory twice.
func TestUnchanged(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	files := map[string]os.FileMode{}
	wanted := []string{".", "a"}
	for n := range 260 {
		path := fmt.Sprintf("a/%03d", n)
		files[path+"/"] = 0o755
		wanted = append(wanted, path)
	}
	write(t, root, files)
	before := find(t, root, nil)
	age(before, root, t)
	if got := find(t, root, before); got != before {
		t.Errorf("a survey of the same tree found %d directories anew", len(got.directories))
	}
	write(t, root, map[string]os.FileMode{"a/new/": 0o700, "a/200/key": 0o600})
	got := find(t, root, before)
	if diff := cmp.Diff(append(wanted, "a/new"), paths(got.directories)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want(t, got, "a/200/key", "a/new")
}

// TestEmptySnapshot checks that a snapshot without directories says nothing about a tree.
func TestEmptySnapshot(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, root, map[string]os.FileMode{"key": 0o600})
	before := &Snapshot{Made: time.Unix(1, 2)}
	got := find(t, root, before)
	want(t, got, "key")
	if !got.Made.Equal(before.Made) {
		t.Errorf("got a survey made at %v, want %v", got.Made, before.Made)
	}
}
