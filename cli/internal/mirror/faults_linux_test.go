package mirror

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/e2bctl/e2bctl/internal/fdtest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
)

// TestOutputsOfASandbox checks that a list of ignored files that a sandbox sends only in part, or that is too
// large, is an error, and that a program that fails is one even if its output is whole.
func TestOutputsOfASandbox(t *testing.T) {
	t.Parallel()
	of := func(sizes ...int) []byte {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		for i, size := range sizes {
			must.Do(t, w.WriteHeader(&tar.Header{Name: fmt.Sprintf("./d%d/.gitignore", i), Size: int64(size), Mode: 0o600}))
			_, err := w.Write([]byte(strings.Repeat("x", size)))
			must.Do(t, err)
		}
		must.Do(t, w.Close())
		return out.Bytes()
	}
	for name, tt := range map[string]struct {
		sent   []byte
		status int
		want   error  // nil: any that has says
		says   string // "": none
		read   []string
	}{
		"all":                {of(3, 4), 0, nil, "", []string{"d0", "d1"}},
		"as many as allowed": {of(maxIgnoreFiles/2, maxIgnoreFiles/2), 0, nil, "", []string{"d0", "d1"}},
		"too many":           {of(maxIgnoreFiles/2, maxIgnoreFiles/2+1), 0, sandbox.ErrTooLarge, "more than", []string{"d0"}},
		"cut off in a file":  {of(600)[:1100], 0, nil, "unexpected EOF", nil},
		"cut off in a name":  {of(600)[:500], 0, nil, "reading the .gitignore files", nil},
		"no archive":         {bytes.Repeat([]byte("x"), 600), 0, tar.ErrHeader, "reading the .gitignore files", nil},
		"tar fails":          {of(3), 2, new(sandbox.ExitError), "exit", []string{"d0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			programs := t.TempDir()
			must.Do(t, os.WriteFile(filepath.Join(programs, "out"), tt.sent, 0o600))
			script := fmt.Sprintf("#!/bin/sh\ncat >/dev/null\ncat '%s/out'\nexit %d\n", programs, tt.status)
			must.Do(t, os.WriteFile(filepath.Join(programs, "tar"), []byte(script), 0o700))
			sb, _ := newSandbox(t, programs, nil)
			read := newRules(nil)
			err := (&remote{sb, "me", "."}).readIgnoreFiles(patience.Context(t), read)
			_, exited := errors.AsType[*sandbox.ExitError](err)
			_, wantsExit := errors.AsType[*sandbox.ExitError](tt.want)
			switch {
			case (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says):
				t.Errorf("got error %v, want %q", err, tt.says)
			case exited != wantsExit || tt.want != nil && !wantsExit && !errors.Is(err, tt.want):
				t.Errorf("got error %v, want %v", err, tt.want)
			}
			var got []string
			for dir := range read.files {
				got = append(got, dir)
			}
			if slices.Sort(got); !slices.Equal(got, tt.read) {
				t.Errorf("read those of %q, want %q", got, tt.read)
			}
		})
	}
}

// watched is a Mirror that runs.
type watched struct {
	reports chan []Change
	ended   chan error
	stop    context.CancelFunc
}

func startWatch(t *testing.T, m *Mirror) *watched {
	t.Helper()
	ctx, stop := context.WithCancel(patience.Context(t))
	w := &watched{make(chan []Change, 100), make(chan error, 1), stop}
	go func() { w.ended <- m.Watch(ctx, func(c []Change) error { w.reports <- c; return nil }) }()
	t.Cleanup(stop)
	return w
}

// sees waits until all of the names were reported as changed, in any number of reports, and returns whatever
// else was.
func (w *watched) sees(t *testing.T, names ...string) (others []string) {
	t.Helper()
	left := slices.Clone(names)
	for len(left) > 0 {
		for _, c := range patience.Receive(t, fmt.Sprintf("a change of %q", left), w.reports) {
			if i := slices.Index(left, c.Name); i >= 0 {
				left = slices.Delete(left, i, i+1)
			} else {
				others = append(others, c.Name)
			}
		}
	}
	return others
}

// TestWatch follows changes in both directions, also in new directories, and checks that ignored files are not sent.
func TestWatch(t *testing.T) {
	t.Parallel()
	for _, pull := range []bool{false, true} {
		sb, home := newSandbox(t, "", nil)
		local, remote := t.TempDir(), filepath.Join(home, "app")
		source, target := local, remote
		if pull {
			must.Do(t, os.Mkdir(remote, 0o755))
			source, target = remote, local
		}
		write(t, source, ".gitignore", "*.log")
		write(t, source, "d/a", "one")
		w := startWatch(t, &Mirror{
			Local: local, Sandbox: sb, User: "me", Dir: "app", Pull: pull, Delete: true, MaxBytes: -1, MaxFiles: -1,
			Skipped: func(name, why string) { t.Errorf("skipped %s: %s", name, why) },
		})
		others := w.sees(t, ".gitignore", "d", "d/a")
		write(t, source, "d/a", "longer")
		others = append(others, w.sees(t, "d/a")...)
		write(t, source, "d/noise.log", "log")
		write(t, source, "new/deep/b", "two")
		others = append(others, w.sees(t, "new", "new/deep", "new/deep/b")...)
		write(t, source, "new/deep/c", "three") // the new directory is watched, too
		others = append(others, w.sees(t, "new/deep/c")...)
		must.Do(t, os.Remove(filepath.Join(source, "d", "a")))
		others = append(others, w.sees(t, "d/a")...)
		if i := slices.IndexFunc(others, func(name string) bool { return strings.HasSuffix(name, ".log") }); i >= 0 {
			t.Errorf("pull %v: reported %q, which is ignored", pull, others[i])
		}
		for name, want := range map[string]string{"new/deep/b": "two", "new/deep/c": "three", "d/a": "", "d/noise.log": ""} {
			if text, err := os.ReadFile(filepath.Join(target, name)); string(text) != want || (want == "") != errors.Is(err, fs.ErrNotExist) {
				t.Errorf("pull %v: %s has %q and error %v, want %q", pull, name, text, err, want)
			}
		}
		w.stop()
		if err := patience.Receive(t, "the end", w.ended); !errors.Is(err, context.Canceled) {
			t.Errorf("pull %v: ended with %v, want the end of ctx", pull, err)
		}
	}
}

// TestWatchEnds checks that a watch ends with the directory in the sandbox, with an error of a report, with one of
// its first transfer, and with the handle of the sandbox.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	failed := errors.New("nobody reads it")
	for _, pull := range []bool{false, true} {
		for name, tt := range map[string]struct {
			dir    string
			report error
			end    func(sb *sandbox.Sandbox, remote string) error
			want   error // nil: any
		}{
			"the directory is removed": {dir: "app", end: func(_ *sandbox.Sandbox, remote string) error { return os.RemoveAll(remote) }},
			"the handle is closed":     {dir: "app", end: func(sb *sandbox.Sandbox, _ string) error { return sb.Close() }, want: sandbox.ErrClosed},
			"a report fails":           {dir: "app", report: failed, want: failed},
			"a file":                   {dir: "app/a"},
		} {
			sb, home := newSandbox(t, "", nil)
			local, remote := t.TempDir(), filepath.Join(home, "app")
			write(t, local, "b", "two")
			write(t, remote, "a", "one")
			reported := make(chan struct{}, 100)
			ended := make(chan error, 1)
			m := &Mirror{Local: local, Sandbox: sb, User: "me", Dir: tt.dir, Pull: pull, MaxBytes: -1, MaxFiles: -1}
			go func() {
				ended <- m.Watch(patience.Context(t), func([]Change) error { reported <- struct{}{}; return tt.report })
			}()
			if tt.end != nil {
				patience.Receive(t, "the first report", reported)
				must.Do(t, tt.end(sb, remote))
			}
			if err := patience.Receive(t, "the end", ended); err == nil || errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, tt.want) && tt.want != nil {
				t.Errorf("%s, pull %v: ended with %v, want an error, and %v", name, pull, err, tt.want)
			}
		}
	}
}

// TestNothingStaysOpen checks that a mirror closes each file and directory of this machine, however it ends.
func TestNothingStaysOpen(t *testing.T) {
	t.Parallel()
	failed := errors.New("nobody reads it")
	for _, pull := range []bool{false, true} {
		sb, home := newSandbox(t, "", nil)
		local := t.TempDir()
		dirs := []string{local, filepath.Join(home, "app")}
		for _, dir := range dirs {
			write(t, dir, ignoreFile, "*.log")
			write(t, dir, "d/both", "text")
		}
		once := func(m *Mirror) error { _, err := m.Once(patience.Context(t)); return err }
		watch := func(m *Mirror) error { return m.Watch(patience.Context(t), func([]Change) error { return failed }) }
		both := func(m *Mirror) error {
			must.Is(t, watch(m), failed)
			write(t, dirs[0], "d/new", "text")
			write(t, dirs[1], "d/new", "text")
			return once(m)
		}
		for _, end := range []struct {
			name, dir string
			run       func(*Mirror) error
			want      error
		}{
			{"a watch", "app", watch, failed}, {"once", "app", once, nil}, {"once after a watch", "app", both, nil}, {"to a file", "app/d/both", once, syscall.ENOTDIR}, {"a watch of a file", "app/d/both", watch, errAny},
		} {
			for _, dir := range dirs {
				write(t, dir, "d/"+end.name, dir) // it differs
			}
			m := &Mirror{Local: local, Sandbox: sb, User: "me", Dir: end.dir, Pull: pull, MaxBytes: -1, MaxFiles: -1}
			if err := end.run(m); !errors.Is(err, end.want) && (err == nil || !errors.Is(end.want, errAny)) {
				t.Errorf("%s, pull %v: got error %v, want %v", end.name, pull, err, end.want)
			}
			if open := fdtest.Open(t, local); len(open) > 0 {
				t.Errorf("%s, pull %v: %q stay open", end.name, pull, open)
			}
		}
	}
}
