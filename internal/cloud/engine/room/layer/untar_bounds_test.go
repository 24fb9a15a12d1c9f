//go:build linux

package layer_test

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUntarBounds checks that each bound allows the value below it and the bound itself,
// and no larger value.
func TestUntarBounds(t *testing.T) {
	t.Parallel()
	// long returns a name of n bytes that is short once it is cleaned.
	long := func(n int) string { return strings.Repeat("./", (n-1)/2) + strings.Repeat("/", (n-1)%2) + "y" }
	// links returns a chain of n links, and a file whose name goes through all of them.
	links := func(n int) (all []entry) {
		for i := range n {
			all = append(all, symlink(fmt.Sprint("l", i), fmt.Sprint("l", i+1)))
		}
		return append(all, dir(fmt.Sprint("l", n), 0o755), file("l0/x", ""))
	}
	for what, tt := range map[string]struct {
		bound   int
		entries func(n int) []entry
	}{
		"directories in each other": {256, func(n int) []entry { return []entry{file(strings.Repeat("d/", n)+"x", "")} }},
		"bytes of a part":           {255, func(n int) []entry { return []entry{file(strings.Repeat("x", n), "")} }},
		"links in a name":           {40, links},
		"bytes of a name":           {4095, func(n int) []entry { return []entry{file(long(n), "")} }},
		"bytes of a hard link":      {4095, func(n int) []entry { return []entry{file("y", ""), hardlink("a", long(n))} }},
	} {
		for n := tt.bound - 1; n <= tt.bound+1; n++ {
			if _, err := stack(t, closed(t), archive(t, tt.entries(n)...)); (err != nil) != (n > tt.bound) {
				t.Errorf("%d %s: got %v, want an error above %d", n, what, err, tt.bound)
			}
		}
	}
}

// TestUntarLinkToRemoved checks that a removed file cannot be the target of a hard link,
// neither if the layer below has it nor if no layer has it.
func TestUntarLinkToRemoved(t *testing.T) {
	t.Parallel()
	below := archive(t, file("a", "below"), file("d/a", "below"))
	for what, entries := range map[string][]entry{
		"a file":                       {file(".wh.a", ""), hardlink("b", "a")},
		"a file in a directory":        {file("d/.wh.a", ""), hardlink("b", "d/a")},
		"what was in an opaque one":    {file("d/.wh..wh..opq", ""), hardlink("b", "d/a")},
		"what was in a removed one":    {file(".wh.d", ""), hardlink("b", "d/a")},
		"a directory that was removed": {file(".wh.d", ""), hardlink("b", "d")},
	} {
		_, err := stack(t, closed(t), below, archive(t, entries...))
		if want := unix.ENOENT.Error(); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: got %v, want %s", what, err, want)
		}
	}
	if _, err := stack(t, closed(t), below, archive(t, hardlink("b", "a"), hardlink("c", "d/a"))); err != nil {
		t.Errorf("files that are there: %v", err)
	}
}
