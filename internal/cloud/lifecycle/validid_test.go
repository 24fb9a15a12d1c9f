package lifecycle

import (
	"strings"
	"testing"
)

// TestValidID checks which names of records are ids: a record of another name is not of this program.
func TestValidID(t *testing.T) {
	t.Parallel()
	rest := strings.Repeat("a", idLength-2)
	for id, want := range map[string]bool{
		newID(): true, "i" + rest + "9": true, "i" + rest + "z": true,
		"": false, "i": false, "i" + rest: false, "i" + rest + "aa": false,
		"a" + rest + "a": false, "I" + rest + "a": false, "i" + rest + "A": false, "i" + rest + "/": false, "i" + rest + ".": false,
	} {
		if got := validID(id); got != want {
			t.Errorf("%q: got %v, want %v", id, got, want)
		}
	}
}
