package template

import (
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/fdtest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// wantClosed checks that neither a directory of this machine nor a file in it is open.
func wantClosed(t *testing.T, what, dir string) {
	t.Helper()
	if open := fdtest.Open(t, dir); len(open) > 0 {
		t.Errorf("%s: %q are open", what, open)
	}
}

// TestSourceIsClosed checks that each way through a build and a check closes the directory, its ignore file, and
// the files that were read.
func TestSourceIsClosed(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"a": "a", "plain": tarOf(t, false), ".dockerignore": "b"})
	for text, fails := range map[string]bool{"COPY a /": false, "ADD plain /": false, "COPY a none /": true, "COPY a /\nCOPY none /": true} {
		d, p := FromDockerfile(strings.NewReader("FROM x\n"+text), nil), &BuildParams{Dir: dir}
		if _, err := Check(t.Context(), d, p); (err != nil) != fails {
			t.Errorf("%s: got error %v, want one: %v", text, err, fails)
		}
		wantClosed(t, "a check of "+text, dir)
		if _, err := Start(t.Context(), (&fake{}).templates(t), "x", d, p); (err != nil) != fails {
			t.Errorf("%s: got error %v, want one: %v", text, err, fails)
		}
		wantClosed(t, "a build of "+text, dir)
	}
	if s, err := openSource(dir, "", []string{"["}); err == nil {
		s.close()
		t.Error("a bad pattern: got no error")
	}
	wantClosed(t, "a bad pattern", dir)
	s, err := openSource(dir, "", nil)
	must.Do(t, err)
	s.close()
	wantClosed(t, "a source", dir)
}
