package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWithin checks that no limit is above those of the container: the kernel would refuse the
// limit, or the sandbox would never reach it.
func TestWithin(t *testing.T) {
	t.Parallel()
	two := min(2, float64(processors))
	for name, tt := range map[string]struct {
		limits Limits
		bounds Bounds
		want   Limits
	}{
		"no bounds":    {Limits{}, Bounds{}, Limits{2 << 30, two, 1024, 1 << 30}},
		"defaults":     {Limits{}, Bounds{512 << 20, 0.5}, Limits{512 << 20, 0.5, 1024, 256 << 20}},
		"higher":       {Limits{4 << 30, 64, 50, 3 << 20}, Bounds{1 << 30, 0.75}, Limits{1 << 30, 0.75, 50, 3 << 20}},
		"lower":        {Limits{64 << 20, 0.25, 50, 3 << 20}, Bounds{1 << 30, 0.75}, Limits{64 << 20, 0.25, 50, 3 << 20}},
		"memory alone": {Limits{}, Bounds{MemoryBytes: 1 << 30}, Limits{1 << 30, two, 1024, 512 << 20}},
	} {
		if diff := cmp.Diff(tt.want, tt.limits.Within(tt.bounds)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
