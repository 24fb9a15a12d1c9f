package code

import "testing"

// TestKeysOfTerminals checks the form of each special key for the line editor, in each form that terminals send.
func TestKeysOfTerminals(t *testing.T) {
	t.Parallel()
	for want, keys := range map[string][]string{
		"\x1b[A": {"\x1bOA", "\x1b[A"}, "\x1b[B": {"\x1bOB", "\x1b[B"}, "\x1b[C": {"\x1bOC", "\x1b[C"}, "\x1b[D": {"\x1bOD", "\x1b[D"},
		"\x1b[H": {"\x1bOH", "\x1b[H", "\x1b[1~", "\x1b[7~"}, "\x1b[F": {"\x1bOF", "\x1b[F", "\x1b[4~", "\x1b[8~"}, "\x1b[3~": {"\x1b[3~"},
		"\x1b[1;3D": {"\x1bb", "\x1b[1;5D", "\x1b[1;3D"}, "\x1b[1;3C": {"\x1bf", "\x1b[1;5C", "\x1b[1;3C"},
		"": {"\x1b[5~", "\x1b[Z", "\x1bOP", "\x1bx"},
	} {
		for _, key := range keys {
			if got := typedInto(t, &keyboard{news: make(chan struct{}, 1)}, key, 1); got != want {
				t.Errorf("%q: the editor gets %q, want %q", key, got, want)
			}
			if n := keyLength([]byte(key + "a")); n != len(key) {
				t.Errorf("%q: the key has %d bytes, want %d", key, n, len(key))
			}
			for i := range len(key) {
				if n := keyLength([]byte(key[:i])); n != 0 {
					t.Errorf("%q: a key of %d bytes is complete, want it to wait for more", key[:i], n)
				}
			}
		}
	}
}
