// Package clip shortens text from untrusted or foreign sources, so that it fits into a message or a
// log.
package clip

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns s. If s is longer than limit bytes, Text returns the first limit bytes of s with an
// ellipsis. It does not cut a character into parts. Bytes that are not UTF-8 become U+FFFD.
func Text(s string, limit int) string {
	if len(s) > limit {
		s = WithoutCutRune(s[:limit]) + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// Line is like [Text], but returns text for one line of a terminal: it removes white space at both
// ends of s and replaces each control character by a space.
func Line(s string, limit int) string {
	return Text(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.TrimSpace(s)), limit)
}

// LastLine applies [Line] to the last line of s that is not empty.
func LastLine(s string, limit int) string {
	s = strings.TrimSpace(s)
	return Line(s[strings.LastIndexByte(s, '\n')+1:], limit)
}

// WithoutCutRune returns s without an incomplete character at its end.
func WithoutCutRune[T string | []byte](s T) T {
	for i := 1; i < utf8.UTFMax && i <= len(s); i++ {
		if r := s[len(s)-i:]; utf8.RuneStart(r[0]) {
			if !utf8.FullRuneInString(string(r)) {
				return s[:len(s)-i]
			}
			return s
		}
	}
	return s
}

// WithoutRestOfRune returns s without bytes at its beginning that belong to an incomplete
// character.
func WithoutRestOfRune[T string | []byte](s T) T {
	for i := 0; i < utf8.UTFMax-1 && len(s) > 0 && !utf8.RuneStart(s[0]); i++ {
		s = s[1:]
	}
	return s
}
