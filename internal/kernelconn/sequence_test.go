package kernelconn

import (
	"fmt"
	"strings"
	"testing"
)

func TestSequence(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before, after string // the cut; a letter and a number each
		complete      bool
		repeated      int
	}{
		"all of it":                      {"a5 a6 a7", "a8 a9", true, 0},
		"one is missing":                 {"a5 a6", "a8", false, 0},
		"it comes later":                 {"a5 a6", "a8 a7", true, 0},
		"repeated":                       {"a5 a6 a7", "a6 a7 a8", true, 2},
		"what was missing is repeated":   {"a5 a7", "a6 a7 a8", true, 1},
		"nothing before, from the start": {"", "a0 a1", true, 0},
		"nothing before":                 {"", "a3 a4", false, 0},
		"another numbering joins":        {"a5", "a6 b9", false, 0},
		"without numbers":                {"a5", "x", false, 0},
		"repeated without numbers":       {"x y z", "y z w", false, 2},
		"a numbering after another":      {"a5", "b0", false, 0},
	} {
		var s sequence
		s.begin()
		repeated := 0
		for _, id := range strings.Fields(test.before) {
			s.note(numberedID(id), false)
		}
		s.resume()
		for _, id := range strings.Fields(test.after) {
			if !s.note(numberedID(id), true) {
				repeated++
			}
		}
		if s.complete() != test.complete || repeated != test.repeated {
			t.Errorf("%s: complete %v, %d repeated", name, s.complete(), repeated)
		}
	}
	var s sequence
	for i := range 100 * maxMissing {
		s.note(fmt.Sprintf("a_%d", i*2), false)
		s.note(fmt.Sprintf("p%d_1", i), false)
		s.note("x", false)
	}
	if len(s.recent) > maxRecent || len(s.missing["a"]) > 2*maxMissing || len(s.next) > maxNumberings || s.complete() {
		t.Errorf("%d missing, %d numberings", len(s.missing["a"]), len(s.next))
	}
	if s.begin(); !s.complete() {
		t.Error("earlier requests count")
	}
}

func numberedID(id string) string {
	if len(id) < 2 {
		return id
	}
	return id[:1] + "_" + id[1:]
}
