package workspace_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/e2bctl/e2bctl/examples/frameworks/workspace"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

func TestPath(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ root, name, want string }{
		{"/home/user", "", "/home/user"},
		{"/home/user", "a/./b", "/home/user/a/b"},
		{"/home/user", "/home/user/a", "/home/user/a"},
		{"/home/user", "/home/user/../user/a", "/home/user/a"},
		{"/home/user", "..", ""},
		{"/home/user", "/", ""},
		{"/home/user", "/home/user2", ""},
		{"/home/user", "a/../../user2", ""},
		{"/home/user", "a\x00b", ""},
		{"/home/user", "a\xff", ""},
		{"/", "/etc/hosts", "/etc/hosts"},
	} {
		got, err := (&workspace.Workspace{Root: test.root}).Path(test.name)
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%q in %s: got %q, %v, want %q", test.name, test.root, got, err, test.want)
		}
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text  string
		limit int
		want  string
		more  bool
	}{{"ab", 2, "ab", false}, {"abc", 2, "ab", true}, {"aü", 2, "a", true}, {"a\U0001f600", 4, "a", true}, {"\xbf\xbf\xbf\xbf\xbf\xbf", 5, "\xbf", true}} {
		if got, more := workspace.Cut(test.text, test.limit); got != test.want || more != test.more {
			t.Errorf("%q to %d: got %q, %t", test.text, test.limit, got, more)
		}
	}
}

// TestFind checks searches among files that their owner made to mislead them.
func TestFind(t *testing.T) {
	t.Parallel()
	w := workspace.New(sandboxtest.New(t).Create(t))
	sandboxtest.Run(t, w.Sandbox, `set -e; mkdir -p a/b many $'lie\n/etc'; echo 'a needle' >a/b/one.py; printf '\0needle' >raw.py; printf 'x\nneedle: 1\n' >two.txt
		printf needle >'-e.py'; printf needle >$'lie\n/etc/passwd'; touch many/{1..600}; ln -s /etc link`)
	for _, test := range []struct {
		dir, pattern string
		want         []string
	}{
		{"", "*.py", []string{"/home/user/-e.py", "/home/user/a/b/one.py", "/home/user/raw.py"}},
		{"a", "b/*.py", []string{"/home/user/a/b/one.py"}},
		{"", "a/*.py", nil},
		{"", "passwd", []string{"/home/user/lie\n/etc/passwd"}},
		{"two.txt", "*.txt", []string{"/home/user/two.txt"}},
	} {
		got, err := w.Find(t.Context(), test.dir, test.pattern)
		must.Do(t, err)
		if slices.Sort(got); !slices.Equal(got, test.want) {
			t.Errorf("%s in %q: got %q, want %q", test.pattern, test.dir, got, test.want)
		}
	}
	if got, err := w.Find(t.Context(), "many", "*"); err != nil || len(got) != 500 {
		t.Errorf("many files: got %d, %v", len(got), err)
	}
	found, err := w.Grep(t.Context(), "", "needle", "")
	must.Do(t, err)
	var got []string
	for _, match := range found {
		got = append(got, fmt.Sprintf("%s:%d:%s", match.Path, match.Line, match.Text))
	}
	slices.Sort(got)
	want := []string{"/home/user/-e.py:1:needle", "/home/user/a/b/one.py:1:a needle", "/home/user/two.txt:2:needle: 1"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := w.Grep(t.Context(), "", "", ""); err == nil {
		t.Error("an empty text was looked for")
	}
}
