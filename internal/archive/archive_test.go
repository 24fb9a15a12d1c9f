package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// openRoot opens a directory, and checks in the end that nothing in it is open.
func openRoot(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	must.Do(t, err)
	t.Cleanup(func() {
		must.Do(t, root.Close())
		if open := openBelow(t, dir); len(open) > 0 {
			t.Errorf("left open: %q", open)
		}
	})
	return root
}

// openBelow returns the files of this process that are open below a directory. Only Linux lists them.
func openBelow(t *testing.T, dir string) (open []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/self/fd/*")
	must.Do(t, err)
	for _, file := range all {
		if name, err := os.Readlink(file); err == nil && strings.HasPrefix(name, dir+"/") {
			open = append(open, name)
		}
	}
	return open
}

// into returns an Unpacker with generous limits.
func into(root *os.Root, skipped func(name, why string)) *Unpacker {
	return &Unpacker{Root: root, MaxBytes: 1 << 20, MaxFiles: 100, Skipped: skipped}
}

// listing describes a tree as a map from paths to kind and content.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, name)
		switch entry.Type() {
		case fs.ModeDir:
			got[rel] = "dir"
		case fs.ModeSymlink:
			target, err := os.Readlink(name)
			got[rel] = "-> " + target
			return err
		default:
			content, err := os.ReadFile(name)
			got[rel] = string(content)
			return err
		}
		return nil
	})
	must.Do(t, err)
	return got
}

func TestArchiveRoundTrip(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has neither unix sockets in the tree nor file modes")
	}
	src, dst := t.TempDir(), t.TempDir()
	for name, content := range map[string]string{
		"a.txt": "one", "sub/b": "two", "sub/deep/with space\nand newline": "three", strings.Repeat("long", 50): "four", "empty": "",
	} {
		must.Do(t, os.MkdirAll(filepath.Dir(filepath.Join(src, name)), 0o755))
		must.Do(t, os.WriteFile(filepath.Join(src, name), []byte(content), 0o640))
	}
	must.Do(t, os.Symlink("../a.txt", filepath.Join(src, "sub", "link")))
	want := listing(t, src)
	socket, err := net.Listen("unix", filepath.Join(src, "socket"))
	must.Do(t, err)
	defer socket.Close()

	// Twice into the same directory: existing entries are replaced.
	for range 2 {
		var archive bytes.Buffer
		var skipped []string
		skip := func(name, _ string) { skipped = append(skipped, name) }
		must.Do(t, (&Packer{Root: openRoot(t, src), Skipped: skip}).Pack(t.Context(), &archive))
		if diff := cmp.Diff([]string{"socket"}, skipped); diff != "" {
			t.Errorf("skipped while packing (-want +got):\n%s", diff)
		}
		must.Do(t, into(openRoot(t, dst), func(name, why string) { t.Errorf("skipped %s: %s", name, why) }).Unpack(t.Context(), &archive))
	}
	if diff := cmp.Diff(want, listing(t, dst)); diff != "" {
		t.Errorf("tree (-want +got):\n%s", diff)
	}
	info, err := os.Stat(filepath.Join(dst, "a.txt"))
	must.Do(t, err)
	if info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, want 0640", info.Mode())
	}
}

// TestArchiveOfClosedDirectories checks that a directory that does not allow writing is
// written after its contents.
func TestArchiveOfClosedDirectories(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such modes")
	}
	src := t.TempDir()
	for _, dir := range []string{"a/closed/deep", "a/closed/open", "a/closed-not", "z"} {
		must.Do(t, os.MkdirAll(filepath.Join(src, dir), 0o755))
	}
	closed := []string{"a/closed/deep", "a/closed", "z"}
	for _, dir := range closed {
		must.Do(t, os.Chmod(filepath.Join(src, dir), 0o500))
	}
	t.Cleanup(func() {
		for _, dir := range slices.Backward(closed) {
			_ = os.Chmod(filepath.Join(src, dir), 0o700)
		}
	})
	var archive bytes.Buffer
	must.Do(t, (&Packer{Root: openRoot(t, src)}).Pack(t.Context(), &archive))
	var got []string
	for reader := tar.NewReader(&archive); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must.Do(t, err)
		got = append(got, fmt.Sprintf("%o %s", header.Mode, header.Name))
	}
	want := []string{"755 a/", "500 a/closed/deep/", "755 a/closed/open/", "500 a/closed/", "755 a/closed-not/", "500 z/"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

func TestArchiveStopsWithItsContext(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o600))
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("told to stop")
	cancel(cause)
	if err := (&Packer{Root: openRoot(t, dir)}).Pack(ctx, &bytes.Buffer{}); !errors.Is(err, cause) {
		t.Errorf("got %v, want the cause", err)
	}
}

// TestUnpackHostile unpacks archives that a sandbox could make up. Nothing may
// ever be read or written outside the target.
func TestUnpackHostile(t *testing.T) {
	t.Parallel()
	file := func(name string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: 4}
	}
	link := func(name, target string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}
	}
	tests := []struct {
		name    string
		entries []tar.Header
		wantErr bool
		skipped []string
		want    map[string]string
	}{
		{"parent", []tar.Header{file("../evil")}, true, nil, map[string]string{}},
		{"hidden parent", []tar.Header{file("a/../../evil")}, true, nil, map[string]string{}},
		{"absolute", []tar.Header{file("/etc/evil")}, true, nil, map[string]string{}},
		{"through a link", []tar.Header{link("out", ".."), file("out/evil")}, false, []string{"out"}, map[string]string{"out": "dir", "out/evil": "evil"}},
		{"absolute link", []tar.Header{link("passwd", "/etc/passwd"), file("ok")}, false, []string{"passwd"}, map[string]string{"ok": "evil"}},
		{"link inside", []tar.Header{file("ok"), link("also", "ok")}, false, nil, map[string]string{"ok": "evil", "also": "-> ok"}},
		{"link in place of a directory", []tar.Header{{Name: "p/q/", Typeflag: tar.TypeDir, Mode: 0o755}, link("p/q/r", "../.."), link("p/q/r/l", "../../..")}, false, nil, map[string]string{"p": "dir", "p/q": "dir", "p/q/r": "dir", "p/q/r/l": "-> ../../.."}},
		{"link to nowhere in place of a directory", []tar.Header{link("d", "e"), file("d/x")}, false, nil, map[string]string{"d": "dir", "d/x": "evil"}},
		{"link out through a link", []tar.Header{link("here", "."), link("out", "here/..")}, false, []string{"out"}, map[string]string{"here": "-> ."}},
		{"link out through a deep link", []tar.Header{link("a/b/c", "../.."), link("out", "a/b/c/../secret")}, false, []string{"out"}, map[string]string{"a": "dir", "a/b": "dir", "a/b/c": "-> ../.."}},
		{"hard link to a link", []tar.Header{link("a/in", "../../target/ok"), link("a/b/up", "../../ok"), {Name: "up", Typeflag: tar.TypeLink, Linkname: "a/b/up"}}, false, []string{"a/in", "up"}, map[string]string{"a": "dir", "a/b": "dir", "a/b/up": "-> ../../ok"}},
		{"hard link to a link nearby", []tar.Header{link("a/up", "../ok"), {Name: "a/too", Typeflag: tar.TypeLink, Linkname: "a/up"}}, false, nil, map[string]string{"a": "dir", "a/up": "-> ../ok", "a/too": "-> ../ok"}},
		{"hard link out", []tar.Header{{Name: "h", Typeflag: tar.TypeLink, Linkname: "../secret"}}, true, nil, map[string]string{}},
		{"device", []tar.Header{{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}, {Name: "f", Typeflag: tar.TypeFifo}}, false, []string{"null", "f"}, map[string]string{}},
		{"a name that begins as another", []tar.Header{file("a/x"), file("ab/y"), file("abc")}, false, nil, map[string]string{"a": "dir", "a/x": "evil", "ab": "dir", "ab/y": "evil", "abc": "evil"}},
		{"file below a file", []tar.Header{link("l", "a"), file("a"), file("a/b")}, true, nil, map[string]string{"l": "-> a", "a": "evil"}},
		{"directory over a file", []tar.Header{link("l", "a"), file("a"), {Name: "a/", Typeflag: tar.TypeDir, Mode: 0o755}}, true, nil, map[string]string{"l": "-> a", "a": "evil"}},
		{"file over a directory in use", []tar.Header{link("l", "a"), file("a/b"), file("a")}, true, nil, map[string]string{"l": "-> a", "a": "dir", "a/b": "evil"}},
		{"file over a link", []tar.Header{link("a", "b"), file("a")}, false, nil, map[string]string{"a": "evil"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			outer := t.TempDir()
			must.Do(t, os.WriteFile(filepath.Join(outer, "secret"), []byte("host"), 0o600))
			dir := filepath.Join(outer, "target")
			must.Do(t, os.Mkdir(dir, 0o755))
			var archive bytes.Buffer
			tw := tar.NewWriter(&archive)
			for _, header := range tt.entries {
				must.Do(t, tw.WriteHeader(&header))
				if header.Size > 0 {
					_, err := tw.Write([]byte("evil"))
					must.Do(t, err)
				}
			}
			must.Do(t, tw.Close())
			var skipped []string
			err := into(openRoot(t, dir), func(name, _ string) { skipped = append(skipped, name) }).Unpack(t.Context(), &archive)
			if (err != nil) != tt.wantErr {
				t.Errorf("error %v, want one: %v", err, tt.wantErr)
			}
			if tt.wantErr && tt.entries[0].Typeflag == tar.TypeReg && !strings.Contains(err.Error(), "outside of the target") {
				t.Errorf("error %v, want one that says where the name leads", err)
			}
			if diff := cmp.Diff(tt.skipped, skipped); diff != "" {
				t.Errorf("skipped (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.want, listing(t, dir)); diff != "" {
				t.Errorf("tree (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]string{"secret": "host"}, withoutTarget(listing(t, outer))); diff != "" {
				t.Errorf("outside of the target (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUnpackDeep unpacks a tree that is deeper than the number of directories held open
// at a time, with entries to write on the way down and on the way up again.
func TestUnpackDeep(t *testing.T) {
	t.Parallel()
	const depth = 3*maxOpenDirs + 1
	when := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	var archive bytes.Buffer
	tw := tar.NewWriter(&archive)
	write := func(header tar.Header) {
		t.Helper()
		header.ModTime = when
		must.Do(t, tw.WriteHeader(&header))
	}
	for i := range depth {
		name := strings.Repeat("d/", i+1)
		write(tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o500})
		write(tar.Header{Name: name + "before", Typeflag: tar.TypeReg, Mode: 0o600})
	}
	write(tar.Header{Name: strings.Repeat("d/", depth) + "pipe", Typeflag: tar.TypeFifo})
	for i := range depth {
		write(tar.Header{Name: strings.Repeat("d/", depth-i) + "after", Typeflag: tar.TypeReg, Mode: 0o600})
	}
	must.Do(t, tw.Close())
	dir := t.TempDir()
	most := 0
	u := &Unpacker{Root: openRoot(t, dir), MaxBytes: -1, MaxFiles: -1}
	u.Skipped = func(string, string) { // at the deepest
		for _, dir := range u.path {
			if dir.open != nil {
				most++
			}
		}
	}
	t.Cleanup(func() {
		_ = filepath.WalkDir(dir, func(name string, _ fs.DirEntry, _ error) error { return os.Chmod(name, 0o700) })
	})
	must.Do(t, u.Unpack(t.Context(), &archive))
	for i := range depth {
		at := filepath.Join(dir, strings.Repeat("d/", i+1))
		info, err := os.Stat(at)
		must.Do(t, err)
		if runtime.GOOS != "windows" && info.Mode().Perm() != 0o500 || !info.ModTime().Equal(when) {
			t.Fatalf("directory %d has mode %v and time %v", i, info.Mode(), info.ModTime())
		}
		for _, name := range []string{"before", "after"} {
			if _, err := os.Stat(filepath.Join(at, name)); err != nil {
				t.Error(err)
			}
		}
	}
	if most != maxOpenDirs {
		t.Errorf("%d directories were open at once, want %d", most, maxOpenDirs)
	}
	if n := len(u.path); n != 0 {
		t.Errorf("%d directories are still to be finished, want 0", n)
	}
}

// BenchmarkUnpack unpacks a tree as a sandbox may make it up: each entry is at the end
// of a path of 2,000 parts.
func BenchmarkUnpack(b *testing.B) {
	const depth, entries = 2000, 100
	var archive bytes.Buffer
	tw := tar.NewWriter(&archive)
	for i := range depth {
		must.Do(b, tw.WriteHeader(&tar.Header{Name: strings.Repeat("d/", i+1), Typeflag: tar.TypeDir, Mode: 0o700}))
	}
	for i := range entries {
		must.Do(b, tw.WriteHeader(&tar.Header{Name: strings.Repeat("d/", depth) + fmt.Sprint(i), Typeflag: tar.TypeSymlink, Linkname: "x"}))
	}
	must.Do(b, tw.Close())
	for b.Loop() {
		root, err := os.OpenRoot(b.TempDir())
		must.Do(b, err)
		u := &Unpacker{Root: root, MaxBytes: -1, MaxFiles: -1, Skipped: func(string, string) {}}
		must.Do(b, errors.Join(u.Unpack(b.Context(), bytes.NewReader(archive.Bytes())), root.Close()))
	}
}

func withoutTarget(tree map[string]string) map[string]string {
	for name := range tree {
		if name == "target" || strings.HasPrefix(name, "target"+string(filepath.Separator)) {
			delete(tree, name)
		}
	}
	return tree
}

func TestUnpackBounds(t *testing.T) {
	t.Parallel()
	archive := func(entries ...tar.Header) io.Reader {
		var b bytes.Buffer
		tw := tar.NewWriter(&b)
		for _, header := range entries {
			must.Do(t, tw.WriteHeader(&header))
		}
		_ = tw.Flush() // the content that the header promises is missing
		return &b
	}
	dirs := make([]tar.Header, 101)
	for i := range dirs {
		dirs[i] = tar.Header{Name: "same/", Typeflag: tar.TypeDir}
	}
	for what, r := range map[string]io.Reader{
		"a huge claim":               archive(tar.Header{Name: "huge", Typeflag: tar.TypeReg, Size: 1 << 40}),
		"many entries":               archive(dirs...),
		"many directories in a name": archive(tar.Header{Name: strings.Repeat("d/", 101) + "x", Typeflag: tar.TypeSymlink, Linkname: "y"}),
	} {
		dir := t.TempDir()
		if err := into(openRoot(t, dir), nil).Unpack(t.Context(), r); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: got %v, want ErrTooLarge", what, err)
		}
		if found := listing(t, dir); found["huge"] != "" {
			t.Errorf("%s: something was written: %v", what, found)
		}
	}
	long := archive(tar.Header{Name: strings.Repeat("d/", maxArchiveName), Typeflag: tar.TypeDir})
	if err := into(openRoot(t, t.TempDir()), nil).Unpack(t.Context(), long); err == nil || !strings.Contains(err.Error(), "bound") {
		t.Errorf("a long name: %v, want an error with %q", err, "bound")
	}
	file := archive(tar.Header{Name: "f", Typeflag: tar.TypeReg}, tar.Header{Name: "f/x", Typeflag: tar.TypeReg})
	if err := into(openRoot(t, t.TempDir()), nil).Unpack(t.Context(), file); err == nil || !strings.Contains(err.Error(), "f/x") {
		t.Errorf("a file where a directory is due: %v, want an error with %q", err, "f/x")
	}
}

func FuzzUnpack(f *testing.F) {
	var archive bytes.Buffer
	tw := tar.NewWriter(&archive)
	_ = tw.WriteHeader(&tar.Header{Name: "a/../../b", Typeflag: tar.TypeReg, Size: 1})
	_, _ = tw.Write([]byte("x"))
	_ = tw.Close()
	f.Add(archive.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		outer := t.TempDir()
		dir := filepath.Join(outer, "target")
		must.Do(t, os.Mkdir(dir, 0o755))
		_ = into(openRoot(t, dir), func(string, string) {}).Unpack(t.Context(), bytes.NewReader(data))
		entries, err := os.ReadDir(outer)
		must.Do(t, err)
		if len(entries) != 1 {
			t.Errorf("something was written outside of the target: %v, want only the target", entries)
		}
	})
}
