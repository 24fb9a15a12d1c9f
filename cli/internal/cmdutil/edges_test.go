//go:build unix

package cmdutil

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

// TestWordsAndLines checks where lines of a table are broken, and the widths of unusual characters.
func TestWordsAndLines(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{"ab cd ef": {"ab cd", "ef"}, "a  cd": {"a  cd"}, "abcdef g": {"abcdef", "g"}, "1 MiB x": {"1 MiB", "x"}} {
		if got := linesOf(text, 5); !slices.Equal(got, want) {
			t.Errorf("%q: got the lines %q, want %q", text, got, want)
		}
	}
	if got := wordsOf("GiB of 2 GiB"); !slices.Equal(got, []string{"GiB", "of", "2 GiB"}) {
		t.Errorf("got the words %q", got)
	}
	for text, want := range map[string]int{"Ａ": 2, "数": 2, "e\u0301": 1, "é": 1, "\u200b": 0} {
		if got := columns(text); got != want {
			t.Errorf("%q takes %d columns, want %d", text, got, want)
		}
	}
	for r, want := range map[rune]bool{'\u2028': true, '\u2029': true, '\u202e': true, '\x1b': true, '\u0085': true, 'a': false, ' ': false, '\u200b': false} {
		if IsActive(r) != want {
			t.Errorf("a terminal acts on %q: got %v", r, !want)
		}
	}
	var out strings.Builder
	Explain(&out, "run", &sandbox.CommandResult{ExitCode: 3})
	if out.Len() > 0 {
		t.Errorf("of a result without a status it says %q", &out)
	}
}

// TestNoConnection checks that a command which cannot connect says so, does not run, and leaves no connection open.
func TestNoConnection(t *testing.T) {
	fresh(t)
	theirs := newRecorder(t, "iremote")
	gone := "--api-url=" + theirs.url
	for args, tt := range map[string]struct {
		key, id string
		want    error
	}{
		"--local " + gone: {"e2b_00", "iremote", nil}, "": {"", "iremote", api.ErrNoAPIKey}, gone: {"e2b_00", "iother", api.ErrNotFound}, gone + " --local=false": {"e2b_00", "../x", api.ErrInvalidArgument},
	} {
		t.Setenv("E2B_API_KEY", tt.key)
		theirs.refuses = map[bool]string{true: "no such sandbox"}[tt.id == "iother"]
		f := NewFactory(NewIOStreams(nil, io.Discard, io.Discard), nil)
		with := func(run func(cmd *cobra.Command, isLocal bool) error) error {
			isLocal := false
			cmd := parsed(t, func(cmd *cobra.Command) {
				f.AddFlags(cmd)
				AddLocalFlag(cmd, &isLocal)
			}, strings.Fields(args)...)
			cmd.SetContext(t.Context())
			return run(cmd, isLocal)
		}
		err := with(func(cmd *cobra.Command, isLocal bool) error {
			return f.WithSandbox(cmd, isLocal, tt.id, func(context.Context, *sandbox.Sandbox) error {
				t.Errorf("%s: the command runs", args)
				return nil
			})
		})
		if err == nil || tt.want != nil && tt.id != "iother" && !errors.Is(err, tt.want) {
			t.Errorf("%s: got error %v, want %v", args, err, tt.want)
		}
		_, isUsage := errors.AsType[*UsageError](err)
		if isUsage != (tt.want == nil) {
			t.Errorf("%s: got error %v, which is a mistake in the command line: %v", args, err, isUsage)
		}
		var used *Connection
		choices := []string{}
		must.Do(t, with(func(cmd *cobra.Command, _ bool) error {
			choices = f.Complete(t.Context(), cmd, func(_ context.Context, conn *Connection) ([]string, error) {
				used = conn
				return []string{"a"}, nil
			})
			return nil
		}))
		if works := strings.HasPrefix(args, gone); (used != nil) != works || len(choices) > 0 != works {
			t.Errorf("%s: got the choices %q of %v", args, choices, used)
		}
		if used != nil {
			if _, err := used.Create(t.Context()); !errors.Is(err, sandbox.ErrClosed) {
				t.Errorf("%s: the connection is left open: %v", args, err)
			}
		}
	}
}

// TestFilesThatCannotBeWritten checks that the ID of a sandbox which could not be written is an error, for each kind of file.
func TestFilesThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	full := filepath.Join(dir, "full")
	must.Do(t, os.MkdirAll(filepath.Join(full, "x"), 0o700))
	closed, err := os.CreateTemp(dir, "closed")
	must.Do(t, errors.Join(err, closed.Close()))
	open, err := os.CreateTemp(dir, "open")
	must.Do(t, err)
	for what, files := range map[string]*idFiles{"the output of a step": {output: closed, key: "id"}, "a closed file": {beside: closed, name: full}, "a directory in its place": {beside: open, name: full}} {
		if err := files.write("i1"); err == nil || !strings.Contains(err.Error(), "writing its ID to") {
			t.Errorf("%s: got error %v", what, err)
		}
		files.close()
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || !slices.Equal(left, []string{full}) {
		t.Errorf("left are %q (%v), want no temporary file", left, err)
	}
}

// TestStreamsThatAreNoFiles checks what is done with streams of another kind than the usual one.
func TestStreamsThatAreNoFiles(t *testing.T) {
	t.Parallel()
	WatchReader(io.Discard, func() { t.Error("a writer that is no file has lost its reader") })()
	r, w, err := os.Pipe()
	must.Do(t, err)
	defer r.Close()
	ios := NewIOStreams(r, io.Discard, io.Discard)
	reading := ios.Reading(t.Context())
	if _, ok := reading.(keptOpen); ok {
		t.Error("a pipe is read as a file")
	}
	_, err = w.WriteString("text")
	must.Do(t, errors.Join(err, w.Close()))
	if text, err := io.ReadAll(reading); err != nil || string(text) != "text" {
		t.Errorf("got %q and error %v", text, err)
	}
	must.Do(t, reading.Close())
	if restore, err := MakeRaw(r); err == nil {
		t.Error("a pipe became a raw terminal", restore())
	}
	restored := 0
	func() {
		defer func() {
			if cause := recover(); cause != "mine" || restored != 1 {
				t.Errorf("got the panic %v after the terminal was restored %d times", cause, restored)
			}
		}()
		defer RestoreInPanic(func() error { restored++; return nil })
		panic("mine")
	}()
	func() { defer RestoreInPanic(func() error { restored++; return nil }) }()
	if restored != 1 {
		t.Error("the terminal was restored without a panic")
	}
}

// TestNetworkFlagsAlone checks that each flag alone counts as given, and is an option of the sandbox.
func TestNetworkFlagsAlone(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"", "--no-internet", "--allow-out=a.test", "--deny-out=10.0.0.0/8", "--header=a.test:A=b", "--allow-request=GET a.test"} {
		var n NetworkFlags
		var given []string
		if args != "" {
			given = []string{args}
		}
		parsed(t, func(cmd *cobra.Command) { n.add(cmd.Flags()) }, given...)
		if want := args != ""; n.Given() != want || len(n.options()) > 0 != want {
			t.Errorf("%s: given %v, with %d options", args, n.Given(), len(n.options()))
		}
	}
	var m hostMounts
	must.Do(t, m.Set("/a:/b:ro:rw"))
	if got := fmt.Sprint(m[0]); got != fmt.Sprint(sandbox.Mount{Dir: "/a", Path: "/b:ro", Writable: true}) {
		t.Errorf("got the mount %s", got)
	}
}
