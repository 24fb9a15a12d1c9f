package transfer

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
)

// shown is list for a file, too, which is called ".".
func shown(t *testing.T, at string) map[string]string {
	t.Helper()
	info, err := os.Stat(at)
	must.Do(t, err)
	if info.IsDir() {
		return list(t, at)
	}
	text, err := os.ReadFile(at)
	must.Do(t, err)
	return map[string]string{".": info.Mode().String() + " " + string(text)}
}

// TestUserOfACopy checks that each way to copy acts as the user of the copy, at whose home relative paths start, that it
// tells of its progress, and that it names what it leaves out.
func TestUserOfACopy(t *testing.T) {
	t.Parallel()
	sb, home := newSandbox(t)
	other := filepath.Join(home, "other") // the home of the user "other"
	local := t.TempDir()
	for _, dir := range []string{local, other} {
		write(t, dir, "file", "text", 0o755)
		write(t, dir, "tree/in/a", "a", 0o640)
		must.Do(t, syscall.Mkfifo(filepath.Join(dir, "tree", "pipe"), 0o600))
	}
	must.Do(t, os.Symlink("/", filepath.Join(other, "tree", "out")))
	const file, in = "-rwxr-xr-x text", "-rw-r----- a"
	for name, tt := range map[string]struct {
		from, to End
		in       string // what then has want
		want     map[string]string
		skipped  string
	}{
		"a file":                  {End{Path: local + "/file"}, InSandbox(sb, "other", "up"), other + "/up", map[string]string{".": file}, ""},
		"a directory":             {End{Path: local + "/tree"}, InSandbox(sb, "other", "uptree"), other + "/uptree", map[string]string{"in/a": in}, "skipped pipe: "},
		"back":                    {InSandbox(sb, "other", "file"), End{Path: local + "/down"}, local + "/down", map[string]string{".": file}, ""},
		"a directory, back":       {InSandbox(sb, "other", "tree"), End{Path: local + "/downtree"}, local + "/downtree", map[string]string{"in/a": in}, "skipped "},
		"between":                 {InSandbox(sb, "other", "file"), InSandbox(sb, "user", "between"), home + "/between", map[string]string{".": file}, ""},
		"a directory, from there": {InSandbox(sb, "other", "tree/in"), InSandbox(sb, "user", "from"), home + "/from", map[string]string{"a": in}, ""},
		"a directory, to there":   {InSandbox(sb, "user", "other/tree/in"), InSandbox(sb, "other", "to"), other + "/to", map[string]string{"a": in}, ""},
	} {
		var said strings.Builder
		moved := int64(0)
		c := &Copy{
			IO: cmdutil.NewIOStreams(strings.NewReader(""), io.Discard, &said), Command: &cobra.Command{}, Recursive: true,
			MaxBytes: sandbox.DefaultMaxBytes, MaxFiles: sandbox.DefaultMaxFiles, Progress: func(n int64) { moved = n },
		}
		err := c.Run(patience.Context(t), tt.from, tt.to)
		if err != nil || moved == 0 || !strings.HasPrefix(said.String(), tt.skipped) || (tt.skipped == "") != (said.Len() == 0) {
			t.Errorf("%s: got error %v, told of %d bytes, and said %q, want %q", name, err, moved, &said, tt.skipped)
			continue
		}
		if diff := cmp.Diff(tt.want, shown(t, tt.in)); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
	}
}

// TestCopyBetweenSandboxesFails checks that a copy of a directory between sandboxes ends when one of them fails, with the
// error of that one, and that nothing comes.
func TestCopyBetweenSandboxesFails(t *testing.T) {
	t.Parallel()
	sb, home := newSandbox(t)
	write(t, home, "file", "text", 0o600)
	write(t, home, "large/a", strings.Repeat("x", 8<<20), 0o600)
	for name, tt := range map[string]struct {
		from, to, user string
		want           error
		says           string
	}{
		"from nothing":      {"gone", "new", "user", fs.ErrNotExist, "download "},
		"to a file":         {"large", "file", "user", new(sandbox.ExitError), "file"},
		"to below a file":   {"large", "file/in", "user", new(sandbox.ExitError), "file"},
		"to an unknown one": {"large", "new", "nobody-at-all", sandbox.ErrUnauthorized, "nobody-at-all"},
	} {
		c := &Copy{Recursive: true}
		err := c.directory(patience.Context(t), tt.from, InSandbox(sb, "user", "").Store, tt.to, InSandbox(sb, tt.user, "").Store)
		_, exited := errors.AsType[*sandbox.ExitError](err)
		_, wanted := errors.AsType[*sandbox.ExitError](tt.want)
		is := wanted || errors.Is(err, tt.want)
		if err == nil || !strings.Contains(err.Error(), tt.says) || exited != wanted || !is {
			t.Errorf("%s: got %v, want %v with %q", name, err, tt.want, tt.says)
		}
		if got := list(t, home); len(got) != 2 {
			t.Errorf("%s: there are %d files, want the two that were", name, len(got))
		}
	}
}

// TestWriteInSandboxFails checks that a file which cannot be written, or not be made executable, is an error.
func TestWriteInSandboxFails(t *testing.T) {
	t.Parallel()
	sb, home := newSandbox(t)
	write(t, home, "file", "text", 0o600)
	must.Do(t, os.Mkdir(filepath.Join(home, "dir"), 0o700))
	for name, user := range map[string]string{"file/in": "user", "dir": "user", "new": "nobody-at-all", "nochmod": "user"} {
		store := InSandbox(sb, user, "").Store
		for _, mode := range []fs.FileMode{0o644, 0o755} {
			err := store.Write(patience.Context(t), name, strings.NewReader("new"), mode, nil)
			if wanted := name != "nochmod" || mode == 0o755; (err != nil) != wanted {
				t.Errorf("%s, %v: got error %v, want one: %v", name, mode, err, wanted)
			}
		}
	}
}

// TestWriteLocalFails checks that each system call that fails while a file of this machine is written is reported, and
// leaves the earlier file and nothing else.
func TestWriteLocalFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Is(t, writeLocal(dir, strings.NewReader("new"), 0o600), syscall.EISDIR)
	for name, number := range map[string]uint32{
		"openat": unix.SYS_OPENAT, "write": unix.SYS_WRITE, "fchmodat": unix.SYS_FCHMODAT, "renameat": unix.SYS_RENAMEAT,
	} {
		for n, failed := 1, true; failed; n++ {
			dir := t.TempDir()
			at := filepath.Join(dir, "file")
			must.Do(t, os.WriteFile(at, []byte("old"), 0o600))
			var err error
			failed, err = calltest.FailNth(t, number, n, unix.EIO, func() error { return writeLocal(at, strings.NewReader("new"), 0o644) })
			if failed != (err != nil) || n == 1 && !failed {
				t.Errorf("%s %d failed: %v, got error %v, want it reported", name, n, failed, err)
			}
			want := map[string]string{"file": map[bool]string{true: "-rw------- old", false: "-rw------- new"}[failed]}
			if diff := cmp.Diff(want, list(t, dir)); diff != "" {
				t.Errorf("%s %d failed: %v: (-want +got):\n%s", name, n, failed, diff)
			}
		}
	}
}

// TestFlagsOfCommands checks the flags of commands, and their defaults.
func TestFlagsOfCommands(t *testing.T) {
	t.Parallel()
	var f Flags
	cmd := &cobra.Command{Use: "run", RunE: func(*cobra.Command, []string) error { return nil }}
	f.Add(cmd, "the command")
	if int64(f.maxBytes) != sandbox.DefaultMaxBytes || int64(f.maxFiles) != sandbox.DefaultMaxFiles {
		t.Errorf("bounds of %d bytes and %d files, want the usual ones", f.maxBytes, f.maxFiles)
	}
	cmd.SetArgs([]string{"--upload", "a:b", "--upload", "c:d", "--download", "e:f", "--max-download", "3", "--max-files", "7"})
	must.Do(t, cmd.Execute())
	want := &Flags{uploads{{"a", "b"}, {"c", "d"}}, downloads{{"e", "f"}}, 3, 7}
	if diff := cmp.Diff(want, &f, cmp.AllowUnexported(Flags{}, pair{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, want := range map[string]string{"upload": "LOCAL:REMOTE a:b,c:d", "download": "REMOTE:LOCAL e:f"} {
		if value := cmd.Flag(name).Value; value.Type()+" "+value.String() != want {
			t.Errorf("--%s is shown as %s %s, want %s", name, value.Type(), value, want)
		}
	}
	var up Flags
	only := &cobra.Command{}
	up.AddUploads(only, "the code")
	if only.Flag("upload") == nil || only.Flag("download") != nil || int64(up.maxBytes) != sandbox.DefaultMaxBytes {
		t.Errorf("got the flags %v and the bound %d, want --upload alone", only.Flags().FlagUsages(), up.maxBytes)
	}
}

// TestWriteLocalBesideFails checks that a file is not written if its state is unknown, or its directory cannot be made.
func TestWriteLocalBesideFails(t *testing.T) {
	t.Parallel()
	for name, number := range map[string]uint32{"newfstatat": unix.SYS_NEWFSTATAT, "mkdirat": unix.SYS_MKDIRAT} {
		failures := 0
		for n, failed := 1, true; failed; n++ {
			dir := t.TempDir()
			at := filepath.Join(dir, "a", "b", "file")
			want := map[string]string{"a/b/file": "-rw-r--r-- new"}
			if name == "newfstatat" {
				at = filepath.Join(dir, "file")
				must.Do(t, os.WriteFile(at, []byte("old"), 0o600))
				want = map[string]string{"file": "-rw------- new"}
			}
			before := list(t, dir)
			var err error
			failed, err = calltest.FailNth(t, number, n, unix.EIO, func() error { return writeLocal(at, strings.NewReader("new"), 0o644) })
			if err != nil {
				failures++
				must.Is(t, err, unix.EIO)
				want = before
			}
			if diff := cmp.Diff(want, list(t, dir)); diff != "" {
				t.Errorf("%s %d failed: %v: (-want +got):\n%s", name, n, failed, diff)
			}
		}
		if failures == 0 {
			t.Errorf("no %s was an error", name)
		}
	}
}

// TestStreamedLinks checks that a directory is streamed from one sandbox to another with its links, also those that
// lead out of it.
func TestStreamedLinks(t *testing.T) {
	t.Parallel()
	sb, home := newSandbox(t)
	write(t, home, "tree/a", "a", 0o600)
	must.Do(t, os.Symlink("/nowhere", filepath.Join(home, "tree", "out")))
	var said strings.Builder
	c := &Copy{IO: cmdutil.NewIOStreams(strings.NewReader(""), io.Discard, &said), Command: &cobra.Command{}, Recursive: true}
	must.Do(t, c.Run(patience.Context(t), InSandbox(sb, "user", "tree"), InSandbox(sb, "user", "copy")))
	if target, err := os.Readlink(filepath.Join(home, "copy", "out")); err != nil || target != "/nowhere" || said.Len() > 0 {
		t.Errorf("the link leads to %q, error %v, and it said %q", target, err, &said)
	}
}

// TestCopiesOfVolumes checks that each way to copy from and to a volume tells of its progress, and names what it leaves out.
func TestCopiesOfVolumes(t *testing.T) {
	t.Parallel()
	volume := servedVolume(t)
	local := t.TempDir()
	write(t, local, "file", "text", 0o644)
	write(t, local, "tree/a", "text", 0o644)
	must.Do(t, os.Symlink("/nowhere", filepath.Join(local, "tree", "link")))
	at := func(name string) End { return End{Path: filepath.Join(local, name)} }
	for name, tt := range map[string]struct {
		from, to End
		moved    int64
		skipped  string
	}{
		"a file":            {at("file"), InVolume(volume, "/x"), 4, ""},
		"a directory":       {at("tree"), InVolume(volume, "/x"), 4, "skipped link: "},
		"a directory, back": {InVolume(volume, "/x"), at("down"), 8, "skipped out: "},
	} {
		var said strings.Builder
		moved := int64(0)
		c := &Copy{
			IO: &cmdutil.IOStreams{Err: &said}, Recursive: true, MaxBytes: 100, MaxFiles: 100, Progress: func(n int64) { moved = n },
		}
		must.Do(t, c.Run(t.Context(), tt.from, tt.to))
		if moved != tt.moved || !strings.HasPrefix(said.String(), tt.skipped) || strings.Count(said.String(), "\n") != min(1, len(tt.skipped)) {
			t.Errorf("%s: told of %d bytes, and said %q, want %d and %q", name, moved, &said, tt.moved, tt.skipped)
		}
	}
}
