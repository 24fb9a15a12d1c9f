package state

import (
	"strings"
	"testing"
)

// TestPathsAreBounded checks that a step names the whole of a short key and the beginning of a long one,
// and that a path through many steps keeps its beginning.
func TestPathsAreBounded(t *testing.T) {
	t.Parallel()
	for n := 63; n <= 65; n++ {
		key := strings.Repeat("k", n)
		want := "[" + key + "]"
		if n > 64 {
			want = "[" + key[:64] + "…]"
		}
		if got := keyStep([]byte(key)); got != want {
			t.Errorf("a key of %d bytes: got %s, want %s", n, got, want)
		}
	}
	for n := 2*maxPath - 2; n <= 2*maxPath; n++ {
		inner := &LimitError{Path: strings.Repeat("p", n)}
		if err := within(inner, "s"); inner.Path != ("s" + strings.Repeat("p", n))[:min(n+1, 2*maxPath)] {
			t.Errorf("a path of %d bytes: got %d bytes and %v, want at most %d", n+1, len(inner.Path), err, 2*maxPath)
		}
	}
}
