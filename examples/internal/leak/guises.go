package leak

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
	"unicode/utf16"
)

// guises are the forms in which a secret is recognised.
func (s Secret) guises() [][]byte {
	text := []byte(s.Text)
	reversed := slices.Clone(text)
	slices.Reverse(reversed)
	list := [][]byte{
		text, reversed, []byte(hex.EncodeToString(text)), []byte(strings.ToUpper(hex.EncodeToString(text))),
	}
	// As Python keeps strings with other characters in them.
	var two, four []byte
	for _, unit := range utf16.Encode([]rune(s.Text)) {
		two = append(two, byte(unit), byte(unit>>8))
		four = append(four, byte(unit), byte(unit>>8), 0, 0)
	}
	list = append(list, two, four)
	// In base64 it looks different after 0, 1 and 2 other bytes; what depends on
	// its neighbours is left out.
	for before := range 3 {
		for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			encoded := encoding.EncodeToString(append(make([]byte, before), text...))
			list = append(list, []byte(encoded[(before*8+5)/6:(before+len(text))*8/6]))
		}
	}
	slices.SortFunc(list, bytes.Compare)
	return slices.CompactFunc(list, bytes.Equal)
}

// mask makes ASCII what Python shows in hex: a kernel that masks all that it shows
// does not make the secret of a masked one.
const mask = 0xa5

// masked are the guises as a sandbox is told them, a list in Python: it must not
// learn the secret from the search.
func (s Secret) masked() string {
	var list []string
	for _, guise := range s.guises() {
		list = append(list, "'"+masked(guise)+"'")
	}
	return "[" + strings.Join(list, ", ") + "]"
}

func masked(text []byte) string {
	hidden := slices.Clone(text)
	for i := range hidden {
		hidden[i] ^= mask
	}
	return hex.EncodeToString(hidden)
}
