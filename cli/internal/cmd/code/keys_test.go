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

// TestLengthOfKeys checks the bytes of a key at the edges of the ranges of characters that escape sequences have.
func TestLengthOfKeys(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]int{
		"": 0, "a": 1, "\xc3": 0, "é": 2, "\xff": 1, "\x1b": 0, "\x1b\x1f": 1, "\x1b ": 2, "\x1ba": 2, "\x1bO": 0, "\x1bOP": 3, "\x1bOPx": 3,
		"\x1b[": 0, "\x1b[?": 0, "\x1b[@x": 3, "\x1b[~x": 3, "\x1b[\x7f": 0, "\x1b[ q": 4, "\x1b[1\x1f": 3, "\x1b[\x1f": 2,
	} {
		if got := keyLength([]byte(typed)); got != want {
			t.Errorf("%q: got %d bytes, want %d", typed, got, want)
		}
	}
}

// TestKeysAhead checks how many keys are kept while code runs, and that Ctrl-C is none of them.
func TestKeysAhead(t *testing.T) {
	t.Parallel()
	interrupts := 0
	k := &keyboard{news: make(chan struct{}, 1)}
	k.during(func() { interrupts++ })
	for _, tt := range []struct {
		keys       int // the number of bytes
		ctrlC      bool
		kept       int
		interrupts int
	}{
		{maxAhead - 1, false, maxAhead - 1, 0}, {2, false, maxAhead - 1, 0}, {1, false, maxAhead, 0}, {1, false, maxAhead, 0}, {0, true, 0, 1},
		{maxAhead, false, maxAhead, 1}, {1, true, 1, 2}, {0, true, 0, 3},
	} {
		keys := make([]byte, tt.keys)
		if tt.ctrlC {
			keys = append([]byte{ctrlC}, keys...)
		}
		k.take(keys, nil)
		if len(k.typed) != tt.kept || interrupts != tt.interrupts || k.isAhead() != (tt.kept > 0) {
			t.Errorf("%+v: %d bytes are kept after %d interrupts", tt, len(k.typed), interrupts)
		}
	}
}
