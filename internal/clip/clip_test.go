package clip_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/e2bctl/e2bctl/internal/clip"
)

func TestText(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in    string
		limit int
		want  string
	}{
		{"", 0, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "abc…"},
		{"é", 1, "…"}, // é has two bytes
		{"aé", 2, "a…"},
		{"a\U0001F600b", 4, "a…"}, // and this one has four
		{"a\xffb", 3, "a\uFFFDb"},
		{"a\nb", 3, "a\nb"},
	} {
		if got := clip.Text(tt.in, tt.limit); got != tt.want {
			t.Errorf("Text(%q, %d) = %q, want %q", tt.in, tt.limit, got, tt.want)
		}
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	if got, want := clip.Line(" a\x1b[31m\r\nb\t", 64), "a [31m  b"; got != want {
		t.Errorf("Line = %q, want %q", got, want)
	}
	for in, want := range map[string]string{"": "", "one": "one", "one\ntwo\n\n": "two", "one\n\x07two ": " two"} {
		if got := clip.LastLine(in, 64); got != want {
			t.Errorf("LastLine(%q) = %q, want %q", in, got, want)
		}
	}
}

// FuzzText checks that the result is UTF-8, no longer than the limit and the ellipsis,
// and that the text before the ellipsis is a prefix of the original.
func FuzzText(f *testing.F) {
	f.Add("a\U0001F600b", 4)
	f.Add("\xf0\x9f\x98", 2)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		if limit < 0 || limit > 1000 {
			return
		}
		got := clip.Text(s, limit)
		if !utf8.ValidString(got) {
			t.Errorf("%q is not UTF-8", got)
		}
		if utf8.ValidString(s) && len(got) > limit+len("…") {
			t.Errorf("%d bytes, limit %d", len(got), limit)
		}
		if cut, ok := strings.CutSuffix(got, "…"); utf8.ValidString(s) && ok && !strings.HasPrefix(s, cut) {
			t.Errorf("%q is not the beginning of %q", cut, s)
		}
	})
}

// TestCutCharacters checks that only bytes of an incomplete character are removed.
func TestCutCharacters(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][2]string{
		"": {}, "a": {"a", "a"}, "\xc3": {"", "\xc3"}, "a\xf0\x9f\x98": {"a", "a\xf0\x9f\x98"}, "\U0001F600": {"\U0001F600", "\U0001F600"},
		"\x98": {"\x98", ""}, "\x9f\x98\x80a": {"\x9f\x98\x80a", "a"}, "\x80\x80\x80\x80": {"\x80\x80\x80\x80", "\x80"},
	} {
		if got := [2]string{clip.WithoutCutRune(in), clip.WithoutRestOfRune(in)}; got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
