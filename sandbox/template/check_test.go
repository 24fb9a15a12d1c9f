package template

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCheck checks that Check reports all mistakes of a Dockerfile with their lines, and the parts
// that a build would leave out.
func TestCheck(t *testing.T) {
	t.Parallel()
	dir := tree(t, map[string]string{"a": "a"})
	const cached = "Dockerfile: line 2: --mount=type=cache of RUN is not supported, and left out"
	for text, want := range map[string]string{
		"COPY a /b": "",
		"COPY --parents a /b\nRUN x\nSHELL [\"x\"]\nCOPY ../a /c\nRUN y": "line 3: --parents of COPY|line 5: SHELL is|line 6: copy \"../a\"",
		"COPY a b* /c/\nCOPY b /d":                                       "line 4: copy \"b\": file does not exist",
	} {
		text = "FROM x\nRUN --mount=type=cache,target=/x y\n" + text
		notices, err := Check(t.Context(), FromDockerfile(strings.NewReader(text), nil), &BuildParams{Dir: dir})
		if diff := cmp.Diff([]string{cached}, notices); diff != "" {
			t.Errorf("%s: notices (-want +got):\n%s", text, diff)
		}
		if want == "" && err == nil {
			continue
		}
		if err == nil || want == "" {
			t.Errorf("%s: got error %v, want one with %q", text, err, want)
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		parts := strings.Split(want, "|")
		if len(lines) != len(parts) {
			t.Errorf("%s: got %q, want %d lines", text, lines, len(parts))
			continue
		}
		for i, part := range parts {
			if !strings.Contains(lines[i], part) {
				t.Errorf("%s: got %q, want %q in it", text, lines[i], part)
			}
		}
	}
}

// A COPY of nothing but patterns without a match copies nothing, which is told with its line.
func TestCheckCopiesNothing(t *testing.T) {
	t.Parallel()
	d := FromDockerfile(strings.NewReader("FROM x\nCOPY b* /b/\nCOPY a c* /c/\nCOPY <<A b* /d/\ntext\nA\nCOPY *.log /e/"), nil)
	notices, err := Check(t.Context(), d, &BuildParams{Dir: tree(t, map[string]string{"a": "a", "x.log": "ignored"}), Ignore: []string{"*.log"}})
	want := []string{"the Dockerfile, line 2: nothing is copied: nothing matches b*", "the Dockerfile, line 7: nothing is copied: nothing matches *.log"}
	if diff := cmp.Diff(want, notices); diff != "" || err != nil {
		t.Errorf("error %v, notices (-want +got):\n%s", err, diff)
	}
	// Without parameters, the files are those of the working directory.
	if notices, err := Check(t.Context(), FromBase().Copy("check.go", "/", nil), nil); notices != nil || err != nil {
		t.Errorf("got notices %v and error %v", notices, err)
	}
}
