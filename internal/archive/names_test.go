package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// tarOf returns an archive of empty files, and of directories whose names end with a slash.
func tarOf(t *testing.T, names ...string) []byte {
	t.Helper()
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, name := range names {
		kind := byte(tar.TypeReg)
		if strings.HasSuffix(name, "/") {
			kind = tar.TypeDir
		}
		must.Do(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Typeflag: kind}))
	}
	must.Do(t, w.Close())
	return buffer.Bytes()
}

// sameNames are archives, and the name that would be lost if names cannot differ in case only.
var sameNames = []struct {
	names []string
	lost  string
}{
	{[]string{"A", "a"}, `"a"`},
	{[]string{"1", "dir/file", "dir/File"}, `"dir/File"`},
	{[]string{"Dir/one", "dir/two"}, `"dir"`},
	{[]string{"Dir/", "other", "dir/"}, `"dir"`},
	{[]string{"Äpfel", "äpfel"}, `"äpfel"`},
	{[]string{"caf\u00e9", "cafe\u0301"}, "\"cafe\u0301\""},
	{[]string{"a", "b", "a"}, ""}, // the archive replaces its own file
	{[]string{"a/b", "b/a"}, ""},
	{[]string{"ab", "a/b"}, ""},
	{[]string{"1", "2"}, ""},
}

// TestNamesThatDifferInCase unpacks names that differ in case only. If the file system does
// not tell them apart, none is lost in silence. Otherwise all are written.
func TestNamesThatDifferInCase(t *testing.T) {
	t.Parallel()
	for _, tt := range sameNames {
		u := &Unpacker{Root: openRoot(t, t.TempDir()), MaxBytes: -1, MaxFiles: -1}
		_ = u.names.check(".") // it remembers names
		u.names.decided = true
		err := u.Unpack(t.Context(), bytes.NewReader(tarOf(t, tt.names...)))
		if errors.Is(err, ErrSameName) != (tt.lost != "") || err != nil && !strings.Contains(err.Error(), tt.lost) {
			t.Errorf("%q: got %v, want %q to be refused", tt.names, err, tt.lost)
		}
		if runtime.GOOS != "linux" {
			continue
		}
		dir := t.TempDir()
		u = &Unpacker{Root: openRoot(t, dir), MaxBytes: -1, MaxFiles: -1}
		twice := slices.Concat(tt.names, tt.names) // the names after the first ones are told apart, too
		if err := u.Unpack(t.Context(), bytes.NewReader(tarOf(t, twice...))); err != nil {
			t.Errorf("%q: %v, want all of them on a file system that tells them apart", tt.names, err)
		}
		for _, name := range tt.names {
			if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestLearnNames checks that the first name with letters shows whether the file system tells
// names apart.
func TestLearnNames(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the file system may not tell names apart")
	}
	dir := t.TempDir()
	for _, name := range []string{"1", "Told", "Same", "Both", "bOTH"} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	if err := os.Link(filepath.Join(dir, "Same"), filepath.Join(dir, "sAME")); err != nil { // one file with both names
		t.Fatal(err)
	}
	root := openRoot(t, dir)
	for name, want := range map[string]struct{ decided, folds bool }{"1": {false, true}, "skipped": {false, true}, "Told": {true, false}, "Same": {true, true}, "Both": {true, false}} {
		var n names
		must.Do(t, n.check(name))
		n.learn(root, name)
		if n.decided != want.decided || (n.seen != nil) != want.folds {
			t.Errorf("%s: decided %v, remembers names %v, want %v", name, n.decided, n.seen != nil, want)
		}
	}
}
