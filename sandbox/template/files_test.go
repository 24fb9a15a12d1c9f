package template

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
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
		"app/up": "-> ..", "[id]/page": "p", "{x}y": "", "node_modules/m/index.js": "j", "node_modules/keep/k.js": "k",
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
	if err != nil || all[0].name != "." || len(all) != 24 {
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
		if name == "link" && unpack(t, s, files, true)["link"] != "-rw-r--r-- text" {
			t.Errorf("link: got %v", unpack(t, s, files, true))
		}
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
	s := open(t, dir)
	files, err := s.find(".")
	must.Do(t, err)
	want := map[string]string{"./": "drwxr-xr-x", "dir/": "drwxr-xr-x", "dir/one": "-rw-r--r-- text", "dir/two": "-rw-r--r-- dir/one", "other": "-rw-r--r-- text"}
	if diff := cmp.Diff(want, unpack(t, s, files, false)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
