//go:build linux

package layer_test

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
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

// TestUntarHidesOnlyWhatIsThere checks that a layer has a whiteout only for a name that a layer below
// shows, in every way of hiding one.
func TestUntarHidesOnlyWhatIsThere(t *testing.T) {
	t.Parallel()
	lowest := archive(t, file("low", ""), file("d/low", ""), file("o/low", ""))
	below := archive(t, file("there", ""), file("d/there", ""), file("o/.wh..wh..opq", ""), file("d/.wh.low", ""))
	for what, tt := range map[string]struct {
		entries []entry
		want    []string // the names in the layer
	}{
		"names that are there":      {[]entry{file(".wh.there", ""), file(".wh.low", ""), file("d/.wh.there", "")}, []string{"d/", "d/there", "low", "there"}},
		"names of nothing":          {[]entry{file(".wh.none", ""), file("d/.wh.none", ""), file("new/.wh.none", "")}, []string{"d/", "new/"}},
		"names removed before":      {[]entry{file("d/.wh.low", ""), file("o/.wh.low", "")}, []string{"d/", "o/"}},
		"names made and removed":    {[]entry{file("none", ""), file(".wh.none", "")}, []string{"none"}}, // a layer may list what it removed before it made it
		"devices":                   {[]entry{of('3', "none"), of('4', "there"), of('3', "d/none"), of('3', "d/there")}, []string{"d/", "d/there", "there"}},
		"devices in place of files": {[]entry{file("none", ""), of('3', "none"), file("there", "new"), of('4', "there")}, []string{"there"}},
	} {
		dirs, err := stack(t, closed(t), lowest, below, archive(t, tt.entries...))
		must.Do(t, err)
		var got []string
		must.Do(t, fs.WalkDir(os.DirFS(dirs[0].Name()), ".", func(name string, d fs.DirEntry, err error) error {
			if name != "." && d.IsDir() {
				name += "/"
			}
			if name != "." {
				got = append(got, name)
			}
			return err
		}))
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: the layer has (-want +got):\n%s", what, diff)
		}
	}
}
