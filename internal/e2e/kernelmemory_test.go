//go:build linux

package e2e

import (
	"strconv"
	"testing"

	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestForkedKernelMemory bounds the memory that a forked kernel does not share with the others after its
// first cell with pandas, in KiB: 6,300 with Python 3.12 and 3.13, whose objects are immortal, and 14,300
// with other versions.
func TestForkedKernelMemory(t *testing.T) {
	t.Parallel()
	sb := warmCloud(t).Create(t)
	sandboxtest.Eval(t, sb, `
import pandas
frame = pandas.DataFrame({"a": range(1000), "b": [str(i % 7) for i in range(1000)]})
summed = frame.groupby("b").a.sum().sort_values()
(len(frame.describe()), len(str(summed)))`)
	if sandboxtest.Eval(t, sb, forked) != "True" {
		t.Skip("this kernel was not forked, which other tests check")
	}
	most := 20_000
	if sandboxtest.Eval(t, sb, `__import__("sys").version_info[:2] in ((3, 12), (3, 13))`) == "True" {
		most = 9_000
	}
	got, err := strconv.Atoi(sandboxtest.Eval(t, sb, `[int(l.split()[1]) for l in open("/proc/self/smaps_rollup") if l.startswith("Private_Dirty")][0]`))
	if err != nil || got > most {
		t.Errorf("a kernel has %d KiB of its own, %v; want at most %d", got, err, most)
	}
	t.Logf("%d KiB", got)
}
