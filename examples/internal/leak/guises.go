package leak

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
	"unicode/utf16"
)

// guises returns the forms of the secret that a search finds.
func (s Secret) guises() [][]byte {
	text := []byte(s.Text)
	reversed := slices.Clone(text)
	slices.Reverse(reversed)
	list := [][]byte{
		text, reversed, []byte(hex.EncodeToString(text)), []byte(strings.ToUpper(hex.EncodeToString(text))),
	}
	// Python stores strings that contain other characters with two or four bytes each.
	var two, four []byte
	for _, unit := range utf16.Encode([]rune(s.Text)) {
		two = append(two, byte(unit), byte(unit>>8))
		four = append(four, byte(unit), byte(unit>>8), 0, 0)
	}
	list = append(list, two, four)
	// Its base64 depends on the number of bytes before it, modulo 3. Characters that depend on
	// neighbouring bytes are left out.
	for before := range 3 {
		for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			encoded := encoding.EncodeToString(append(make([]byte, before), text...))
			list = append(list, []byte(encoded[(before*8+5)/6:(before+len(text))*8/6]))
		}
	}
	slices.SortFunc(list, bytes.Compare)
	return slices.CompactFunc(list, bytes.Equal)
}

// mask converts ASCII to bytes that are not ASCII, which Python prints in hex. If a kernel applies
// mask to its whole output, a masked secret in that output therefore does not become the secret.
const mask = 0xa5

// masked returns the guises as a Python list. Each is combined with mask and written in hex, so
// that the code of the search does not bring the secret into the sandbox.
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
