package code

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// The history is bounded, survives a damaged file, and no other user can read it.
func TestHistory(t *testing.T) {
	state := t.TempDir()
	must.Do(t, os.Chmod(state, 0o700))
	t.Setenv("XDG_STATE_HOME", state)
	h, err := openHistory()
	must.Do(t, err)
	for i := range 2*maxCells + 5 {
		must.Do(t, h.keep(fmt.Sprintf("def f():\n\treturn %d", i)))
	}
	must.Do(t, h.keep(fmt.Sprintf("def f():\n\treturn %d", 2*maxCells+4))) // again
	must.Do(t, h.keep(strings.Repeat("x", maxCellBytes+1)))
	latest := fmt.Sprintf("def f():⏎⇥return %d", 2*maxCells+4)
	if h.Len() != maxCells || h.At(0) != latest {
		t.Errorf("it has %d cells, the latest %q, want %d and %q", h.Len(), h.At(0), maxCells, latest)
	}
	file := filepath.Join(state, "e2bctl", "history", "code")
	text, err := os.ReadFile(file)
	must.Do(t, err)
	must.Do(t, os.WriteFile(file, append(text, "no JSON\n"...), 0o600))
	must.Do(t, os.Chmod(file, 0o644))

	h, err = openHistory()
	must.Do(t, err)
	if h.Len() != maxCells || h.At(0) != latest {
		t.Errorf("read again it has %d cells, the latest %q", h.Len(), h.At(0))
	}
	text, err = os.ReadFile(file)
	must.Do(t, err)
	if n := bytes.Count(text, []byte("\n")); n != maxCells {
		t.Errorf("the file has %d lines, want %d", n, maxCells)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file has the mode %v (%v), want 0600", info.Mode(), err)
	}
	t.Setenv("XDG_STATE_HOME", filepath.Join(file, "below-a-file"))
	if h, err := openHistory(); err == nil || h.keep("x") != nil || h.Len() != 1 {
		t.Errorf("without a directory: %v and %d cells, want an error and what is typed", err, h.Len())
	}
}

func TestHelpOn(t *testing.T) {
	t.Parallel()
	p := &prompt{python: true}
	for cell, want := range map[string]string{
		"len?": "len", "len??": "len+", "?len": "len", "??a.b": "a.b+", " x? ": "x", "?": "",
		"x": "-", "a ? b": "-", "'?'": "-", "x???": "-", "x = y?": "-", "x?\ny?": "-", "# why?": "-",
	} {
		name, source, ok := p.helpOn(cell)
		got := name + map[bool]string{true: "+"}[source]
		if !ok {
			got = "-"
		}
		if got != want {
			t.Errorf("%q asks about %q, want %q", cell, got, want)
		}
	}
	if _, _, ok := (&prompt{}).helpOn("ls file?"); ok {
		t.Error("a shell's ? is a question for help")
	}
}

// TestInColumns checks the matches on the screen: as many columns as fit, and only the first of many matches.
func TestInColumns(t *testing.T) {
	t.Parallel()
	many := func(n int) []string { return strings.Split(strings.Repeat("a\n", n-1)+"a", "\n") }
	lines := func(n int) string { return strings.Join(many(n), "\n") }
	for want, tt := range map[string]struct {
		matches []string
		width   int
	}{
		"a    bcd\né":                         {[]string{"a", "bcd", "é"}, 10},
		"a\nbcd\né":                           {[]string{"a", "bcd", "é"}, 9},
		"a    bcd  é":                         {[]string{"a", "bcd", "é"}, 15},
		"a-long-match\nb":                     {[]string{"a-long-match", "b"}, 3},
		lines(maxShown):                       {many(maxShown), 3},
		lines(maxShown) + "\n… and 1 more":    {many(maxShown + 1), 3},
		lines(maxShown) + "\n… and 1000 more": {many(maxShown + 1000), 3},
	} {
		if got := inColumns(tt.matches, tt.width); got != want {
			t.Errorf("%d matches in %d columns: got %q, want %q", len(tt.matches), tt.width, got, want)
		}
	}
}

// TestCommonPrefix checks the text with which all matches begin.
func TestCommonPrefix(t *testing.T) {
	t.Parallel()
	for want, texts := range map[string][]string{"ab": {"abc", "abd"}, "alpha": {"alphabet", "alpha"}, "x": {"x"}, "": {"é1", "è1"}, "é": {"é1", "éè", "é"}} {
		if got := commonPrefix(texts); got != want {
			t.Errorf("%q: got %q, want %q", texts, got, want)
		}
	}
}

// TestLongestCells checks that the longest cell is read again, however long its line in the file is, and that an empty one is
// not kept.
func TestLongestCells(t *testing.T) {
	state := t.TempDir()
	must.Do(t, os.Chmod(state, 0o700))
	t.Setenv("XDG_STATE_HOME", state)
	longest := strings.Repeat("\x01", maxCellBytes)
	h, err := openHistory()
	must.Do(t, err)
	for _, cell := range []string{"a", longest, longest + "\x01", "", "b"} {
		must.Do(t, h.keep(cell))
	}
	h, err = openHistory()
	must.Do(t, err)
	if diff := cmp.Diff([]string{"a", longest, "b"}, h.cells); diff != "" {
		t.Errorf("the cells (-want +got):\n%s", diff)
	}
}

// TestRewrittenHistory checks that the file of the history keeps its lines until it has twice as many as are needed.
func TestRewrittenHistory(t *testing.T) {
	state := t.TempDir()
	must.Do(t, os.Chmod(state, 0o700))
	t.Setenv("XDG_STATE_HOME", state)
	file := filepath.Join(state, "e2bctl", "history", "code")
	_, err := openHistory()
	must.Do(t, err)
	for lines, want := range map[int]int{2*maxCells - 1: 2*maxCells - 1, 2 * maxCells: maxCells} {
		var text strings.Builder
		for i := range lines {
			fmt.Fprintf(&text, "\"%d\"\n", i)
		}
		must.Do(t, os.WriteFile(file, []byte(text.String()), 0o600))
		h, err := openHistory()
		must.Do(t, err)
		left, err := os.ReadFile(file)
		must.Do(t, err)
		if n := strings.Count(string(left), "\n"); n != want || len(h.cells) != maxCells || h.At(0) != fmt.Sprint(lines-1) {
			t.Errorf("%d lines: the file has %d, and the history %d cells, the latest %s; want %d lines", lines, n, len(h.cells), h.At(0), want)
		}
	}
}
