package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/envd/envdtest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// newReal returns a sandbox with a real daemon, whose files are those of this machine, and the homes of its users
// "user" and "me". refuse returns true for a request that the daemon must not get; nil refuses none.
func newReal(t *testing.T, refuse func(r *http.Request) bool) (sb *Sandbox, home, mine string) {
	t.Helper()
	home, mine = t.TempDir(), t.TempDir()
	daemon := envdtest.Start(t, "", envdtest.User{Name: "user", Home: home}, envdtest.User{Name: "me", Home: mine})
	s := newService(t)
	s.raw = func(w http.ResponseWriter, r *http.Request) bool {
		if refuse != nil && refuse(r) {
			w.WriteHeader(http.StatusForbidden)
			return true
		}
		daemon.ServeHTTP(w, r)
		return true
	}
	return s.sandbox(), home, mine
}

// put makes files below a directory, by their names. A name that ends in a slash is a directory.
func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		at := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			must.Do(t, os.MkdirAll(at, 0o755))
			continue
		}
		must.Do(t, os.MkdirAll(filepath.Dir(at), 0o755))
		must.Do(t, os.WriteFile(at, []byte(text), 0o644))
	}
}

// TestFS checks the files of a sandbox by the rules of [fs.FS], and their descriptions.
func TestFS(t *testing.T) {
	t.Parallel()
	sb, home, _ := newReal(t, nil)
	put(t, home, map[string]string{"root/a": "text a", "root/d/b": "b", "root/empty/": "", "outside": "out"})
	must.Do(t, os.Chtimes(filepath.Join(home, "root/a"), time.Unix(1, 0), time.Unix(1_000_000_000, 0)))
	ctx := patience.Context(t)
	must.Do(t, fstest.TestFS(sb.Files.FS(ctx, "root"), "a", "d", "d/b", "empty"))
	must.Do(t, fstest.TestFS(sb.Files.FS(ctx, filepath.Join(home, "root", "d")), "b"))
	for name, target := range map[string]string{"file": "a", "dir": "d", "out": "../outside", "broken": "nowhere"} {
		must.Do(t, os.Symlink(target, filepath.Join(home, "root", name)))
	}
	files := sb.Files.FS(ctx, "root")
	for name, want := range map[string]fs.FileMode{"a": 0o644, "d": fs.ModeDir | 0o755, "file": 0o644, "dir": fs.ModeDir | 0o755, "out": 0o644, ".": fs.ModeDir | 0o755} {
		if info, err := fs.Stat(files, name); err != nil || info.Mode() != want || info.Name() != filepath.Base(name) {
			t.Errorf("Stat of %s: got %v and error %v, want %v", name, info, err, want)
		}
	}
	info, err := fs.Lstat(files, "file")
	if err != nil || info.Mode().Type() != fs.ModeSymlink {
		t.Errorf("Lstat of a link: got %v and error %v", info, err)
	}
	if info, err = fs.Stat(files, "a"); err != nil || info.Size() != 6 || info.ModTime().Unix() != 1_000_000_000 {
		t.Errorf("Stat of a file: got %v and error %v, want its size and time", info, err)
	}
	if about, ok := info.Sys().(*FileInfo); !ok || about.Path != filepath.Join(home, "root", "a") {
		t.Errorf("Sys is %+v, want the description by the sandbox", info.Sys())
	}
	for name, want := range map[string]string{"file": "root/a", "dir": "root/d", "out": "outside"} {
		if target, err := fs.ReadLink(files, name); err != nil || target != filepath.Join(home, want) {
			t.Errorf("ReadLink of %s: got %q and error %v, want that of %s", name, target, err, want)
		}
	}
	below, err := fs.Sub(files, "d")
	must.Do(t, err)
	for name, tt := range map[string]struct {
		of   fs.FS
		want string
	}{"a": {files, "text a"}, "file": {files, "text a"}, "out": {files, "out"}, "dir/b": {files, "b"}, "b": {below, "b"}} {
		if text, err := fs.ReadFile(tt.of, name); err != nil || string(text) != tt.want {
			t.Errorf("ReadFile of %s: got %q and error %v, want %q", name, text, err, tt.want)
		}
	}
}

// TestFSFails checks that each call of a file system returns an error with the name that the caller gave.
func TestFSFails(t *testing.T) {
	t.Parallel()
	refused := ""
	sb, home, _ := newReal(t, func(r *http.Request) bool { return refused != "" && strings.HasSuffix(r.URL.Path, refused) })
	put(t, home, map[string]string{"a": "a", "d/b": "b"})
	must.Do(t, os.Symlink("nowhere", filepath.Join(home, "broken")))
	files := sb.Files.FS(patience.Context(t), "")
	calls := map[string]func(name string) error{
		"open": func(name string) error {
			f, err := files.Open(name)
			if err == nil {
				err = f.Close()
			}
			return err
		},
		"stat":  func(name string) error { return second(fs.Stat(files, name)) },
		"lstat": func(name string) error { return second(fs.Lstat(files, name)) }, "readlink": func(name string) error { return second(fs.ReadLink(files, name)) },
		"readfile": func(name string) error { return second(fs.ReadFile(files, name)) }, "readdir": func(name string) error { return second(fs.ReadDir(files, name)) },
		"sub": func(name string) error { return second(fs.Sub(files, name)) },
	}
	for op, call := range calls {
		for name, want := range map[string]error{"../x": fs.ErrInvalid, "/a": fs.ErrInvalid, "gone": fs.ErrNotExist, "broken": fs.ErrNotExist, "a": nil} {
			switch {
			case op == "sub" && !errors.Is(want, fs.ErrInvalid), op == "lstat" && name == "broken", op == "readlink" && name == "broken":
				want = nil
			case op == "readlink" && name == "a":
				want = fs.ErrInvalid
			case op == "readdir" && name == "a":
				continue
			}
			err := call(name)
			path, ok := errors.AsType[*fs.PathError](err)
			named := ok && path.Path == name && path.Op == op
			if !errors.Is(err, want) || named != (want != nil) {
				t.Errorf("%s of %s: got %v, want %v of that call and name", op, name, err, want)
			}
		}
	}
	d, err := files.Open("d")
	must.Do(t, err)
	if _, err := d.Read(nil); err == nil {
		t.Error("a directory can be read as a file")
	}
	for refused = range map[string]bool{"Stat": true, "ListDir": true, "/files": true} {
		for op, call := range calls {
			name := map[string]string{"readdir": "d"}[op]
			if name == "" {
				name = "a"
			}
			needs := map[string][]string{"open": {"Stat", "/files"}, "stat": {"Stat"}, "lstat": {"Stat"}, "readlink": {"Stat"}, "readfile": {"/files"}, "readdir": {"ListDir"}}[op]
			err := call(name)
			path, named := errors.AsType[*fs.PathError](err)
			fails := slices.Contains(needs, refused) || op == "readlink" // of a file
			if (err != nil) != fails || err != nil && (!named || path.Path != name) {
				t.Errorf("%s, %s refused: got %v, want an error: %v", op, refused, err, slices.Contains(needs, refused))
			}
		}
	}
}

// TestChangesOfFiles checks the calls that change files, as the user of the call.
func TestChangesOfFiles(t *testing.T) {
	t.Parallel()
	sb, _, mine := newReal(t, nil)
	ctx, me := patience.Context(t), &PathParams{User: "me"}
	f := sb.Files
	must.Do(t, f.MakeDir(ctx, "d/in", me))
	must.Do(t, f.MakeDir(ctx, "d/in", me)) // it is there
	must.Do(t, f.WriteText(ctx, "d/a", "text", &FileParams{User: "me"}))
	must.Do(t, f.Rename(ctx, "d/a", "new/b", me))
	infos, err := f.List(ctx, ".", &ListFilesParams{User: "me", MaxDepth: math.MaxInt})
	must.Do(t, err)
	var got []string
	for _, i := range infos {
		path, _ := filepath.Rel(mine, i.Path)
		got = append(got, path+" "+string(i.Type)+map[bool]string{true: "/", false: ""}[i.IsDir()])
	}
	if diff := cmp.Diff([]string{"d dir/", "d/in dir/", "new dir/", "new/b file"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	must.Do(t, f.Remove(ctx, "new", me))
	must.Do(t, f.Remove(ctx, "new", me)) // it is gone
	if found, err := f.Exists(ctx, "new/b", me); found || err != nil {
		t.Errorf("got %v and error %v, want it to be gone", found, err)
	}
	for what, err := range map[string]error{
		"list": second(f.List(ctx, "d", &ListFilesParams{MaxDepth: -1})), "list a path": second(f.List(ctx, "a\x00", nil)), "rename": f.Rename(ctx, "d", "a\x00", me),
		"rename from": f.Rename(ctx, "a\x00", "d", me), "remove": f.Remove(ctx, "a\x00", me), "mkdir": f.MakeDir(ctx, "a\x00", me), "stat": second(f.Stat(ctx, "a\x00", me)),
	} {
		if !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%s: got %v, want %v", what, err, fs.ErrInvalid)
		}
	}
	for what, err := range map[string]error{
		"list": second(f.List(ctx, "gone", nil)), "rename": f.Rename(ctx, "gone", "x", me), "stat": second(f.Stat(ctx, "gone", me)),
	} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %v, want %v", what, err, fs.ErrNotExist)
		}
	}
}

// TestCopyFS checks what CopyFS copies, that it replaces nothing, and that it leaves no archive behind, whatever fails.
func TestCopyFS(t *testing.T) {
	t.Parallel()
	var refused atomic.Value // removals go on in the background
	sb, home, _ := newReal(t, func(r *http.Request) bool { path, _ := refused.Load().(string); return path == r.URL.Path })
	ctx := patience.Context(t)
	source := fstest.MapFS{"a": {Data: []byte("new"), Mode: 0o600}, "d/b": {Data: []byte("b"), Mode: 0o755}}
	must.Do(t, sb.Files.CopyFS(ctx, source, "to/here"))
	must.Do(t, os.WriteFile(filepath.Join(home, "to/here/a"), []byte("own"), 0o600))
	must.Do(t, os.Remove(filepath.Join(home, "to/here/d/b")))
	must.Is(t, sb.Files.CopyFS(ctx, source, "to/here"), fs.ErrExist)
	for name, want := range map[string]string{"a": "own", "d/b": "b"} {
		if text, err := os.ReadFile(filepath.Join(home, "to/here", name)); err != nil || string(text) != want {
			t.Errorf("%s: got %q and error %v, want %q", name, text, err, want)
		}
	}
	if info, err := os.Stat(filepath.Join(home, "to/here/d/b")); err != nil || info.Mode()&0o111 == 0 {
		t.Errorf("got %v and error %v, want it executable", info, err)
	}
	broken := fstest.MapFS{"a": {Mode: fs.ModeDevice}}
	err := sb.Files.CopyFS(ctx, broken, "broken")
	if path, ok := errors.AsType[*fs.PathError](err); !errors.Is(err, fs.ErrInvalid) || !ok || path.Op != "copy" {
		t.Errorf("a device: got %v, want %v", err, fs.ErrInvalid)
	}
	exit, ok := errors.AsType[*ExitError](sb.Files.CopyFS(ctx, source, "to/here/a"))
	if !ok || exit.Result.ExitCode == 0 {
		t.Errorf("into a file: got %v, want the failure of the command", exit)
	}
	for _, path := range []string{"/files", "/process.Process/Start"} {
		refused.Store(path)
		if err := sb.Files.CopyFS(ctx, source, "refused"); err == nil {
			t.Errorf("%s refused: no error", path)
		}
	}
	patience.Until(t, "no archive is left", func() bool {
		left, err := filepath.Glob(filepath.Join(home, ".e2bctl-*"))
		return err == nil && len(left) == 0
	})
	for _, name := range []string{"broken", "refused"} {
		if _, err := os.Stat(filepath.Join(home, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got error %v, want nothing to be made", name, err)
		}
	}
}

// TestOutputs checks the calls that return the output of a program, and which words a program gets.
func TestOutputs(t *testing.T) {
	t.Parallel()
	sb, home, mine := newReal(t, nil)
	ctx := patience.Context(t)
	line := func(text string) []string { return []string{"-c", text} }
	for name, tt := range map[string]struct {
		do   func(context.Context, string, []string, *CommandParams) ([]byte, error)
		line string
		p    *CommandParams
		want string
	}{
		"output":         {sb.Commands.Output, "echo out; echo err >&2", nil, "out\n"},
		"combined":       {sb.Commands.CombinedOutput, "echo err >&2", nil, "err\n"},
		"at home":        {sb.Commands.Output, "pwd", nil, home + "\n"},
		"of both, out":   {sb.Commands.CombinedOutput, "echo out", nil, "out\n"},
		"as a user":      {sb.Commands.Output, "pwd", &CommandParams{User: "me"}, mine + "\n"},
		"in a directory": {sb.Commands.Output, "pwd", &CommandParams{Cwd: mine}, mine + "\n"},
		"as long as may": {sb.Commands.Output, "printf 12345", &CommandParams{MaxOutputBytes: 5}, "12345"},
		"with variables": {sb.Commands.Output, "echo $A", &CommandParams{Envs: map[string]string{"A": "b"}}, "b\n"},
	} {
		if got, err := tt.do(ctx, "/bin/sh", line(tt.line), tt.p); err != nil || string(got) != tt.want {
			t.Errorf("%s: got %q and error %v, want %q", name, got, err, tt.want)
		}
	}
	long := strings.Repeat("\xff\n", 40_000)
	words := []string{"", " ", "a b", "\xff\xfe", `\`, `\0101`, "+", ".", "\n", long}
	got, err := sb.Commands.Output(ctx, "/bin/sh", append([]string{"-c", `printf '%s|' "$@"`, "sh"}, words...), nil)
	if want := strings.Join(words, "|") + "|"; err != nil || string(got) != want {
		t.Errorf("got %d bytes and error %v, want the words of %d", len(got), err, len(want))
	}
	for name, tt := range map[string]struct {
		err  error
		want error
	}{
		"one byte too many": {second(sb.Commands.Output(ctx, "/bin/sh", line("printf 123456"), &CommandParams{MaxOutputBytes: 5})), ErrTooLarge},
		"no name":           {second(sb.Commands.Output(ctx, "", nil, nil)), ErrInvalidArgument},
		"a NUL":             {second(sb.Commands.Output(ctx, "echo", []string{"a\x00"}, nil)), ErrInvalidArgument},
		"its own Stdout":    {second(sb.Commands.Output(ctx, "echo", nil, &CommandParams{Stdout: new(strings.Builder)})), ErrInvalidArgument},
		"its own Stderr":    {second(sb.Commands.CombinedOutput(ctx, "echo", nil, &CommandParams{Stderr: new(strings.Builder)})), ErrInvalidArgument},
		"a negative bound":  {second(sb.Commands.Output(ctx, "echo", nil, &CommandParams{MaxOutputBytes: -1})), ErrInvalidArgument},
	} {
		if !errors.Is(tt.err, tt.want) {
			t.Errorf("%s: got %v, want %v", name, tt.err, tt.want)
		}
	}
}
