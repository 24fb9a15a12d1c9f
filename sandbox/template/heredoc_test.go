package template

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestHeredocs checks the commands of RUN and COPY with here-documents.
func TestHeredocs(t *testing.T) {
	t.Parallel()
	const into = "mkdir -p \"$(dirname \"$E2B_HEREDOC_DEST\")\" && cat <<"
	named := func(path, name string) string {
		return "RUN E2B_HEREDOC_DEST=" + path + "\nif [ -d \"$E2B_HEREDOC_DEST\" ]; then E2B_HEREDOC_DEST=\"$E2B_HEREDOC_DEST\"/" + name + "; fi\n"
	}
	const to = " >\"$E2B_HEREDOC_DEST\"\n"
	for text, want := range map[string]string{
		"RUN <<A\none\ntwo\nA":                     "RUN one\ntwo\n",
		"RUN <<-A\n\tone\n\ttwo\n\tA":              "RUN one\ntwo\n",
		"RUN cat <<A <<B\none\nA\ntwo\nB":          "RUN cat <<A <<B\none\nA\ntwo\nB",
		"RUN cat <<A\none\nA":                      "RUN cat <<A\none\nA",
		"RUN <<A\n#!/bin/x\ncode\nA":               "RUN cat <<'E2B_HEREDOC_A' >/tmp/A\n#!/bin/x\ncode\nE2B_HEREDOC_A\nchmod +x /tmp/A && /tmp/A\nE2B_EXIT=$?; rm -f /tmp/A; exit $E2B_EXIT",
		"COPY <<A /b/\ntext $X\nA":                 "RUN E2B_HEREDOC_DEST=/b/A\n" + into + "E2B_HEREDOC_A" + to + "text $X\nE2B_HEREDOC_A|root",
		"COPY <<'A' /b\ntext $X\nA":                named("/b", "A") + into + "'E2B_HEREDOC_A'" + to + "text $X\nE2B_HEREDOC_A|root",
		"COPY <<A.x /b\nE2B_HEREDOC_A_x\nA.x":      named("/b", "A.x") + into + "E2B_HEREDOC_A_x_" + to + "E2B_HEREDOC_A_x\nE2B_HEREDOC_A_x_|root",
		"COPY --chown=me --chmod=600 <<A /b\nt\nA": named("/b", "A") + into + "E2B_HEREDOC_A" + to + "t\nE2B_HEREDOC_A\nchown me \"$E2B_HEREDOC_DEST\"\nchmod 600 \"$E2B_HEREDOC_DEST\"|root",
		"COPY <<A /b\nA":                           named("/b", "A") + into + "E2B_HEREDOC_A" + to + "E2B_HEREDOC_A|root",
	} {
		d := FromDockerfile(strings.NewReader("FROM x\nUSER root\nWORKDIR /\n"+text), nil)
		must.Do(t, d.err)
		if diff := cmp.Diff("USER root\nWORKDIR /\nUSER root\nWORKDIR /\n"+want, lines(d)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

// TestExpandable checks that a shell reads a text of a here-document as Docker does.
func TestExpandable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain ü": "plain ü", "$A ${B} $_c $1": "$A ${B} $_c $1", "$ $$ $(x) $-": "\\$ \\$\\$ \\$(x) \\$-", "`x`": "\\`x\\`", `\$A`: `\$A`, `\\`: `\\`, `\n`: "n", `a\`: "a", "$": `\$`,
	} {
		if got := expandable(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{"": "", "a": "a\n", "a\n": "a\n", "\n": "\n"} {
		if got := wholeLines(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	for r, want := range map[rune]bool{'_': true, '0': true, '9': true, 'a': true, 'z': true, 'A': true, 'Z': true, '/': false, ':': false, '`': false, '{': false, '@': false, '[': false, '-': false, 'ü': false} {
		if got := isNameRune(r); got != want {
			t.Errorf("%q: got %v, want %v", r, got, want)
		}
	}
}
