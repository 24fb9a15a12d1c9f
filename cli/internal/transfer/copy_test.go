package transfer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBroken = errors.New("the connection broke")

// dirStore is a store that is a directory of this machine. Reading a file named
// broken fails after its first byte.
type dirStore struct{ dir string }

func (s dirStore) Mode(_ context.Context, name string) (fs.FileMode, error) {
	info, err := os.Stat(filepath.Join(s.dir, name))
	if err != nil {
		return 0, err
	}
	return info.Mode(), nil
}

func (s dirStore) Open(_ context.Context, name string) (io.ReadCloser, error) {
	if strings.HasSuffix(name, "broken") {
		return io.NopCloser(io.MultiReader(strings.NewReader("x"), iotest.ErrReader(errBroken))), nil
	}
	return os.Open(filepath.Join(s.dir, name))
}

func (s dirStore) Write(_ context.Context, name string, r io.Reader, mode fs.FileMode, progress func(int64)) error {
	return writeLocal(filepath.Join(s.dir, name), Counted(r, progress), mode)
}

func (s dirStore) UploadDir(_ context.Context, local, dir string, _ *Copy) error {
	return os.CopyFS(filepath.Join(s.dir, dir), os.DirFS(local))
}

func (s dirStore) DownloadDir(_ context.Context, dir, local string, _ *Copy) error {
	return os.CopyFS(local, os.DirFS(filepath.Join(s.dir, dir)))
}

// countingStore counts the files that are open.
type countingStore struct {
	dirStore
	open *int
}

func (s countingStore) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	file, err := s.dirStore.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	*s.open++
	return closing{file, func() { *s.open-- }}, nil
}

// closing calls a function when it is closed.
type closing struct {
	io.ReadCloser
	closed func()
}

func (c closing) Close() error {
	c.closed()
	return c.ReadCloser.Close()
}

// tree makes a directory with files whose content is their name; "there" is an empty
// directory in it.
func tree(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	must.Do(t, os.Mkdir(filepath.Join(dir, "there"), 0o755))
	for _, name := range names {
		must.Do(t, writeLocal(filepath.Join(dir, name), strings.NewReader(name), 0o644))
	}
	return dir
}

// files returns the names of the files below a directory.
func files(t *testing.T, dir string) []string {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			name, err = filepath.Rel(dir, name)
			found[filepath.ToSlash(name)] = true
		}
		return err
	})
	must.Do(t, err)
	return slices.Sorted(maps.Keys(found))
}

// TestWhereACopyGoes tries the one rule from and to a store, and between two.
func TestWhereACopyGoes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		from, to    string
		onlyContent bool
		want        string // the one file that then exists
	}{
		{"file", "new", false, "new"},
		{"file", "new/", false, "new/file"},
		{"file", "there", false, "there/file"},
		{"file", "a/b/new", false, "a/b/new"},
		{"tree", "new", false, "new/in"},
		{"tree", "new/", false, "new/tree/in"},
		{"tree/", "there", false, "there/tree/in"},
		{"tree/.", "there", false, "there/in"},
		{"tree", "there", true, "there/in"},
		{"tree", "new/", true, "new/in"},
		{"file", "there", true, "there/file"},
	} {
		for _, way := range []string{"upload", "download", "between"} {
			source, target := tree(t, "file", "tree/in"), tree(t)
			from, to := End{Path: test.from}, End{Path: test.to}
			if way == "upload" {
				from.Path = source + "/" + from.Path
			} else {
				from.Store = dirStore{source}
			}
			if way == "download" {
				to.Path = target + "/" + to.Path
			} else {
				to.Store = dirStore{target}
			}
			c := Copy{Recursive: true, OnlyContent: test.onlyContent}
			if err := c.Run(t.Context(), from, to); err != nil {
				t.Errorf("%s %s to %s: %v", way, test.from, test.to, err)
			}
			if got := files(t, target); !slices.Equal(got, []string{test.want}) {
				t.Errorf("%s %s to %s: got %v, want %s", way, test.from, test.to, got, test.want)
			}
		}
	}
}

// TestStreams copies from stdin and to stdout, and refuses other uses of the streams.
func TestStreams(t *testing.T) {
	t.Parallel()
	dir := tree(t, "file", "tree/in")
	store := dirStore{dir}
	var out bytes.Buffer
	c := Copy{
		IO:      cmdutil.NewIOStreams(strings.NewReader("typed"), &out, io.Discard),
		Command: &cobra.Command{}, Recursive: true,
	}
	if err := c.Run(t.Context(), End{Path: stream}, End{store, "new"}); err != nil {
		t.Error(err)
	}
	if err := c.Run(t.Context(), End{store, "new"}, End{Path: stream}); err != nil || out.String() != "typed" {
		t.Errorf("got %q, %v, want what was typed", &out, err)
	}
	for _, ends := range [][2]End{
		{{Path: stream}, {store, "there/"}}, // it has no name
		{{store, "tree"}, {Path: stream}},
	} {
		if err := c.Run(t.Context(), ends[0], ends[1]); !isUsage(err) {
			t.Errorf("%v: got %v, want a usage error", ends, err)
		}
	}
	c.Recursive = false
	if err := c.Run(t.Context(), End{store, "tree"}, End{Path: filepath.Join(dir, "new")}); !isUsage(err) {
		t.Errorf("a directory without -r: got %v, want a usage error", err)
	}
}

// TestNoTemporaryDirectory checks that a copy between stores fails if it cannot make its temporary
// directory, and does not use the current directory in its place.
func TestNoTemporaryDirectory(t *testing.T) {
	source, target, here := tree(t, "tree/in"), tree(t), t.TempDir()
	t.Chdir(here)
	gone := filepath.Join(here, "gone")
	t.Setenv("TMPDIR", gone)
	t.Setenv("TMP", gone) // on Windows
	c := Copy{Recursive: true}
	must.Is(t, c.Run(t.Context(), End{dirStore{source}, "tree"}, End{dirStore{target}, "new"}), fs.ErrNotExist)
	if got := append(files(t, here), files(t, target)...); len(got) > 0 {
		t.Errorf("got the files %v, want none", got)
	}
}

func isUsage(err error) bool {
	_, ok := errors.AsType[*cmdutil.UsageError](err)
	return ok
}

// TestNoHalfFile breaks downloads, after which the earlier file still exists.
func TestNoHalfFile(t *testing.T) {
	t.Parallel()
	source, target := tree(t, "broken", "large"), tree(t, "old")
	open := 0
	for name, want := range map[string]error{"broken": errBroken, "large": sandbox.ErrTooLarge} {
		for _, to := range []string{"old", "new"} {
			c := Copy{BoundFiles: true, MaxBytes: 4}
			if err := c.Run(t.Context(), End{countingStore{dirStore{source}, &open}, name}, End{Path: filepath.Join(target, to)}); !errors.Is(err, want) {
				t.Errorf("%s to %s: got %v, want %v", name, to, err, want)
			}
		}
	}
	if open != 0 {
		t.Errorf("%d files stay open", open)
	}
	if got := files(t, target); !slices.Equal(got, []string{"old"}) {
		t.Errorf("got %v, want the old file alone", got)
	}
	if text, err := os.ReadFile(filepath.Join(target, "old")); err != nil || string(text) != "old" {
		t.Errorf("got %q, %v, want what was there before", text, err)
	}
}

// TestProgress follows one file.
func TestProgress(t *testing.T) {
	t.Parallel()
	dir := tree(t, "file")
	var told []int64
	c := Copy{Progress: func(n int64) { told = append(told, n) }}
	must.Do(t, c.Run(t.Context(), End{dirStore{dir}, "file"}, End{dirStore{dir}, "new"}))
	if diff := cmp.Diff([]int64{4}, slices.Compact(told)); diff != "" {
		t.Errorf("the bytes that were told of (-want +got):\n%s", diff)
	}
}

// lostStore is a store from which no directory can be copied whole.
type lostStore struct{ dirStore }

func (s lostStore) DownloadDir(ctx context.Context, dir, local string, c *Copy) error {
	return errors.Join(s.dirStore.DownloadDir(ctx, dir, local, c), errBroken)
}

// TestBrokenDirectory checks that a directory that came only in part is not copied on to another store.
func TestBrokenDirectory(t *testing.T) {
	t.Parallel()
	source, target := tree(t, "tree/in"), tree(t)
	c := Copy{Recursive: true}
	must.Is(t, c.Run(t.Context(), End{lostStore{dirStore{source}}, "tree"}, End{dirStore{target}, "new"}), errBroken)
	if got := files(t, target); len(got) > 0 {
		t.Errorf("got the files %v, want none", got)
	}
}

// TestNamesOfEnds checks the name that a copy of each path has, and which paths are those of directories.
func TestNamesOfEnds(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{"a": "a", "a/b": "b", "a/b/": "b", "a/.": "", ".": "", "..": "", "a/..": "", "/": "", "//": "", "...": "...", ".a": ".a", "./a": "a"} {
		for _, end := range []End{{Path: path}, {Store: dirStore{}, Path: path}} {
			if got, slash := end.name(), end.endsInSlash(); got != want || slash != strings.HasSuffix(path, "/") {
				t.Errorf("%q: got the name %q, and that it is a directory: %v; want %q", path, got, slash, want)
			}
		}
	}
	if end := InVolume(nil, "/x"); end.Path != "/x" || end.Store == nil {
		t.Errorf("got %+v, want a path of the volume", end)
	}
}
