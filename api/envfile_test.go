package api

import (
	"strings"
	"testing"
)

// FuzzStatements checks that statements lose nothing of a file, and know their lines.
func FuzzStatements(f *testing.F) {
	for _, text := range []string{"", "A=1", "A=1\nB='x\ny'\n", "A: \"\\\"\n\" # end\n", "export A\n=\n", "A='\n'B=2\n", "#'\nA=1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rest, line := text, 1
		for _, st := range statements(text) {
			var ok bool
			if rest, ok = strings.CutPrefix(rest, st.text); !ok || st.text == "" || st.line != line {
				t.Fatalf("got %+v where line %d is left with %q", st, line, rest)
			}
			line += strings.Count(st.text, "\n")
		}
		if rest != "" {
			t.Errorf("%q is lost", rest)
		}
	})
}
