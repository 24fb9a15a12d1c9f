//go:build linux

package mirror

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/fsnotify/fsnotify"
	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/cli/internal/cmdtest"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/gen/process/processconnect"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

// emptyDaemon is a sandbox in which each program prints nothing and succeeds.
type emptyDaemon struct {
	processconnect.UnimplementedProcessHandler
	started func()
}

func (d emptyDaemon) Start(_ context.Context, _ *connect.Request[process.StartRequest], to *connect.ServerStream[process.StartResponse]) error {
	d.started()
	return errors.Join(
		to.Send(&process.StartResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: 7}}}}),
		to.Send(&process.StartResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_End{End: &process.ProcessEvent_EndEvent{Exited: true, Status: "exit status 0"}}}}),
	)
}

// sandbox returns a handle for the sandbox, in a bubble.
func (d emptyDaemon) sandbox(t *testing.T) *sandbox.Sandbox {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(processconnect.NewProcessHandler(d))
	return cmdtest.PipedSandbox(t, mux)
}

// TestBurstsOfChanges checks when changes are sent: together once nothing else changes, but soon enough while something
// always does, and not for an ignored file.
func TestBurstsOfChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o600))
	root, err := os.OpenRoot(dir)
	must.Do(t, err)
	defer root.Close()
	synctest.Test(t, func(t *testing.T) {
		var passes []time.Duration
		began := time.Now()
		d := emptyDaemon{started: func() { passes = append(passes, time.Since(began)) }}
		w, changes := newWaiting(dir, 1)
		w.m.Sandbox, w.m.Exclude, w.m.DryRun = d.sandbox(t), []string{"*.log"}, true
		change := func(at time.Duration, name string) {
			<-time.After(time.Until(began.Add(at)))
			w.local.Events <- fsnotify.Event{Name: filepath.Join(dir, name)}
		}
		mine := errors.New("mine")
		go func() {
			change(time.Second, "a")
			change(2*time.Second, "x.log")
			for at := 3 * time.Second; at <= 3*time.Second+100*time.Millisecond; at += 4 * time.Millisecond {
				change(at, "a")
			}
			<-time.After(time.Second)
			changes.ended <- mine
		}()
		reports := 0
		must.Is(t, w.run(t.Context(), root, func(all []Change) error {
			if reports++; len(all) != 1 || all[0].Name != "a" {
				t.Errorf("got the changes %v, want that of the file", all)
			}
			return nil
		}), mine)
		want := []time.Duration{0, time.Second + quiet, 3*time.Second + mostWait + 2*time.Millisecond, 3*time.Second + 100*time.Millisecond + quiet}
		if diff := cmp.Diff(want, passes); diff != "" || reports != len(want) {
			t.Errorf("%d reports; times of transfers (-want +got):\n%s", reports, diff)
		}
		must.Is(t, w.run(t.Context(), root, func([]Change) error { return mine }), mine)
	})
}

// TestShrunkWhileWatched checks that a watch goes on after a file became shorter while it was sent, because another change
// follows.
func TestShrunkWhileWatched(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "a")
	must.Do(t, os.WriteFile(file, make([]byte, 100), 0o600))
	root, err := os.OpenRoot(dir)
	must.Do(t, err)
	defer root.Close()
	synctest.Test(t, func(t *testing.T) {
		d := emptyDaemon{started: func() { // the list of the sandbox comes after that of this machine
			if err := os.Truncate(file, 50); err != nil {
				t.Error(err)
			}
		}}
		w, changes := newWaiting(dir, 1)
		w.m.Sandbox = d.sandbox(t)
		mine, began := errors.New("mine"), time.Now()
		time.AfterFunc(time.Second, func() { changes.ended <- mine })
		err := w.run(t.Context(), root, func(all []Change) error {
			t.Errorf("got the changes %v, which were not made", all)
			return nil
		})
		if !errors.Is(err, mine) || time.Since(began) != time.Second {
			t.Errorf("got %v after %v, want the end of the sandbox", err, time.Since(began))
		}
	})
}

// TestUploadThatIsRefused checks that an upload ends when the sandbox takes nothing, and whose error it returns.
func TestUploadThatIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "a"), make([]byte, 1<<20), 0o600))
	root, err := os.OpenRoot(dir)
	must.Do(t, err)
	defer root.Close()
	synctest.Test(t, func(t *testing.T) {
		ended, cancel := context.WithCancelCause(t.Context())
		mine := errors.New("mine")
		cancel(mine)
		for name, tt := range map[string]struct {
			ctx  context.Context //nolint:containedctx // of one case
			late bool            // the sandbox reads everything first
			want error
		}{"refused": {t.Context(), false, sandbox.ErrForbidden}, "refused at its end": {t.Context(), true, sandbox.ErrForbidden}, "ended": {ended, false, mine}} {
			mux := http.NewServeMux()
			mux.Handle(processconnect.NewProcessHandler(emptyDaemon{started: func() {}}))
			mux.HandleFunc("/files", func(w http.ResponseWriter, r *http.Request) {
				if tt.late {
					_, _ = io.Copy(io.Discard, r.Body)
				}
				w.WriteHeader(http.StatusForbidden)
			})
			m := &Mirror{Sandbox: cmdtest.PipedSandbox(t, mux), Dir: "app"}
			err := m.upload(tt.ctx, root, &plan{send: []string{"a"}}, tree{"a": {size: 1 << 20}})
			if !errors.Is(err, tt.want) || strings.HasPrefix(err.Error(), "upload i1:app: ") != errors.Is(tt.want, sandbox.ErrForbidden) {
				t.Errorf("%s: got error %v, want %v", name, err, tt.want)
			}
		}
		<-time.After(time.Minute) // the server waits before it closes the connection
	})
}

// TestEqualEntries checks which differences of two entries matter.
func TestEqualEntries(t *testing.T) {
	t.Parallel()
	at := func(nanos int64) time.Time { return time.Unix(1, nanos) }
	file := entry{perm: 0o600, size: 3, modTime: at(100), target: "x"}
	with := func(change func(*entry), kind os.FileMode) entry {
		e := file
		e.kind = kind
		change(&e)
		return e
	}
	for name, tt := range map[string]struct {
		change                func(*entry)
		files, dirs, symlinks bool // they are still equal
	}{
		"nothing":            {func(*entry) {}, true, true, true},
		"permissions":        {func(e *entry) { e.perm = 0o700 }, false, false, true},
		"the size":           {func(e *entry) { e.size = 4 }, false, true, true},
		"the step of a time": {func(e *entry) { e.modTime = at(199) }, true, true, true},
		"the time":           {func(e *entry) { e.modTime = at(200) }, false, true, true},
		"the target":         {func(e *entry) { e.target = "y" }, true, true, false},
		"the kind":           {func(e *entry) { e.kind = unsendable }, false, false, false},
	} {
		for kind, want := range map[os.FileMode]bool{0: tt.files, os.ModeDir: tt.dirs, os.ModeSymlink: tt.symlinks} {
			if got := with(func(*entry) {}, kind).equals(with(tt.change, kind)); got != want {
				t.Errorf("%s of %v differs: they are equal: %v, want %v", name, kind, got, want)
			}
		}
	}
}

// TestKeptDirectories checks which directories stay because of an ignored entry.
func TestKeptDirectories(t *testing.T) {
	t.Parallel()
	dir := entry{kind: os.ModeDir}
	all := tree{"a": dir, "a/b": dir, "a/b/c": dir, "d": dir, "e/f": dir}
	for _, name := range []string{"x", "a/b/x", "a/b/c/x", "e/f/x"} {
		all.ignored(name)
	}
	kept := dir
	kept.keeps = true
	if diff := cmp.Diff(tree{"a": kept, "a/b": kept, "a/b/c": kept, "d": dir, "e/f": kept}, all, cmp.AllowUnexported(entry{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
