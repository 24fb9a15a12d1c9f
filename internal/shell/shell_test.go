package shell

import (
	"slices"
	"strings"
	"testing"
)

func TestWords(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		"/bin/echo":                {"/bin/echo"},
		"  a\tb  -c=d ":            {"a", "b", "-c=d"},
		`a 'b c' "d e"f \$x ''`:    {"a", "b c", "d ef", "$x", ""},
		`'$(x)' "it's" 'say "no"'`: {"$(x)", "it's", `say "no"`},
		"a 'two\nlines'":           {"a", "two\nlines"},
		"":                         nil,
		" ":                        nil,
		"a; b":                     nil,
		"a && b":                   nil,
		"a >b":                     nil,
		"a\nb":                     nil,
		"a $b":                     nil,
		`a "$b"`:                   nil,
		"a *":                      nil,
		"a ~":                      nil,
		"X=1 a":                    nil,
		"a # b":                    nil,
		"a 'b":                     nil,
		`a \`:                      nil,
		"a \\\nb":                  nil,
	} {
		if got, ok := Words(line); ok != (want != nil) || ok && !slices.Equal(got, want) {
			t.Errorf("%q: got %q, %v, want %q", line, got, ok, want)
		}
	}
}

// FuzzWords checks that Words splits the text of Quote into the same words.
func FuzzWords(f *testing.F) {
	f.Add("echo", "it's $HOME")
	f.Fuzz(func(t *testing.T, first, second string) {
		want := []string{strings.ToValidUTF8(first, "?"), strings.ToValidUTF8(second, "?")}
		if got, ok := Words(Quote(want[0]) + " " + Quote(want[1])); !ok || !slices.Equal(got, want) {
			t.Errorf("got %q, %v, want %q", got, ok, want)
		}
	})
}
