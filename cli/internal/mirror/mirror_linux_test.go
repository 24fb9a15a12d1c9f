package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/envd/envdtest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
)

// newSandbox returns a sandbox that is a directory of this machine, the home of its user "me". programs is
// the directory of its programs; "" means those of this machine. started is called with the request to start
// a program, before the program starts; nil means no call.
func newSandbox(t *testing.T, programs string, started func(request []byte)) (sb *sandbox.Sandbox, home string) {
	t.Helper()
	home = t.TempDir()
	path := strings.TrimPrefix(programs+":"+os.Getenv("PATH"), ":")
	daemon := envdtest.Start(t, path, envdtest.User{Name: "user", Home: t.TempDir()}, envdtest.User{Name: "me", Home: home})
	url := envdtest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		if started != nil && strings.HasSuffix(r.URL.Path, "/Start") {
			body, _ := io.ReadAll(r.Body)
			started(body)
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		daemon.ServeHTTP(w, r)
	})
	client, err := sandbox.NewClient(sandbox.WithAPIKey("e2b_00000000"), sandbox.WithAPIURL(url), sandbox.WithSandboxURL(url), sandbox.WithEnvFile(""), sandbox.WithMaxRetries(0))
	must.Do(t, err)
	t.Cleanup(func() { _ = client.Close() })
	sb, err = client.Create(t.Context())
	must.Do(t, err)
	t.Cleanup(func() { _ = sb.Close() })
	return sb, home
}

// content returns what is below a directory by name: kinds, modes, times, texts and targets.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	must.Do(t, filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, at)
		if err != nil || name == "." {
			return err
		}
		info, err := d.Info()
		must.Do(t, err)
		switch info.Mode().Type() {
		case fs.ModeDir:
			all[name] = info.Mode().String()
		case fs.ModeSymlink:
			all[name], err = os.Readlink(at)
			all[name] = "to " + all[name]
		case 0:
			var text []byte
			text, err = os.ReadFile(at)
			all[name] = fmt.Sprint(info.Mode(), " ", info.ModTime().UTC().Format(time.RFC3339Nano), " ", string(text))
		default:
			all[name] = info.Mode().Type().String()
		}
		return err
	}))
	return all
}

// makeContent makes the entries of a result of content, in the order of their names.
func makeContent(t *testing.T, dir string, all map[string]string) {
	t.Helper()
	var dirs []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		at, what := filepath.Join(dir, name), all[name]
		switch {
		case strings.HasPrefix(what, "d"):
			must.Do(t, os.Mkdir(at, 0o700))
			dirs = append(dirs, name)
		case strings.HasPrefix(what, "to "):
			must.Do(t, os.Symlink(strings.TrimPrefix(what, "to "), at))
		case what == "p---------":
			must.Do(t, syscall.Mkfifo(at, 0o600))
		default:
			parts := strings.SplitN(what, " ", 3)
			stamp, err := time.Parse(time.RFC3339Nano, parts[1])
			must.Do(t, err)
			must.Do(t, os.WriteFile(at, []byte(parts[2]), 0o600))
			must.Do(t, os.Chtimes(at, stamp, stamp))
			must.Do(t, os.Chmod(at, modeOf(parts[0])))
		}
	}
	for _, name := range slices.Backward(dirs) {
		must.Do(t, os.Chmod(filepath.Join(dir, name), modeOf(all[name][1:])))
	}
}

// modeOf returns the permissions that a text such as "-rw-r-----" means.
func modeOf(text string) (mode fs.FileMode) {
	for _, c := range text[len(text)-9:] {
		if mode <<= 1; c != '-' {
			mode |= 1
		}
	}
	return mode
}

const early, late = " 2001-02-03T04:05:06.789Z ", " 2020-02-03T04:05:06.789Z "

// TestOnce makes a directory equal to another, in both directions: what is sent, what is removed, what stays, and
// that nothing is left to do then.
func TestOnce(t *testing.T) {
	t.Parallel()
	plain := "-rw-r-----" + early
	from := map[string]string{
		".gitignore": plain + "*.log\n", "new": plain + "new", "changed": "-rwxr-x---" + late + "long", "mode": "-rwx------" + early + "m",
		"same": plain + "same", "d": "drwxr-x---", "d/in": plain + "in", "d/e": "drwx------", "link": "to d/in", "own.log": plain + "own",
		"file": plain + "was a directory", "dir": "drwxr-xr-x", "dir/x": plain + "x", "pipe": "p---------", "left": plain + "left",
	}
	to := map[string]string{
		"changed": plain + "old", "mode": plain + "m", "same": plain + "same", "file": "drwxr-xr-x", "file/deep": "drwxr-xr-x", "file/deep/y": plain + "y",
		"dir": plain + "was a file", "gone": "drwxr-xr-x", "gone/z": plain + "z", "kept": "drwxr-xr-x", "kept/its.log": plain + "log", "kept/z": plain + "z",
		"pipe": plain + "stays", "left": plain + "right",
	}
	want := maps.Clone(from)
	delete(want, "own.log")
	want["pipe"], want["kept"], want["kept/its.log"], want["left"] = to["pipe"], to["kept"], to["kept/its.log"], to["left"]
	changes := []Change{
		{Create, ".gitignore", 6}, {Update, "changed", 4}, {Create, "d", 0}, {Create, "d/e", 0}, {Create, "d/in", 2}, {Update, "dir", 0}, {Create, "dir/x", 1},
		{Update, "file", 15}, {Remove, "file/deep", 0}, {Remove, "file/deep/y", 0}, {Remove, "gone", 0}, {Remove, "gone/z", 0}, {Remove, "kept/z", 0},
		{Create, "link", 0}, {Update, "mode", 1}, {Create, "new", 3},
	}
	for _, pull := range []bool{false, true} {
		sb, home := newSandbox(t, "", nil)
		local, remote := t.TempDir(), filepath.Join(home, "app")
		must.Do(t, os.Mkdir(remote, 0o755))
		source, target := local, remote
		if pull {
			source, target = remote, local
		}
		makeContent(t, source, from)
		makeContent(t, target, to)
		var skipped []string
		var moved int64
		m := &Mirror{
			Local: local, Sandbox: sb, User: "me", Dir: "app", Pull: pull, Delete: true, DryRun: true, Exclude: []string{"/left"}, MaxBytes: -1, MaxFiles: -1,
			Skipped: func(name, _ string) { skipped = append(skipped, name) }, Progress: func(n int64) { moved = n },
		}
		for _, dry := range []bool{true, false} {
			m.DryRun = dry
			got, err := m.Once(patience.Context(t))
			must.Do(t, err)
			if diff := cmp.Diff(changes, got); diff != "" {
				t.Errorf("pull %v, dry %v: changes (-want +got):\n%s", pull, dry, diff)
			}
			is := map[bool]map[string]string{true: to, false: want}[dry]
			if diff := cmp.Diff(is, content(t, target)); diff != "" || (moved == 0) != dry {
				t.Errorf("pull %v, dry %v: told of %d bytes, content (-want +got):\n%s", pull, dry, moved, diff)
			}
		}
		if got, err := m.Once(patience.Context(t)); err != nil || len(got) != 0 {
			t.Errorf("pull %v, again: got %v and error %v, want nothing to do", pull, got, err)
		}
		if want := []string{"pipe", "pipe", "pipe"}; !slices.Equal(skipped, want) {
			t.Errorf("pull %v: skipped %q, want %q", pull, skipped, want)
		}
		if diff := cmp.Diff(from, content(t, source)); diff != "" {
			t.Errorf("pull %v: source (-want +got):\n%s", pull, diff)
		}
	}
}

// TestDirectoriesOfAMirror checks which directories may be missing, and the errors for those that may not, that are
// none, or that have too much in them.
func TestDirectoriesOfAMirror(t *testing.T) {
	t.Parallel()
	sb, home := newSandbox(t, "", nil)
	local := t.TempDir()
	for _, dir := range []string{local, home} {
		makeContent(t, dir, map[string]string{"full": "drwxr-xr-x", "full/a": "-rw-------" + early + "abc", "file": "-rw-------" + early})
	}
	for name, tt := range map[string]struct {
		local, dir   string
		pull, dry    bool
		user         string
		bytes, files int64
		want         error
		says         string
		made         string // what exists afterwards
	}{
		"to nothing":                    {local: "full", dir: "new/in", made: home + "/new/in/a"},
		"to an absolute path":           {local: "full", dir: home + "/absolute", made: home + "/absolute/a"},
		"from nothing":                  {local: "gone", dir: "full", want: fs.ErrNotExist},
		"from a file":                   {local: "file", dir: "full", want: syscall.ENOTDIR, says: "sync " + local + "/file: not a directory"},
		"to a file":                     {local: "full", dir: "file", want: syscall.ENOTDIR, says: "sync i1:file: not a directory"},
		"as nobody":                     {local: "full", dir: "full", user: "nobody-at-all", want: sandbox.ErrUnauthorized},
		"to a dash":                     {local: "full", dir: "-", made: home + "/-/a"},
		"pull, to nothing":              {local: "new/in", dir: "full", pull: true, made: local + "/new/in/a"},
		"pull, to nothing, dry":         {local: "dry", dir: "full", pull: true, dry: true},
		"pull, from nothing":            {local: "full", dir: "gone", pull: true, want: fs.ErrNotExist, says: "sync i1:gone: file does not exist"},
		"pull, from a file":             {local: "full", dir: "file", pull: true, want: syscall.ENOTDIR, says: "sync i1:file: not a directory"},
		"pull, to a file":               {local: "file", dir: "full", pull: true, want: syscall.ENOTDIR},
		"pull, as nobody":               {local: "full", dir: "full", pull: true, user: "nobody-at-all", want: sandbox.ErrUnauthorized},
		"pull, as many as are allowed":  {local: "many", dir: "full", pull: true, bytes: 3, files: 1, made: local + "/many/a"},
		"pull, more bytes than allowed": {local: "few", dir: "full", pull: true, bytes: 2, files: 1, want: sandbox.ErrTooLarge},
		"pull, more files than allowed": {local: "few", dir: "full", pull: true, bytes: 3, files: -2, want: sandbox.ErrTooLarge},
	} {
		m := &Mirror{
			Local: filepath.Join(local, tt.local), Sandbox: sb, Dir: tt.dir, Pull: tt.pull, DryRun: tt.dry, User: tt.user, MaxBytes: tt.bytes, MaxFiles: tt.files,
			Skipped: func(name, why string) { t.Errorf("%s: skipped %s: %s", name, name, why) },
		}
		if m.User == "" {
			m.User = "me"
		}
		switch m.MaxFiles {
		case 0:
			m.MaxBytes, m.MaxFiles = -1, -1
		case -2:
			m.MaxFiles = 0
		}
		changes, err := m.Once(patience.Context(t))
		says := tt.says == "" || err != nil && err.Error() == tt.says
		if !errors.Is(err, tt.want) || !says || err != nil && changes != nil {
			t.Errorf("%s: got %v and error %v, want %v, %q", name, changes, err, tt.want, tt.says)
		}
		if _, err := os.Stat(tt.made); tt.made != "" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"dry", "few/a"} {
		if _, err := os.Stat(filepath.Join(local, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got error %v, want it not to be made", name, err)
		}
	}
}

// TestFilesThatShrink checks that a transfer is tried again while a file gets shorter, a bounded number of times, and
// that no part of it comes.
func TestFilesThatShrink(t *testing.T) {
	t.Parallel()
	for shrinks, want := range map[int]error{0: nil, 1: nil, attempts - 1: nil, attempts: errShrunk, 100: errShrunk} {
		local := t.TempDir()
		file := filepath.Join(local, "file")
		must.Do(t, os.WriteFile(file, make([]byte, 100), 0o600))
		lists := 0
		sb, home := newSandbox(t, "", func(request []byte) { // the list of the sandbox comes after that of this machine
			if !bytes.Contains(request, []byte("-mindepth 1")) {
				return
			}
			if lists++; lists <= shrinks {
				if err := os.Truncate(file, int64(100-lists)); err != nil {
					t.Error(err)
				}
			}
		})
		m := &Mirror{Local: local, Sandbox: sb, User: "me", Dir: ".", MaxBytes: -1, MaxFiles: -1}
		_, err := m.Once(patience.Context(t))
		if !errors.Is(err, want) || lists != min(shrinks+1, attempts) || err != nil && !strings.HasPrefix(err.Error(), "pack the files: read file: ") {
			t.Errorf("shrinks %d times: got %v after %d tries, want %v", shrinks, err, lists, want)
		}
		if info, err := os.Stat(filepath.Join(home, "file")); (err == nil) != (want == nil) || err == nil && info.Size() != int64(100-shrinks) {
			t.Errorf("shrinks %d times: got %v and error %v, want the file whole or not at all", shrinks, info, err)
		}
	}
}

// TestPack checks what becomes of entries that change, and that the end of ctx ends a transfer.
func TestPack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "file"), []byte("12345"), 0o600))
	must.Do(t, os.Symlink("/", filepath.Join(dir, "out")))
	root, err := os.OpenRoot(dir)
	must.Do(t, err)
	defer root.Close()
	ended, end := context.WithCancelCause(t.Context())
	end(io.ErrNoProgress)
	for name, tt := range map[string]struct {
		ctx   context.Context //nolint:containedctx // of one case
		entry string
		size  int64
		want  error
	}{
		"as it was": {t.Context(), "file", 5, nil}, "longer": {t.Context(), "file", 4, nil}, "shorter": {t.Context(), "file", 6, errShrunk},
		"removed": {t.Context(), "gone", 5, nil}, "in no directory": {t.Context(), "file/x", 5, syscall.ENOTDIR}, "ended": {ended, "file", 5, io.ErrNoProgress},
	} {
		var out bytes.Buffer
		err := pack(tt.ctx, root, []string{tt.entry}, tree{tt.entry: {size: tt.size}}, &out)
		if errors.Is(err, errShrunk) && err.Error() != "read file: "+errShrunk.Error() {
			t.Errorf("%s: got error %v, want the name of the file", name, err)
		}
		if text := "12345"[:min(tt.size, 5)]; !errors.Is(err, tt.want) || err == nil && tt.entry == "file" && !bytes.Contains(out.Bytes(), []byte(text+"\x00")) {
			t.Errorf("%s: got error %v and %d bytes, want %v and %q", name, err, out.Len(), tt.want, text)
		}
	}
}

// TestProgramsOfAPass checks that a pass runs no more programs in the sandbox than its changes need.
func TestProgramsOfAPass(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		here       string // "": nothing; otherwise a file, or a directory if it ends in a slash
		there      string
		push, pull int
	}{
		{"nothing", "", "", 1, 2}, {"a file here", "f", "", 2, 2}, {"a file there", "", "f", 2, 3}, {"a directory there", "", "d/", 2, 3}, {"a file in it", "", "d/f", 3, 3},
		{"a directory in place of a file", "x/", "x", 3, 3}, {"a file in place of a directory", "x", "x/", 3, 3},
	} {
		for pull, want := range map[bool]int{false: tt.push, true: tt.pull} {
			programs := 0
			sb, home := newSandbox(t, "", func([]byte) { programs++ })
			local := t.TempDir()
			must.Do(t, os.Mkdir(filepath.Join(home, "app"), 0o700))
			for dir, name := range map[string]string{local: tt.here, filepath.Join(home, "app"): tt.there} {
				switch {
				case strings.HasSuffix(name, "/"):
					must.Do(t, os.Mkdir(filepath.Join(dir, name), 0o700))
				case name != "":
					write(t, dir, name, dir)
				}
			}
			_, err := (&Mirror{Local: local, Sandbox: sb, User: "me", Dir: "app", Pull: pull, Delete: true, MaxBytes: -1, MaxFiles: -1}).Once(patience.Context(t))
			if must.Do(t, err); programs != want {
				t.Errorf("%s, pull %v: %d programs ran, want %d", tt.name, pull, programs, want)
			}
		}
	}
}
