//go:build linux

package kernel

import (
	"strings"
	"unicode/utf8"
)

// decoder converts pieces of bytes to text. If a character is split between two pieces, its first
// bytes wait for the second piece. Bytes that are not UTF-8 become U+FFFD.
type decoder struct{ rest []byte }

func (d *decoder) decode(data []byte) string {
	data = append(d.rest, data...)
	keep := 0
	for n := 1; n < utf8.UTFMax && n <= len(data); n++ {
		if b := data[len(data)-n]; utf8.RuneStart(b) {
			if !utf8.FullRune(data[len(data)-n:]) {
				keep = n
			}
			break
		}
	}
	whole := data[:len(data)-keep]
	text := strings.ToValidUTF8(string(whole), "\uFFFD")
	d.rest = append([]byte(nil), data[len(data)-keep:]...)
	return text
}

// end returns the text of the bytes that still wait. It is called after the last piece.
func (d *decoder) end() string {
	text := strings.ToValidUTF8(string(d.rest), "\uFFFD")
	d.rest = nil
	return text
}
