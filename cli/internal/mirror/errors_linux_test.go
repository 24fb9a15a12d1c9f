package mirror

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
)

// TestEachFailureOfAScan makes each system call of a scan fail. A failure is an error, and an entry that was removed
// meanwhile is none.
func TestEachFailureOfAScan(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, ignoreFile, "*.log")
	write(t, dir, "d/"+ignoreFile, "*.tmp")
	write(t, dir, "d/a", "text")
	must.Do(t, os.Symlink("a", filepath.Join(dir, "d", "link")))
	for name, number := range map[string]uint32{"open": unix.SYS_OPENAT, "stat": unix.SYS_NEWFSTATAT, "readlink": unix.SYS_READLINKAT, "list": unix.SYS_GETDENTS64} {
		for _, as := range []unix.Errno{unix.EIO, unix.ENOENT} {
			for n, failed := 1, true; failed; n++ {
				root, err := os.OpenRoot(dir)
				must.Do(t, err)
				failed, err = calltest.FailNth(t, number, n, as, func() error {
					_, err := scanLocal(root, newRules(nil), nil, nil, func(name, why string) { t.Errorf("%s is skipped: %s", name, why) })
					return err
				})
				must.Do(t, root.Close())
				var path *fs.PathError
				atRoot := errors.As(err, &path) && path.Path == "."
				switch {
				case as == unix.EIO && failed != errors.Is(err, as), as == unix.ENOENT && err != nil && !atRoot && number != unix.SYS_GETDENTS64:
					t.Errorf("%s %d failed with %v: got error %v", name, n, as, err)
				case !failed && n == 1:
					t.Errorf("no %s was made", name)
				}
			}
		}
	}
}

// TestEachFailureOfARulesFile makes each system call that reads a .gitignore fail.
func TestEachFailureOfARulesFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, ignoreFile, "*.log")
	root, err := os.OpenRoot(dir)
	must.Do(t, err)
	defer root.Close()
	for name, number := range map[string]uint32{"open": unix.SYS_OPENAT, "stat": unix.SYS_NEWFSTATAT, "read": unix.SYS_READ} {
		for as, want := range map[unix.Errno]error{unix.EIO: unix.EIO, unix.ENOENT: nil} {
			if as == unix.ENOENT && number == unix.SYS_READ {
				continue
			}
			read := newRules(nil)
			failed, err := calltest.FailNth(t, number, 1, as, func() error { return readIgnoreFile(root, ".", read) })
			if !failed || !errors.Is(err, want) || read.ignored("a.log", false) {
				t.Errorf("%s failed with %v: %v; got error %v, want %v and no rules", name, as, failed, err, want)
			}
			if _, added := read.files["."]; added && want == nil {
				t.Errorf("%s failed with %v: the rules of a file that is gone were added", name, as)
			}
		}
	}
}

// TestEachEndOfAWait checks what each event means for a mirror that waits.
func TestEachEndOfAWait(t *testing.T) {
	t.Parallel()
	mine, cause := errors.New("mine"), errors.New("cause")
	dir := t.TempDir()
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for name, tt := range map[string]struct {
		ctx     context.Context //nolint:containedctx // of one call
		ended   error
		quiet   bool
		changed bool
		failed  error
		events  []string
		want    error
	}{
		"the context":         {ctx: ended, want: cause},
		"the sandbox":         {ended: mine, want: mine},
		"quiet":               {quiet: true, want: errQuiet},
		"a change there":      {changed: true},
		"too many events":     {failed: fsnotify.ErrEventOverflow},
		"a failure":           {failed: mine, want: mine},
		"a change here":       {events: []string{filepath.Join(dir, "a")}},
		"an ignored one":      {events: []string{filepath.Join(dir, "a.log"), filepath.Join(dir, "d", "b.log")}, quiet: true, want: errQuiet},
		"one after the other": {events: []string{filepath.Join(dir, "a.log"), filepath.Join(dir, "b")}},
		"a strange name":      {events: []string{"relative"}, want: errAny},
	} {
		w, changes := newWaiting(dir, len(tt.events))
		if tt.ctx == nil {
			tt.ctx = patience.Context(t)
		}
		for _, event := range tt.events {
			w.local.Events <- fsnotify.Event{Name: event}
		}
		var timeout chan time.Time
		if tt.quiet {
			timeout = make(chan time.Time)
			go func() { // after the events
				patience.Until(t, "the events are read", func() bool { return len(w.local.Events) == 0 })
				timeout <- time.Time{}
			}()
		}
		switch {
		case tt.changed:
			changes.changed <- struct{}{}
		case tt.failed != nil:
			w.local.Errors <- tt.failed
		case tt.ended != nil:
			changes.ended <- tt.ended
		}
		err := w.next(tt.ctx, timeout)
		if !errors.Is(err, tt.want) && !errors.Is(tt.want, errAny) || (err == nil) != (tt.want == nil) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got error %v, want %v", name, err, tt.want)
		}
	}
	w, changes := newWaiting(dir, 0)
	if err := w.reason(mine); !errors.Is(err, mine) {
		t.Errorf("got error %v of a transfer, want %v", err, mine)
	}
	changes.ended <- cause
	if err := w.reason(mine); !errors.Is(err, cause) {
		t.Errorf("got error %v of a transfer, want the end of the sandbox, %v", err, cause)
	}
}

// errAny stands for any error.
var errAny = errors.New("any")

// sources are the channels of a watching.
type sources struct {
	changed chan struct{}
	ended   chan error
}

// newWaiting returns what waits for changes of a directory without *.log.
func newWaiting(dir string, events int) (*watching, sources) {
	from := sources{make(chan struct{}, 1), make(chan error, 1)}
	local := &fsnotify.Watcher{Events: make(chan fsnotify.Event, events), Errors: make(chan error, 1)}
	return &watching{m: &Mirror{Local: dir, here: newRules([]string{"*.log"})}, local: local, changed: from.changed, ended: from.ended}, from
}

// TestWatchThatCannotBegin checks the errors of watches that do not begin.
func TestWatchThatCannotBegin(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		number uint32
		as     unix.Errno
		local  string // "": a directory that is there
		dir    string
		pull   bool
		want   error
		text   string
	}{
		"too many watches":     {number: unix.SYS_INOTIFY_ADD_WATCH, as: unix.ENOSPC, dir: "app", want: syscall.ENOSPC, text: "raise fs.inotify.max_user_watches"},
		"a failing watch":      {number: unix.SYS_INOTIFY_ADD_WATCH, as: unix.EIO, dir: "app", want: syscall.EIO},
		"too many watchers":    {number: unix.SYS_INOTIFY_INIT1, as: unix.EMFILE, dir: "app", want: syscall.EMFILE},
		"no local directory":   {local: "none", dir: "app", want: fs.ErrNotExist},
		"a file there":         {dir: "file", want: syscall.ENOTDIR},
		"nothing to pull from": {dir: "none", pull: true, want: fs.ErrNotExist},
	} {
		sb, home := newSandbox(t, "", nil)
		write(t, home, "file", "text")
		local := t.TempDir()
		m := &Mirror{Local: filepath.Join(local, tt.local), Sandbox: sb, User: "me", Dir: tt.dir, Pull: tt.pull, MaxBytes: -1, MaxFiles: -1}
		watch := func() error {
			return m.Watch(patience.Context(t), func([]Change) error { return errAny })
		}
		var err error
		if tt.number == 0 {
			err = watch()
		} else {
			var failed bool
			if failed, err = calltest.FailNth(t, tt.number, 1, tt.as, watch); !failed {
				t.Errorf("%s: the call was not made", name)
			}
		}
		if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) || tt.text == "" && strings.Contains(err.Error(), "max_user_watches") {
			t.Errorf("%s: got error %v, want %v with %q", name, err, tt.want, tt.text)
		}
	}
}

// TestEachFailureOfAReceive makes each system call fail that brings files from a sandbox to their paths. No failure is taken for success.
func TestEachFailureOfAReceive(t *testing.T) {
	t.Parallel()
	var sent bytes.Buffer
	w := tar.NewWriter(&sent)
	must.Do(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "d/f", Mode: 0o640, Size: 3}))
	_, err := w.Write([]byte("new"))
	must.Do(t, errors.Join(err, w.Close()))
	p := &plan{send: []string{"d", "d/f"}}
	from := tree{"d": {kind: fs.ModeDir, perm: 0o750, modTime: time.Unix(1, 0)}, "d/f": {size: 3, perm: 0o640}}
	for name, number := range map[string]uint32{"mkdir": unix.SYS_MKDIRAT, "open": unix.SYS_OPENAT, "rename": unix.SYS_RENAMEAT, "time": unix.SYS_UTIMENSAT, "remove": unix.SYS_UNLINKAT} {
		for n, failed := 1, true; failed; n++ {
			dir := t.TempDir()
			root, err := os.OpenRoot(dir)
			must.Do(t, err)
			m := &Mirror{MaxBytes: -1, MaxFiles: -1}
			failed, err = calltest.FailNth(t, number, n, unix.EIO, func() error {
				return m.receive(t.Context(), root, p, from, bytes.NewReader(sent.Bytes()))
			})
			must.Do(t, root.Close())
			if n == 1 && !failed {
				t.Errorf("%s: there is no such call", name)
			}
			if err != nil && (!failed || !errors.Is(err, unix.EIO)) {
				t.Errorf("%s %d failed: %v; got error %v", name, n, failed, err)
			}
			if err != nil {
				continue
			}
			// Some calls only look whether the file system tells cases of letters apart.
			text, wrong := os.ReadFile(filepath.Join(dir, "d", "f"))
			info, noInfo := os.Stat(filepath.Join(dir, "d"))
			all, noList := os.ReadDir(dir)
			if wrong = errors.Join(wrong, noInfo, noList); wrong != nil || string(text) != "new" || info.Mode().Perm() != 0o750 || len(all) != 1 {
				t.Errorf("%s %d failed: %v; without an error, left %v with %q (%v)", name, n, failed, all, text, wrong)
			}
		}
	}
}

// TestFailuresOfAPass checks that a pass ends with its first failure, and changes nothing afterwards.
func TestFailuresOfAPass(t *testing.T) {
	t.Parallel()
	file, directory := entry{size: 1}, entry{kind: fs.ModeDir, perm: 0o700}
	root, err := os.OpenRoot(t.TempDir())
	must.Do(t, errors.Join(err, root.Close()))
	for _, m := range []*Mirror{{Pull: true}, {Pull: true, DryRun: true}, {}} {
		if changes, err := m.apply(t.Context(), root, tree{"a": file}, tree{"a": directory}); !errors.Is(err, syscall.EISDIR) || changes != nil {
			t.Errorf("a directory in place of a file: got %v and error %v", changes, err)
		}
	}
	// Without a sandbox, a download would panic.
	if changes, err := (&Mirror{Pull: true, Delete: true}).apply(t.Context(), root, tree{"a": file}, tree{"a": directory}); !errors.Is(err, os.ErrClosed) || changes != nil {
		t.Errorf("a directory that cannot be removed: got %v and error %v", changes, err)
	}
	sb, home := newSandbox(t, "", nil)
	ctx := patience.Context(t)
	for _, names := range [][]string{{"f"}, {"d"}, {"f", "d"}} {
		must.Is(t, (&remote{sb, "me", "none"}).remove(ctx, names, tree{"f": file, "d": directory}), fs.ErrNotExist)
	}
	write(t, home, "app/"+ignoreFile, strings.Repeat("#", maxIgnoreFiles+1))
	local := t.TempDir()
	write(t, local, "kept.log", "text")
	if changes, err := (&Mirror{Local: local, Sandbox: sb, User: "me", Dir: "app", Pull: true, Delete: true, MaxBytes: -1, MaxFiles: -1}).Once(ctx); !errors.Is(err, sandbox.ErrTooLarge) || changes != nil {
		t.Errorf("rules that cannot be read: got %v and error %v", changes, err)
	}
	write(t, home, "large/file", "text")
	if changes, err := (&Mirror{Local: local, Sandbox: sb, User: "me", Dir: "large", Pull: true, Delete: true, MaxBytes: 3, MaxFiles: -1}).Once(ctx); !errors.Is(err, sandbox.ErrTooLarge) || changes != nil {
		t.Errorf("a file that is too large: got %v and error %v", changes, err)
	}
	if text, err := os.ReadFile(filepath.Join(local, "kept.log")); err != nil || string(text) != "text" {
		t.Errorf("a file that the rules may keep, or that would have been removed later, has %q and error %v", text, err)
	}
	_, _, err = (&Mirror{Sandbox: sb, User: "me", Dir: "large", Pull: true, MaxFiles: -1}).scan(ctx, root)
	must.Is(t, err, os.ErrClosed)
}

// TestModesOfKeptDirectories checks that the mode of a directory changes, whatever is ignored in it, and which names are always ignored.
func TestModesOfKeptDirectories(t *testing.T) {
	t.Parallel()
	for _, remove := range []bool{false, true} {
		p, err := newPlan(tree{"d": {kind: fs.ModeDir, perm: 0o755}}, tree{"d": {kind: fs.ModeDir, perm: 0o700, keeps: true}}, remove)
		if err != nil || len(p.changes) != 1 || p.changes[0] != (Change{Type: Update, Name: "d"}) || len(p.clear)+len(p.remove) > 0 {
			t.Errorf("got %+v and error %v, want a change of the mode alone", p, err)
		}
	}
	r := newRules([]string{"d/", "a\\ ", "b "})
	for name, want := range map[string]bool{"d/x": true, "d/x/y": true, "x/d": false, ".git/x": true, "x/.GIT": true, stagingPrefix + "x": true, "x/" + stagingPrefix: true, "x" + stagingPrefix: false, "a ": true, "a": false, "b": true, "b ": false} {
		if got := r.ignored(name, false); got != want {
			t.Errorf("%q is ignored: %v, want %v", name, got, want)
		}
	}
}

// TestEachFailureOfARemoval checks that an entry that cannot be removed is an error, unless it is a directory that is not
// empty, or is gone.
func TestEachFailureOfARemoval(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		call int // unlinkat is called for a file, and then for a directory
		as   unix.Errno
		want error
		left bool
	}{
		{"file", 1, unix.EIO, unix.EIO, true}, {"file", 1, unix.EEXIST, unix.EEXIST, true}, {"file", 1, unix.ENOENT, nil, true},
		{"dir", 2, unix.EIO, unix.EIO, true}, {"dir", 2, unix.ENOTEMPTY, nil, true}, {"dir", 2, unix.ENOENT, nil, true}, {"dir", 3, unix.EIO, nil, false},
	} {
		dir := t.TempDir()
		write(t, dir, "file", "text")
		must.Do(t, os.Mkdir(filepath.Join(dir, "dir"), 0o700))
		root, err := os.OpenRoot(dir)
		must.Do(t, err)
		_, err = calltest.FailNth(t, unix.SYS_UNLINKAT, tt.call, tt.as, func() error { return removeLocal(root, []string{tt.name}) })
		must.Do(t, root.Close())
		_, statErr := os.Stat(filepath.Join(dir, tt.name))
		if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) || (statErr == nil) != tt.left {
			t.Errorf("%s, the call %d failed with %v: got error %v, want %v; it is left: %v", tt.name, tt.call, tt.as, err, tt.want, statErr == nil)
		}
	}
}

// TestSpecialFiles checks that a pipe is never taken for a file, and that a directory that is gone is not taken for an empty one.
func TestSpecialFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Do(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	root, err := os.OpenRoot(dir)
	must.Do(t, err)
	defer root.Close()
	entries, err := os.ReadDir(dir)
	must.Do(t, err)
	if e, err := localEntry(root, "pipe", entries[0]); !errors.Is(err, errSpecial) || e.kind != fs.ModeNamedPipe {
		t.Errorf("got %+v and error %v, want %v", e, err, errSpecial)
	}
	must.Do(t, os.RemoveAll(dir))
	if all, err := scanLocal(root, newRules(nil), nil, nil, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v and error %v of a directory that is gone, want %v", all, err, fs.ErrNotExist)
	}
}
