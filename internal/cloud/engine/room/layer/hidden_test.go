//go:build linux

package layer_test

import (
	"io/fs"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

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
