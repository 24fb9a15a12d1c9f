package sandbox

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestRunProgram checks the files, the user, the variables, the input and the output of a program, and that its directory
// is removed afterwards.
func TestRunProgram(t *testing.T) {
	t.Parallel()
	sb, home, mine := newReal(t, nil)
	dir := t.TempDir()
	put(t, dir, map[string]string{"a": "a", "sub/b": "b", "skipped": "s"})
	var told, warned strings.Builder
	params := &ProgramParams{
		Dir: dir, Exclude: func(name string, _ fs.DirEntry) bool { return name == "skipped" }, Files: map[string][]byte{"sub/c": []byte("c"), "a": []byte("over")},
		Command: `find . -type f | sort; cat a sub/b sub/c -; echo " $X $HOME"; echo warn >&2; exit 3`, Envs: map[string]string{"X": "y"},
		User: "me", Stdin: strings.NewReader(" in"), Stdout: &told, Stderr: &warned, Timeout: patience.Limit, MaxOutputBytes: 1000,
	}
	result, err := sb.RunProgram(t.Context(), params)
	if exit, ok := errors.AsType[*ExitError](err); !ok || exit.Result.ExitCode != 3 || result == nil {
		t.Fatalf("got %+v and error %v, want status 3", result, err)
	}
	want := "./a\n./sub/b\n./sub/c\noverbc in y " + mine + "\n"
	if diff := gocmp.Diff([]string{want, want, "warn\n", "warn\n"}, []string{told.String(), result.Stdout, warned.String(), result.Stderr}); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	empty := func() bool {
		left, err := os.ReadDir(mine)
		more, err2 := os.ReadDir(home)
		return err == nil && err2 == nil && len(left)+len(more) == 0
	}
	patience.Until(t, "the directory is removed", empty)
	params.Stdin, params.MaxOutputBytes = nil, 8
	if result, _ = sb.RunProgram(t.Context(), params); result == nil || len(result.Stdout) >= len(want) {
		t.Errorf("got %+v, want only the ends of its output", result)
	}
	if _, err = sb.RunProgram(t.Context(), &ProgramParams{Command: "sleep 1000", Timeout: time.Millisecond}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got error %v, want that its time is over", err)
	}
	patience.Until(t, "each directory is removed", empty)
}

// TestRunProgramFails checks what is refused before anything runs, and the errors of each step.
func TestRunProgramFails(t *testing.T) {
	t.Parallel()
	var refused atomic.Value
	var requests atomic.Int64
	refused.Store("none")
	sb, _, _ := newReal(t, func(r *http.Request) bool {
		requests.Add(1)
		return strings.HasSuffix(r.URL.Path, refused.Load().(string))
	})
	one := map[string][]byte{"a": nil}
	for _, tt := range []struct {
		p       *ProgramParams
		refused string
		text    string
	}{
		{p: nil, text: "Command is empty"}, {p: &ProgramParams{Files: one}, text: "Command is empty"},
		{p: &ProgramParams{Command: "true", Files: map[string][]byte{"../a": nil}}, text: `"../a"`}, {p: &ProgramParams{Command: "true", Files: map[string][]byte{".": nil}}, text: `"."`},
		{p: &ProgramParams{Command: "true", Files: map[string][]byte{"/a": nil}}, text: `"/a"`}, {p: &ProgramParams{Command: "true", Files: map[string][]byte{"": nil}}, text: `""`},
		{p: &ProgramParams{Command: "true", Packages: []string{"--pre"}}, text: "--pre"}, {p: &ProgramParams{Command: "true", Lock: &LockFile{}, Packages: []string{"--pre"}}, text: "--pre"},
		{p: &ProgramParams{Command: "true", Lock: &LockFile{Packages: []LockedPackage{{Name: "x y"}}}}, text: "x y"},
		{p: &ProgramParams{Command: "true"}, refused: "/MakeDir", text: "mkdir "}, {p: &ProgramParams{Command: "true", Files: one}, refused: "/files", text: "write "},
		{p: &ProgramParams{Command: "true", Dir: t.TempDir()}, refused: "/files", text: "upload "},
		{p: &ProgramParams{Command: "true"}, refused: "/Start", text: "run a command"},
	} {
		before := requests.Load()
		refused.Store(cmp.Or(tt.refused, "none"))
		if _, err := sb.RunProgram(t.Context(), tt.p); err == nil || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%+v without %s: got error %v, want one with %q", tt.p, tt.refused, err, tt.text)
		}
		if tt.refused == "" && requests.Load() != before {
			t.Errorf("%+v: got requests, want none", tt.p)
		}
	}
	must.Do(t, sb.Close())
	if _, err := sb.RunProgram(t.Context(), &ProgramParams{Command: "true"}); !errors.Is(err, ErrClosed) {
		t.Errorf("got error %v, want %v", err, ErrClosed)
	}
}
