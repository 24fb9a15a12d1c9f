package jupyter

import (
	"strings"
	"testing"
)

func TestSplitID(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 254)
	for id, want := range map[string]struct {
		prefix string
		n      int64
		ok     bool
	}{
		"a_17":               {"a", 17, true},
		"a_b_0":              {"a_b", 0, true},
		"_1":                 {"", 1, true},
		"a":                  {},
		"a_":                 {"a", 0, false},
		"a_b":                {"a", 0, false},
		"a_-1":               {"a", -1, false},
		"a_9007199254740991": {"a", 1<<53 - 1, true}, // a JavaScript server has no larger exact number
		"a_9007199254740992": {"a", 1 << 53, false},
		long + "_1":          {long, 1, true}, // 256 bytes
		long + "_10":         {},
	} {
		prefix, n, ok := SplitID(id)
		if ok != want.ok || ok && (prefix != want.prefix || int64(n) != want.n) {
			t.Errorf("%s: got %q, %d, %v, want %+v", id, prefix, n, ok, want)
		}
	}
}
