//go:build linux

package survey

import (
	"errors"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestReader checks that a reader takes all bytes of each value, and that it ends at the first value
// that is cut off or too large.
func TestReader(t *testing.T) {
	// Not parallel: it fails at once where a mistake makes other tests read without end.
	unsigned := func(r *reader) any { return r.unsigned() }
	signed := func(r *reader) any { return r.signed() }
	flag := func(r *reader) any { return r.flag() }
	count := func(r *reader) any { return r.count() }
	text := func(r *reader) any { return r.text() }
	for name, tt := range map[string]struct {
		read   func(*reader) any
		data   string
		value  any
		left   string
		broken bool
	}{
		"a number": {unsigned, "\xac\x02x", uint64(300), "x", false}, "the last number": {unsigned, "\x01", uint64(1), "", false},
		"no number": {unsigned, "", uint64(0), "", true}, "a part of a number": {unsigned, "\xac", uint64(0), "", true},
		"too large a number": {unsigned, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02x", uint64(0), "", true},
		"a signed number":    {signed, "\x01x", int64(-1), "x", false}, "a part of a signed number": {signed, "\xac", int64(0), "", true},
		"a flag": {flag, "\x01x", true, "x", false}, "no flag set": {flag, "\x00", false, "", false}, "no flag": {flag, "", false, "", true},
		"a count": {count, "\x02xy", uint64(2), "xy", false}, "too large a count": {count, "\x03xy", uint64(0), "", true},
		"a text": {text, "\x02xyz", "xy", "z", false}, "the last text": {text, "\x01x", "x", "", false}, "an empty text": {text, "\x00x", "", "x", false},
		"a part of a text": {text, "\x02x", "", "", true}, "no text": {text, "", "", "", true},
	} {
		r := &reader{left: []byte(tt.data)}
		if value := tt.read(r); value != tt.value || string(r.left) != tt.left || r.broken != tt.broken {
			t.Errorf("%s: got %v, %q left, broken %v; want %v, %q, %v", name, value, r.left, r.broken, tt.value, tt.left, tt.broken)
		}
	}
}

// TestUnmarshalCutOff checks that a snapshot that is cut off inside an entry is refused, and that
// the earlier value stays.
func TestUnmarshalCutOff(t *testing.T) {
	t.Parallel()
	empty, err := (&Snapshot{Made: time.Unix(1, 2)}).MarshalBinary()
	must.Do(t, err)
	data, err := (&Snapshot{Made: time.Unix(1, 2), directories: []directory{{path: "a", inode: 300, changed: 300, files: []string{"x", "yz"}}}}).MarshalBinary()
	must.Do(t, err)
	must.Is(t, new(Snapshot).UnmarshalBinary(append([]byte("E"), data[1:]...)), ErrFormat) // another format
	for n := range len(data) {
		got := Snapshot{Made: time.Unix(7, 0)}
		err := got.UnmarshalBinary(data[:n])
		if n == len(empty) {
			must.Do(t, err)
			continue
		}
		if !errors.Is(err, ErrFormat) || !got.Made.Equal(time.Unix(7, 0)) {
			t.Errorf("%d of %d bytes: got %v and a snapshot of %v, want %v and the earlier one", n, len(data), err, got.Made, ErrFormat)
		}
	}
}
