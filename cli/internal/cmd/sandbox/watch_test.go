package sandbox

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

// TestChangesOfAList checks the lines of ls --watch for sandboxes that come, change and go.
func TestChangesOfAList(t *testing.T) {
	t.Parallel()
	one, two := sandbox.Info{}, sandbox.Info{}
	one.ID, two.ID = "i1", "i2"
	changed := one
	changed.State = sandbox.StatePaused
	var out bytes.Buffer
	opts := &listOptions{IO: cmdutil.NewIOStreams(nil, &out, nil)}
	show := opts.writeChanges()
	for i, tt := range []struct {
		infos []sandbox.Info
		want  []string
	}{
		{[]sandbox.Info{one, two}, []string{`{"type":"added","sandbox":{"sandboxID":"i1"`, `{"type":"added","sandbox":{"sandboxID":"i2"`}},
		{[]sandbox.Info{one, two}, nil},
		{[]sandbox.Info{changed}, []string{`{"type":"changed","sandbox":{"sandboxID":"i1"`, `{"type":"removed","sandbox":{"sandboxID":"i2"`}},
		{[]sandbox.Info{changed, two}, []string{`{"type":"added","sandbox":{"sandboxID":"i2"`}},
		{nil, []string{`{"type":"removed"`, `{"type":"removed"`}},
	} {
		out.Reset()
		must.Do(t, show(tt.infos))
		lines := strings.FieldsFunc(out.String(), func(r rune) bool { return r == '\n' })
		for at, want := range tt.want {
			if len(lines) != len(tt.want) || !strings.HasPrefix(lines[at], want) {
				t.Errorf("list %d: got %q, want %q", i, lines, tt.want)
			}
		}
		if len(tt.want) == 0 && len(lines) > 0 {
			t.Errorf("list %d: got %q, want nothing", i, lines)
		}
	}
}

// TestUnshownChanges checks that each change that cannot be written ends ls --watch.
func TestUnshownChanges(t *testing.T) {
	t.Parallel()
	full := errors.New("the disk is full")
	one := sandbox.Info{}
	one.ID = "i1"
	paused := one
	paused.State = sandbox.StatePaused
	for name, before := range map[string][]sandbox.Info{"added": nil, "changed": {one}, "removed": {one, {}}, "drawn": nil} {
		var out bytes.Buffer
		opts := &listOptions{IO: cmdutil.NewIOStreams(nil, &out, nil)}
		show := opts.writeChanges()
		if name == "drawn" {
			show = opts.redraw()
		}
		must.Do(t, show(before))
		after := []sandbox.Info{paused}
		if name == "removed" {
			after = before[:1]
		}
		opts.IO.Out = failingOutput{full}
		if err := show(after); !errors.Is(err, full) {
			t.Errorf("%s: got error %v, want %v", name, err, full)
		}
	}
}

// failingOutput takes nothing.
type failingOutput struct{ err error }

func (f failingOutput) Write([]byte) (int, error) { return 0, f.err }

// TestRedrawnList checks that a table is drawn again when it has changed, and how the old one is cleared.
func TestRedrawnList(t *testing.T) {
	one := sandbox.Info{}
	one.ID, one.StartedAt = "i1", time.Now()
	paused := one
	paused.State = sandbox.StatePaused
	for terminal, clear := range map[string]string{"xterm": "\x1b[H\x1b[2J", "dumb": "\n"} {
		t.Setenv("TERM", terminal)
		var out bytes.Buffer
		opts := &listOptions{IO: cmdutil.NewIOStreams(nil, &out, nil)}
		show := opts.redraw()
		for i, tt := range []struct {
			infos []sandbox.Info
			drawn bool
		}{{[]sandbox.Info{paused}, true}, {[]sandbox.Info{paused}, false}, {nil, true}, {[]sandbox.Info{paused}, true}} {
			out.Reset()
			must.Do(t, show(tt.infos))
			if terminal != "dumb" && !tt.drawn {
				continue // its times may have changed meanwhile
			}
			if drawn := strings.HasPrefix(out.String(), clear+"ID "); drawn != tt.drawn {
				t.Errorf("%s, list %d: got %q, drawn %v", terminal, i, &out, drawn)
			}
			if shown := strings.Contains(out.String(), "i1"); shown != (tt.drawn && len(tt.infos) > 0) {
				t.Errorf("%s, list %d: got %q, with the sandbox: %v", terminal, i, &out, shown)
			}
		}
	}
}

// TestWatchedList checks how often sandboxes are listed, and the ends of that.
func TestWatchedList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failed := errors.New("failed")
		for name, tt := range map[string]struct {
			list, show error
			lists      int
		}{"the list fails": {failed, nil, 1}, "the output fails": {nil, failed, 1}, "it is stopped": {nil, nil, 4}} {
			ctx, cancel := context.WithTimeoutCause(t.Context(), watchInterval*7/2, failed)
			lists := 0
			err := listWatch(ctx, func(context.Context) ([]sandbox.Info, error) { lists++; return nil, tt.list }, func([]sandbox.Info) error { return tt.show })
			if !errors.Is(err, failed) || lists != tt.lists {
				t.Errorf("%s: got error %v after %d lists, want %d", name, err, lists, tt.lists)
			}
			cancel()
		}
		if err := poll(t.Context(), func() (bool, error) { return false, failed }); !errors.Is(err, failed) {
			t.Errorf("a failed check ends with %v", err)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), waitEvery*5/2, failed)
		defer cancel()
		checks := 0
		if err := poll(ctx, func() (bool, error) { checks++; return false, nil }); !errors.Is(err, failed) || checks != 3 {
			t.Errorf("got error %v after %d checks, want the cause of the end after 3", err, checks)
		}
		checks = 0
		if err := poll(t.Context(), func() (bool, error) { checks++; return checks == 2, nil }); err != nil || checks != 2 {
			t.Errorf("got error %v after %d checks", err, checks)
		}
		if err := inTime(ctx, nil); err != nil {
			t.Errorf("success became %v", err)
		}
	})
}
