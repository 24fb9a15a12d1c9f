//go:build linux

package survey

import (
	"errors"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestUnmarshalCutOff checks that a snapshot that is cut off inside an entry is refused, and that
// the earlier value stays.
func TestUnmarshalCutOff(t *testing.T) {
	t.Parallel()
	empty, err := (&Snapshot{Made: time.Unix(1, 2)}).MarshalBinary()
	must.Do(t, err)
	data, err := (&Snapshot{Made: time.Unix(1, 2), directories: []directory{{path: "a", inode: 300, changed: 300, files: []string{"x", "yz"}}}}).MarshalBinary()
	must.Do(t, err)
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
