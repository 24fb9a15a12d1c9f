package mirror

import (
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
