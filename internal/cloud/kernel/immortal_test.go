//go:build linux

package kernel

import (
	_ "embed"
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

//go:embed testdata/immortal.py
var immortal string

// TestImmortal checks that objects of a zygote are immortal with Python 3.12 and 3.13, so that forked
// processes share their memory, and that nothing else about objects changes. With other versions, no
// object is immortal.
func TestImmortal(t *testing.T) {
	t.Parallel()
	engines(t, func(t *testing.T, python string) {
		cmd := exec.CommandContext(t.Context(), python, "-B", "-c", immortal)
		cmd.Dir = "python" // the directory of the driver
		out, err := cmd.Output()
		must.Do(t, err)
		var got struct {
			Before, Later, Collected bool
			Made                     int
			Dirtied                  [2]int
			Refused                  []int
			Immortal                 []bool
			Ended                    []string
			Changed                  json.RawMessage
		}
		must.Do(t, json.Unmarshal(out, &got))
		possible := exec.CommandContext(t.Context(), python, "-c", "import sys; sys.exit(sys.version_info[:2] not in ((3, 12), (3, 13)))").Run() == nil

		if ended := []string{"generator", "__del__", "descriptor", "descriptor"}; !cmp.Equal(ended, got.Ended) {
			t.Errorf("ended: %v, want %v", got.Ended, ended)
		}
		const changed = `["a name that only a dict has!", 100000, {"a name that only a dict has": ["a name that only a dict has"]}, [99999, "99999", 99999.0], "a constant that only code has"]`
		if string(got.Changed) != changed {
			t.Errorf("values: %s, want %s", got.Changed, changed)
		}
		if !got.Before || !got.Later || !got.Collected || !cmp.Equal(got.Refused, []int{0, 0}) {
			t.Errorf("got %s, want objects that end", out)
		}
		if made := got.Made > 300_000; made != possible {
			t.Errorf("%d objects are immortal; possible is %v", got.Made, possible)
		}
		for i, value := range got.Immortal {
			if value != possible {
				t.Errorf("value %d is immortal: %v, want %v", i, value, possible)
			}
		}
		if less := got.Dirtied[1] < got.Dirtied[0]/10; less != possible {
			t.Errorf("a forked process dirtied %v KiB before and after; possible is %v", got.Dirtied, possible)
		}
	})
}
