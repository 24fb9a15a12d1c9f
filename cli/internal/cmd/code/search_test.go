package code

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSearch checks that Ctrl-R goes through the cells that contain the typed text, the latest
// first, and then back to that text.
func TestSearch(t *testing.T) {
	t.Parallel()
	h := &history{}
	for _, cell := range []string{"import json", "x = json.loads(text)", "print(x)", "for i in x:\n    print(i)"} {
		h.add(cell)
	}
	var s search
	var got []string
	line := "json"
	press := func() { line = s.next(h, line); got = append(got, unmarked(line)) }
	press()
	press()
	press() // no more cells: the typed text
	press()
	line = "print"
	press()
	line += "!" // changed: a search for that
	press()
	line = ""
	press()
	want := []string{"x = json.loads(text)", "import json", "json", "x = json.loads(text)", "for i in x:\n    print(i)", "for i in x:\n    print(i)!", "for i in x:\n    print(i)"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the line after each press (-want +got):\n%s", diff)
	}
}
