package shell

import (
	"slices"
	"strings"
	"testing"
)

// TestQuote checks that exactly the words with special characters are quoted, and the empty word.
func TestQuote(t *testing.T) {
	t.Parallel()
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./,:@%+"
	tests := map[string]string{"": `''`, plain: plain, "it's": `'it'\''s'`, "é": "'é'", "a b": "'a b'"}
	for c := range rune(128) {
		word := string(c)
		tests[word] = "'" + word + "'"
		if strings.Contains(plain, word) {
			tests[word] = word
		}
	}
	tests["'"] = `''\'''`
	for word, want := range tests {
		if got := Quote(word); got != want {
			t.Errorf("%q: got %s, want %s", word, got, want)
		}
	}
}

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
		`a "\""`:                   nil,
		"a\x00b":                   nil,
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
