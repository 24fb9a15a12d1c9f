package template

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
)

// tree makes a directory. A text that begins with "-> " makes a symlink.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has neither symlinks for everyone nor modes")
	}
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			must.Do(t, os.Symlink(target, path))
			continue
		}
		must.Do(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return dir
}

func open(t *testing.T, dir string, patterns ...string) *source {
	t.Helper()
	s, err := openSource(dir, "", patterns)
	must.Do(t, err)
	t.Cleanup(s.close)
	return s
}

func namesOf(files []file) []string {
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.name
	}
	return names
}

func TestFind(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{
		"a.txt": "a", "b.txt": "b", ".env": "secret", "link": "-> a.txt", "nowhere": "-> missing", "outside": "-> /etc",
		"app/main.py": "m", "app/.dot": "d", "app/deep/er/x.py": "x", "app/deep/y.txt": "y", "app-data": "sorts before what is in app",
		"app/up": "-> ..", "[id]/page": "p", "{x}y": "", "[x": "", "y?": "", "yz": "", "node_modules/m/index.js": "j", "node_modules/keep/k.js": "k",
	})
	app := []string{"app", "app/.dot", "app/deep", "app/deep/er", "app/deep/er/x.py", "app/deep/y.txt", "app/main.py", "app/up"}
	tests := []struct {
		pattern string
		ignore  []string
		want    []string
		wantErr string
	}{
		{pattern: "a.txt", want: []string{"a.txt"}},
		{pattern: "./a.txt", want: []string{"a.txt"}},
		{pattern: "app/../a.txt", want: []string{"a.txt"}},
		{pattern: "app", want: app},
		{pattern: "app/", want: app},
		{pattern: "*.txt", want: []string{"a.txt", "b.txt"}},
		{pattern: "?.txt", ignore: []string{"b.*"}, want: []string{"a.txt"}},
		{pattern: "[!a].txt", want: []string{"b.txt"}},
		{pattern: "{a,b}.txt", wantErr: "file does not exist"},
		{pattern: "{x}*", want: []string{"{x}y"}},
		{pattern: "app*", want: []string{"app", "app-data", "app/.dot", "app/deep", "app/deep/er", "app/deep/er/x.py", "app/deep/y.txt", "app/main.py", "app/up"}},
		{pattern: "**/*.py", want: []string{"app/deep/er/x.py", "app/main.py"}},
		{pattern: "[id]", wantErr: "it is read as a pattern, which matches nothing"},
		{pattern: "[[]id]", want: []string{"[id]", "[id]/page"}},
		{pattern: "link", want: []string{"link"}},
		{pattern: "nowhere", want: []string{"nowhere"}},
		{pattern: "out*", want: []string{"outside"}},
		{pattern: "node_modules", ignore: []string{"node_modules", "!node_modules/keep"}, wantErr: "everything is ignored"},
		{pattern: "node*/*", ignore: []string{"node_modules", "!node_modules/keep"}, want: []string{"node_modules/keep", "node_modules/keep/k.js"}},
		{pattern: "app", ignore: []string{"**/*.py", "app/deep/er"}, want: []string{"app", "app/.dot", "app/deep", "app/deep/y.txt", "app/up"}},
		{pattern: "app", ignore: []string{"app/deep", "!app/deep/er/x.py"}, want: []string{"app", "app/.dot", "app/deep/er/x.py", "app/main.py", "app/up"}},
		{pattern: "missing", wantErr: "file does not exist"},
		{pattern: "*.none", wantErr: "file does not exist"},
		{pattern: "a.txt", ignore: []string{"*"}, wantErr: "everything is ignored"},
		{pattern: "", wantErr: "the source is empty"},
		{pattern: "/etc/passwd", wantErr: "absolute path"},
		{pattern: "..", wantErr: "leads out"},
		{pattern: "app/../../x", wantErr: "leads out"},
		{pattern: "outside/passwd", wantErr: "escapes"},
		{pattern: "[", wantErr: "syntax error"},
		{pattern: "[x", wantErr: "syntax error"},
		{pattern: "y?", want: []string{"y?", "yz"}},
		{pattern: "a.txt", ignore: []string{"[[:no:]]"}, wantErr: "syntax error"},
		{pattern: "app", ignore: []string{"[[:no:]]"}, wantErr: "syntax error"},
		{pattern: ".", ignore: []string{"[[:no:]]"}, wantErr: "syntax error"},
	}
	for _, test := range tests {
		t.Run(fmt.Sprint(test.pattern, test.ignore), func(t *testing.T) {
			t.Parallel()
			files, err := open(t, dir, test.ignore...).find(test.pattern)
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Errorf("got %v and error %v, want an error with %q", namesOf(files), err, test.wantErr)
				}
				return
			}
			if diff := cmp.Diff(test.want, namesOf(files)); diff != "" || err != nil {
				t.Errorf("error %v, (-want +got):\n%s", err, diff)
			}
		})
	}
	all, err := open(t, dir).find(".")
	if err != nil || all[0].name != "." || len(all) != 27 {
		t.Errorf("everything: got %d files %v and error %v", len(all), namesOf(all), err)
	}
}

// BuildParams.Ignore comes after the file and wins over it.
func TestIgnoreFile(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{".dockerignore": "\ufeff# comment\n*.log\n/build\n", "a.log": "", "keep.log": "", "build/x": "", "c": ""})
	files, err := open(t, dir, "!keep.log", "c").find(".")
	if diff := cmp.Diff([]string{".", ".dockerignore", "keep.log"}, namesOf(files)); diff != "" || err != nil {
		t.Errorf("error %v, (-want +got):\n%s", err, diff)
	}
	for _, bad := range []string{"[", "!"} {
		if s, err := openSource(dir, "", []string{bad}); err == nil {
			s.close()
			t.Errorf("pattern %q: got no error", bad)
		}
	}
	long := filepath.Join(t.TempDir(), "long")
	must.Do(t, os.WriteFile(long, bytes.Repeat([]byte("x"), 1<<17), 0o600))
	if _, err := openSource(dir, long, nil); !errors.Is(err, bufio.ErrTooLong) || !strings.Contains(err.Error(), "read "+long) {
		t.Errorf("an ignore file with a long line: got error %v", err)
	}
	if s, err := openSource(tree(t, map[string]string{".dockerignore": "-> /etc/hostname"}), "", nil); err == nil {
		s.close()
		t.Error("an ignore file outside of the directory: got no error")
	}
	if _, err := openSource(filepath.Join(dir, "missing"), "", nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that is not there: got %v", err)
	}
}

// A socket, which a running program leaves, is skipped with a notice.
func TestCopyOnlyFiles(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"a": "a", ".git/index": "i"})
	for _, name := range []string{"socket", ".git/ipc"} {
		socket, err := net.Listen("unix", filepath.Join(dir, name))
		must.Do(t, err)
		defer socket.Close()
	}
	f := &fake{states: []api.BuildState{{Status: api.BuildReady}}}
	var log []string
	params := &BuildParams{Dir: dir, Log: func(e api.BuildLogEntry) { log = append(log, fmt.Sprint(e.Level, " ", e.Message)) }}
	if _, err := Start(t.Context(), f.templates(t), "x", FromBase().Copy(".", "/x", nil), params); err != nil {
		t.Fatal(err)
	}
	want := []string{"warn .git/ipc is not copied: it is a socket or a pipe", "warn socket is not copied: it is a socket or a pipe"}
	if len(log) < 2 || !slices.Equal(log[:2], want) {
		t.Errorf("log: got %q, want it to begin with %q", log, want)
	}
	if _, err := open(t, dir).find("socket"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a socket by its name: got %v, want fs.ErrNotExist", err)
	}
	ignoring := open(t, dir, "socket", ".git")
	if files, err := ignoring.find("."); err != nil || len(files) != 2 || len(ignoring.notes) != 0 {
		t.Errorf("sockets that are ignored: got %v, %v and the notes %v", namesOf(files), err, ignoring.notes)
	}
}

func stepOf(source, target string) step {
	return step{BuildStep: api.BuildStep{Type: "COPY", Args: []string{source, target, "", ""}}, copy: &CopyParams{}}
}

// The hashes come from E2B's builder for Python, 2.63.0; internal/interop compares with
// the one that is installed.
func TestDigest(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"a.txt": "a", "dir/x": "x", "dir/link": "-> x"})
	for _, dir := range []string{filepath.Join(dir, "dir"), dir} {
		must.Do(t, os.Chmod(dir, 0o755))
	}
	for pattern, want := range map[string]string{"a.txt": "dde18fa036c2acb30bd54f92ca3be9be8257abcd25b9a5620dd53e0ad1e1ea72", "dir": "2a1f0acc4f314bcb6da18d6794f4aee434065f29491db4e9357cf3bda8f4cc79", ".": "e8e48178d027e770400c252cc9eea18b2308324cd7b25885bd7ed9bb6d957e60"} {
		s := open(t, dir)
		files, err := s.find(pattern)
		must.Do(t, err)
		if got, err := s.digest(t.Context(), stepOf(pattern, "/app"), files); got != want || err != nil {
			t.Errorf("%s: got %s and error %v, want %s", pattern, got, err, want)
		}
	}
}

func TestFollowLinks(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{
		"a": "text", "link": "-> a", "nowhere": "-> missing", "dir/x": "x", "todir": "-> dir", "out": "-> ../../etc/hostname",
	})
	s := open(t, dir)
	for name, want := range map[string]string{"link": "<nil>", "nowhere": "<nil>", "todir": "leads to a directory", "out": "escapes"} {
		files, err := s.find(name)
		must.Do(t, err)
		files, err = s.resolve(files, true)
		if got := fmt.Sprint(err); !strings.Contains(got, want) {
			t.Errorf("%s: got error %s, want one with %q", name, got, want)
		}
		packed := map[string]string{"link": "-rw-r--r-- text", "nowhere": "Lrwxrwxrwx missing"}[name]
		if packed != "" && unpack(t, s, files, true)[name] != packed {
			t.Errorf("%s: got %v, want %s", name, unpack(t, s, files, true), packed)
		}
	}
	// A file and the symlink to it become two files.
	files, err := s.find("[al]*")
	must.Do(t, err)
	files, err = s.resolve(files, true)
	must.Do(t, err)
	if diff := cmp.Diff(map[string]string{"a": "-rw-r--r-- text", "link": "-rw-r--r-- text"}, unpack(t, s, files, false)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// unpack packs files and returns the content of the archive.
func unpack(t *testing.T, s *source, files []file, compressed bool) map[string]string {
	t.Helper()
	archive, err := s.pack(t.Context(), files, compressed)
	must.Do(t, err)
	packed, err := io.ReadAll(archive)
	if err != nil || int64(len(packed)) != archive.size {
		t.Fatalf("read %d bytes of %d: %v", len(packed), archive.size, err)
	}
	must.Do(t, archive.Close())
	if _, err := os.Stat(archive.Name()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the temporary file is still there: %v", err)
	}
	var r io.Reader = bytes.NewReader(packed)
	if compressed {
		r, err = gzip.NewReader(r)
		must.Do(t, err)
	}
	found := map[string]string{}
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		must.Do(t, err)
		if header.Uid != 0 || header.Gid != 0 || header.Uname+header.Gname != "" {
			t.Errorf("%s belongs to %d:%d %s:%s", header.Name, header.Uid, header.Gid, header.Uname, header.Gname)
		}
		text, err := io.ReadAll(archive)
		must.Do(t, err)
		found[header.Name] = strings.TrimSpace(fmt.Sprint(header.FileInfo().Mode(), " ", string(text), header.Linkname))
	}
}

func TestPack(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"app/run": "#!", "app/link": "-> run", "app/dir/empty": ""})
	must.Do(t, os.Chmod(filepath.Join(dir, "app/run"), 0o750))
	s := open(t, dir)
	files, err := s.find("app")
	must.Do(t, err)
	want := map[string]string{
		"app/": "drwxr-xr-x", "app/run": "-rwxr-x--- #!", "app/link": "Lrwxrwxrwx run", "app/dir/": "drwxr-xr-x", "app/dir/empty": "-rw-r--r--",
	}
	for _, compressed := range []bool{true, false} {
		if diff := cmp.Diff(want, unpack(t, s, files, compressed)); diff != "" {
			t.Errorf("compressed %v (-want +got):\n%s", compressed, diff)
		}
	}
	for _, size := range []string{"", "much longer"} {
		must.Do(t, os.WriteFile(filepath.Join(dir, "app/run"), []byte(size), 0o600))
		if _, err := s.pack(t.Context(), files, true); err == nil || !strings.Contains(err.Error(), "pack app/run: it changed while it was read") {
			t.Errorf("a file that has %q now: got %v", size, err)
		}
	}
}

// TestFilesThatGo checks that files which can no longer be read, and a build that is given up, are errors, and that
// no archive of them is left.
func TestFilesThatGo(t *testing.T) {
	dir, temporary := tree(t, map[string]string{"file": "text", "link": "-> file"}), t.TempDir()
	t.Setenv("TMPDIR", temporary)
	s := open(t, dir)
	for _, name := range []string{"file", "link"} {
		files, err := s.find(name)
		must.Do(t, err)
		gone, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("the user has gone")
		cancel(cause)
		for what, ctx := range map[string]context.Context{"given up": gone, "gone": t.Context()} {
			want, text := cause, ""
			if what == "gone" {
				want, text = fs.ErrNotExist, name+": "
				must.Do(t, os.Rename(filepath.Join(dir, name), filepath.Join(dir, "away")))
			}
			for _, compressed := range []bool{true, false} {
				if _, err := s.pack(ctx, files, compressed); !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
					t.Errorf("an archive of a %s, %s: got error %v, want %v", name, what, err, want)
				}
			}
			if sum, err := s.digest(ctx, stepOf(name, "/x"), files); sum != "" || !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
				t.Errorf("the hash of a %s, %s: got %s and error %v, want %v", name, what, sum, err, want)
			}
			if what == "gone" {
				must.Do(t, os.Rename(filepath.Join(dir, "away"), filepath.Join(dir, name)))
			}
		}
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("%v are left, error %v", left, err)
	}
	if _, err := os.Stat("/dev/null"); err == nil {
		if _, err := open(t, "/dev").find("null"); err == nil || !strings.Contains(err.Error(), "null is neither a file nor a directory nor a symlink") {
			t.Errorf("a device: got error %v", err)
		}
	}
}

// TestDockerignore checks that the same files are left out for .dockerignore as by Docker. The
// first cases are those of its documentation.
func TestDockerignore(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{
		"README.md": "r", "README-secret.md": "s", "a.md": "a", "temp": "t", "tempb": "t", "dir/temporary.txt": "t", "dir/sub/tempa": "t", "dir/x.md": "x",
		"Dockerfile": "d", "#odd": "o", "sp ace": "s",
	})
	all := []string{"#odd", "Dockerfile", "README-secret.md", "README.md", "a.md", "dir/sub/tempa", "dir/temporary.txt", "dir/x.md", "sp ace", "temp", "tempb"}
	for text, left := range map[string]string{
		"":                                    "",
		"# a comment\n\n   \n":                "",
		"*/temp*":                             "dir/temporary.txt",
		"*/*/temp*":                           "dir/sub/tempa",
		"temp?":                               "tempb",
		"*.md\n!README.md":                    "README-secret.md a.md",
		"*.md\n!README*.md\nREADME-secret.md": "README-secret.md a.md",
		"*.md\nREADME-secret.md\n!README*.md": "a.md",
		"**/*.md":                             "README-secret.md README.md a.md dir/x.md",
		"/temp":                               "temp",
		"  temp  \r\ntempb\r":                 "temp tempb",
		"./dir/../temp":                       "temp",
		"dir/":                                "dir/sub/tempa dir/temporary.txt dir/x.md",
		"dir\n!dir/x.md":                      "dir/sub/tempa dir/temporary.txt",
		"dir/*\n!dir/sub":                     "dir/temporary.txt dir/x.md",
		"sp ace":                              "sp ace",
		"\\#odd":                              "#odd",
		"*\n!a.md":                            "#odd Dockerfile README-secret.md README.md dir/sub/tempa dir/temporary.txt dir/x.md sp|ace temp tempb",
		"\ufefftemp":                          "temp",
	} {
		path := filepath.Join(t.TempDir(), "ignored")
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		s, err := openSource(dir, path, nil)
		must.Do(t, err)
		t.Cleanup(s.close)
		files, err := s.find(".")
		must.Do(t, err)
		var got []string
		for _, f := range files {
			if !f.info.IsDir() {
				got = append(got, f.name)
			}
		}
		out := strings.Split(left, " ")
		if left == "sp ace" {
			out = []string{left}
		}
		want := slices.DeleteFunc(slices.Clone(all), func(name string) bool {
			return slices.Contains(out, name) || slices.Contains(out, strings.ReplaceAll(name, " ", "|"))
		})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
	if _, err := openSource(dir, filepath.Join(dir, "none"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: got %v, want fs.ErrNotExist", err)
	}
	if _, err := openSource(dir, "", []string{"["}); err == nil || !strings.Contains(err.Error(), "the patterns of files to leave out") {
		t.Errorf("a bad pattern: got %v, want an error", err)
	}
}

// Names of one file stay names of one file, as in Docker.
func TestPackHardLinks(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"dir/one": "text", "other": "text"})
	must.Do(t, os.Link(filepath.Join(dir, "dir/one"), filepath.Join(dir, "dir/two")))
	must.Do(t, os.Symlink("one", filepath.Join(dir, "dir/link")))
	must.Do(t, os.Link(filepath.Join(dir, "dir/link"), filepath.Join(dir, "dir/link2")))
	s := open(t, dir)
	files, err := s.find(".")
	must.Do(t, err)
	want := map[string]string{"./": "drwxr-xr-x", "dir/": "drwxr-xr-x", "dir/one": "-rw-r--r-- text", "dir/two": "-rw-r--r-- dir/one", "other": "-rw-r--r-- text", "dir/link": "Lrwxrwxrwx one", "dir/link2": "Lrwxrwxrwx one"}
	if diff := cmp.Diff(want, unpack(t, s, files, false)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDigestOfALink checks that the hash of a symlink covers its target's name alone.
func TestDigestOfALink(t *testing.T) {
	t.Parallel()
	s := open(t, tree(t, map[string]string{"link": "-> file", "file": "text"}))
	files, err := s.find("link")
	must.Do(t, err)
	want := fmt.Sprintf("%x", sha256.Sum256([]byte("COPY link /xlink"+strconv.Itoa(0o120777)+"4file")))
	if got, err := s.digest(t.Context(), stepOf("link", "/x"), files); got != want || err != nil {
		t.Errorf("got %s and error %v, want %s", got, err, want)
	}
}

// broken is a file system in which one directory cannot be read, one file cannot be examined, and one is a device.
type broken struct {
	fs.FS

	dir, file, device string
}

var errBroken = errors.New("the disk is broken")

func (b broken) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(b.FS, name)
	if name == b.dir {
		err = errBroken
	}
	for i, e := range entries {
		entries[i] = brokenEntry{e, e.Name() == b.file, e.Name() == b.device}
	}
	return entries, err
}

type brokenEntry struct {
	fs.DirEntry

	fails, device bool
}

func (e brokenEntry) Info() (fs.FileInfo, error) {
	switch {
	case e.fails:
		return nil, errBroken
	case e.device:
		return fs.Stat(fstest.MapFS{"device": {Mode: fs.ModeDevice}}, "device")
	}
	return e.DirEntry.Info()
}

// TestBrokenDirectory checks that each error while a directory is read ends a copy, and that a part which
// is not copied does not matter.
func TestBrokenDirectory(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"a": "a", "app/b": "b", "app/deep/c": "c"})
	for _, tt := range []struct {
		of   broken
		want string
	}{
		{broken{dir: "."}, errBroken.Error()}, {broken{dir: "app"}, errBroken.Error()}, {broken{dir: "app/deep"}, errBroken.Error()}, {broken{dir: "other"}, ""},
		{broken{file: "a"}, errBroken.Error()}, {broken{file: "c"}, errBroken.Error()}, {broken{file: "other"}, ""},
		{broken{device: "a"}, "a is neither a file"}, {broken{device: "c"}, "app/deep/c is neither a file"},
	} {
		s := open(t, dir, "other")
		tt.of.FS = s.fsys
		s.fsys = tt.of
		files, err := s.find(".")
		if tt.want == "" && (err != nil || len(files) != 6) {
			t.Errorf("%+v: got %v and error %v, want six files", tt.of, namesOf(files), err)
		}
		if tt.want == "" {
			continue
		}
		if err == nil || files != nil || !strings.HasPrefix(err.Error(), `copy ".": `) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: got %v and error %v, want an error with %q", tt.of, namesOf(files), err, tt.want)
		}
	}
	w := walk{source: open(t, dir), found: map[string]file{}}
	if err := w.add("none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: got error %v", err)
	}
}

// TestWalkedOnce checks that the content of a directory that was added is not read again.
func TestWalkedOnce(t *testing.T) {
	t.Parallel()
	w := walk{source: open(t, tree(t, map[string]string{"app/deep/a": "", "app-data": ""})), found: map[string]file{}}
	must.Do(t, w.add("app"))
	w.fsys = broken{FS: w.fsys, dir: "app/deep"}
	must.Do(t, w.add("app/deep"))
	delete(w.found, "app/deep/a")
	must.Do(t, w.add("app/deep/a"))
	must.Do(t, w.add("app-data"))
	if diff := cmp.Diff([]string{"app", "app-data", "app/deep"}, slices.Sorted(maps.Keys(w.found))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"app"}, w.walked); diff != "" {
		t.Errorf("directories (-want +got):\n%s", diff)
	}
	w = walk{source: w.source, found: map[string]file{}, walked: []string{"."}}
	must.Do(t, w.add("app-data"))
	if len(w.found) != 0 {
		t.Errorf("got %v again", w.found)
	}
	for name, want := range map[string]int{".": 0, "a": 1, "a/b": 2, "a/b/c": 3} {
		if got := depth(name); got != want {
			t.Errorf("%s: got the depth %d, want %d", name, got, want)
		}
	}
}

// failing is a hash and a writer whose nth write fails, counted from 0.
type failing struct {
	hash.Hash

	left int
}

func (f *failing) Write(p []byte) (int, error) {
	if f.left--; f.left < 0 {
		return 0, errBroken
	}
	return len(p), nil
}

// TestFailedWrites checks that a write that fails ends the hash and the archive of each kind of file.
func TestFailedWrites(t *testing.T) {
	t.Parallel()
	s := open(t, tree(t, map[string]string{"dir/file": "text", "empty": "", "link": "-> empty"}))
	for name, writes := range map[string]int{"dir": 1, "dir/file": 2, "empty": 1, "link": 1} {
		info, err := s.root.Lstat(name)
		must.Do(t, err)
		f := file{name: name, info: info}
		for n := range writes + 1 {
			if err := s.digestFile(&failing{left: n}, f); errors.Is(err, errBroken) != (n < writes) {
				t.Errorf("%s, write %d of the hash fails: got error %v", name, n, err)
			}
		}
		for _, compressed := range []bool{true, false} {
			if err := s.packInto(t.Context(), &failing{}, []file{f}, compressed); !errors.Is(err, errBroken) {
				t.Errorf("%s, compressed %v: got error %v", name, compressed, err)
			}
		}
		if err := s.tar(t.Context(), &failing{}, []file{f}); err == nil || !strings.Contains(err.Error(), "pack "+name+": ") {
			t.Errorf("%s: got error %v, want one with its name", name, err)
		}
	}
	socket, err := fs.Stat(fstest.MapFS{"s": {Mode: fs.ModeSocket}}, "s")
	must.Do(t, err)
	if err := s.tar(t.Context(), io.Discard, []file{{name: "s", info: socket}}); err == nil || !strings.Contains(err.Error(), "pack s: ") {
		t.Errorf("a socket: got error %v", err)
	}
	regular, err := fs.Stat(fstest.MapFS{"f": {}}, "f")
	must.Do(t, err)
	if of, several := inodeOf(regular); several || of != (inode{}) {
		t.Errorf("a file that is not on a disk: got the inode %v", of)
	}
}
