//go:build linux

package survey

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/fdtest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// write creates files with their modes. A name that ends in "/" is a directory.
func write(t *testing.T, root string, files map[string]os.FileMode) {
	t.Helper()
	for name, mode := range files {
		path := filepath.Join(root, name)
		directory := path
		if name[len(name)-1] != '/' {
			directory = filepath.Dir(path)
		}
		must.Do(t, os.MkdirAll(directory, 0o755))
		if directory != path {
			must.Do(t, os.WriteFile(path, []byte("x"), 0o644))
		}
		must.Do(t, os.Chmod(path, mode))
	}
}

// age sets the times of all directories back, so that the next change has a different time.
func age(s *Snapshot, root string, t *testing.T) {
	t.Helper()
	for i, d := range s.directories {
		info, err := os.Lstat(filepath.Join(root, d.path))
		must.Do(t, err)
		s.directories[i].changed = changeOf(info)
	}
}

// find surveys a tree. It checks that the survey lists each directory once, and closes all of them.
func find(t *testing.T, root string, before *Snapshot) *Snapshot {
	t.Helper()
	f, err := os.Open(root)
	must.Do(t, err)
	defer f.Close()
	s, err := Find(t.Context(), f, before)
	must.Do(t, err)
	if open := fdtest.Open(t, root); len(open) != 1 {
		t.Errorf("%q are open after a survey, want the root alone", open)
	}
	all := paths(s.directories)
	if once := slices.Compact(slices.Clone(all)); len(once) != len(all) {
		t.Errorf("a survey has %d directories, and %d different ones", len(all), len(once))
	}
	return s
}

func want(t *testing.T, s *Snapshot, paths ...string) {
	t.Helper()
	if diff := cmp.Diff(paths, s.Private()); diff != "" {
		t.Error(diff)
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, root, map[string]os.FileMode{
		"public": 0o644, "program": 0o711, "secret": 0o600, "group": 0o640, "helper": 0o750 | os.ModeSetuid,
		"closed/in": 0o644, "deep/er/key": 0o400, "deep/er/cert": 0o444, "passage/hidden": 0o600, "passage/known": 0o644,
	})
	write(t, root, map[string]os.FileMode{"closed/": 0o770, "passage/": 0o711})
	must.Do(t, os.Symlink("/", filepath.Join(root, "deep", "link")))
	began := time.Now()
	s := find(t, root, nil)
	want(t, s, "closed", "deep/er/key", "group", "helper", "passage/hidden", "secret")
	if s.Made.Before(began) {
		t.Errorf("got a survey made at %v, want one since %v", s.Made, began)
	}
	if s.Closed() {
		t.Error("the root is closed")
	}
	must.Do(t, os.Chmod(root, 0o700))
	if s := find(t, root, nil); !s.Closed() || len(s.Private()) != 6 {
		t.Errorf("closed: %v, %q", s.Closed(), s.Private())
	}
}

// TestSince checks that files that were added, removed or changed since the last survey are found,
// and that unchanged directories are not read.
func TestSince(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, root, map[string]os.FileMode{"a/secret": 0o600, "a/file": 0o644, "b/c/file": 0o644, "d/key": 0o600, "e/x/key": 0o600})
	before := find(t, root, nil)
	want(t, before, "a/secret", "d/key", "e/x/key")
	age(before, root, t)

	// Changing the mode of a file does not change its directory.
	write(t, root, map[string]os.FileMode{"a/file": 0o600})
	want(t, find(t, root, before), "a/secret", "d/key", "e/x/key")
	want(t, find(t, root, nil), "a/file", "a/secret", "d/key", "e/x/key")

	write(t, root, map[string]os.FileMode{"b/c/new": 0o600, "b/f/g/new": 0o600, "d/": 0o700})
	must.Do(t, os.Rename(filepath.Join(root, "e"), filepath.Join(root, "b", "e")))
	after := find(t, root, before)
	want(t, after, "a/secret", "b/c/new", "b/e/x/key", "b/f/g/new", "d")
	age(after, root, t)
	must.Do(t, errors.Join(os.RemoveAll(filepath.Join(root, "b")), os.Chmod(filepath.Join(root, "d"), 0o755)))
	// A link that has replaced a directory is not followed.
	must.Do(t, os.Symlink("d", filepath.Join(root, "b")))
	want(t, find(t, root, after), "a/secret", "d/key")
	if !after.Made.Equal(before.Made) {
		t.Error("a survey that did not look at all files says so")
	}
}

// TestRecent checks that a survey reads a directory again if its last change is so recent that
// another change could have the same time.
func TestRecent(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, root, map[string]os.FileMode{"file": 0o644})
	before := find(t, root, nil)
	write(t, root, map[string]os.FileMode{"file": 0o600})
	want(t, find(t, root, before), "file")
}

// TestTooMany checks that the private paths of an earlier survey count, too.
func TestTooMany(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	before := &Snapshot{directories: []directory{entry(t, root, ".", false), {path: "gone", private: true}}}
	files := &before.directories[0].files
	*files = slices.Repeat([]string{"file"}, MaxPrivate)
	if n := len(find(t, root, before).Private()); n != MaxPrivate {
		t.Errorf("got %d private paths, want %d", n, MaxPrivate)
	}
	*files = append(*files, "another")
	f, err := os.Open(root)
	must.Do(t, err)
	defer f.Close()
	if s, err := Find(t.Context(), f, before); s != nil || !errors.Is(err, ErrTooMany) {
		t.Errorf("got %v, %v; want %v", s, err, ErrTooMany)
	}
}

func TestCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f, err := os.Open("/usr")
	must.Do(t, err)
	defer f.Close()
	if _, err := Find(ctx, f, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestMarshal(t *testing.T) {
	t.Parallel()
	s := &Snapshot{Made: time.Unix(1, 2), directories: []directory{
		{path: ".", inode: 2, changed: 1 << 60}, {path: "a/b\n", inode: 1 << 63, changed: -1, private: true}, {path: "c", files: []string{"x", "y\x00"}},
	}}
	data, err := s.MarshalBinary()
	must.Do(t, err)
	var got Snapshot
	must.Do(t, got.UnmarshalBinary(data))
	if diff := cmp.Diff(*s, got, cmp.AllowUnexported(Snapshot{}, directory{})); diff != "" {
		t.Error(diff)
	}
	if err := got.UnmarshalBinary([]byte("x")); !errors.Is(err, ErrFormat) {
		t.Errorf("got %v", err)
	}
}

// FuzzUnmarshal checks that invalid bytes result in ErrFormat, and never take more memory than
// their length.
func FuzzUnmarshal(f *testing.F) {
	data, err := (&Snapshot{directories: []directory{{path: "a", files: []string{"x"}}}}).MarshalBinary()
	must.Do(f, err)
	f.Add(data)
	f.Add([]byte(magic + "\x00\x01a\x01\x02\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var s Snapshot
		if err := s.UnmarshalBinary(data); err != nil && !errors.Is(err, ErrFormat) {
			t.Error(err)
		}
		s.Private()
	})
}

// BenchmarkFind surveys the machine's programs, with and without a snapshot.
func BenchmarkFind(b *testing.B) {
	root, err := os.Open("/usr")
	must.Do(b, err)
	defer root.Close()
	var s *Snapshot
	b.Run("anew", func(b *testing.B) {
		for b.Loop() {
			s, err = Find(b.Context(), root, nil)
			must.Do(b, err)
		}
	})
	b.Run("again", func(b *testing.B) {
		for b.Loop() {
			s, err = Find(b.Context(), root, s)
			must.Do(b, err)
		}
	})
	b.Run("read", func(b *testing.B) {
		data, err := s.MarshalBinary()
		must.Do(b, err)
		for b.Loop() {
			var read Snapshot
			must.Do(b, read.UnmarshalBinary(data))
		}
	})
}
