//go:build linux

package e2e

import (
	"strconv"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
)

// TestForkedKernelMemory bounds the memory that a forked kernel does not share with the others after its
// first cell with pandas, in KiB: 6,300 with Python 3.12 and 3.13, whose objects are immortal, and 14,300
// with other versions.
func TestForkedKernelMemory(t *testing.T) {
	t.Parallel()
	sb := warmCloud(t).Create(t)
	var kernel sandbox.ContextID
	patience.Until(t, "a kernel is forked", func() bool {
		made, err := sb.Contexts.Create(t.Context(), nil)
		must.Do(t, err)
		kernel = made.ID
		if evaluateIn(t, sb, kernel, forked) == "True" {
			return true
		}
		must.Do(t, sb.Contexts.Remove(t.Context(), kernel))
		return false
	})
	evaluateIn(t, sb, kernel, `
import pandas
frame = pandas.DataFrame({"a": range(1000), "b": [str(i % 7) for i in range(1000)]})
summed = frame.groupby("b").a.sum().sort_values()
(len(frame.describe()), len(str(summed)))`)
	most := 20_000
	if evaluateIn(t, sb, kernel, `__import__("sys").version_info[:2] in ((3, 12), (3, 13))`) == "True" {
		most = 9_000
	}
	got, err := strconv.Atoi(evaluateIn(t, sb, kernel, `[int(l.split()[1]) for l in open("/proc/self/smaps_rollup") if l.startswith("Private_Dirty")][0]`))
	if err != nil || got > most {
		t.Errorf("a kernel has %d KiB of its own, %v; want at most %d", got, err, most)
	}
	t.Logf("%d KiB", got)
}
