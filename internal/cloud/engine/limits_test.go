package engine

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
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
		"processors":   {Limits{CPUs: 1 << 20}, Bounds{}, Limits{2 << 30, float64(processors), 1024, 1 << 30}},
		"much memory":  {Limits{MemoryBytes: 64 << 30}, Bounds{}, Limits{64 << 30, two, 1024, 10 << 30}},
		"memory alone": {Limits{}, Bounds{MemoryBytes: 1 << 30}, Limits{1 << 30, two, 1024, 512 << 20}},
	} {
		if diff := cmp.Diff(tt.want, tt.limits.Within(tt.bounds)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestWithDefaults checks that the defaults are those without bounds.
func TestWithDefaults(t *testing.T) {
	t.Parallel()
	want := Limits{2 << 30, min(2, float64(processors)), 1024, 1 << 30}
	if diff := cmp.Diff(want, Limits{}.WithDefaults()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestResourcesOver checks that each resource is taken from below only if it is zero.
func TestResourcesOver(t *testing.T) {
	t.Parallel()
	r, below := Resources{1, 2, 3}, Resources{4, 5, 6}
	for _, tt := range []struct{ r, want Resources }{
		{r, r},
		{Resources{}, below},
		{Resources{CPUs: 1}, Resources{1, 5, 6}},
		{Resources{MemoryBytes: 2}, Resources{4, 2, 6}},
		{Resources{DiskBytes: 3}, Resources{4, 5, 3}},
	} {
		if diff := cmp.Diff(tt.want, tt.r.Over(below)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", tt.r, diff)
		}
		limits := Limits{CPUs: below.CPUs, MemoryBytes: below.MemoryBytes, MaxProcesses: 7, DiskBytes: below.DiskBytes}
		want := Limits{CPUs: tt.want.CPUs, MemoryBytes: tt.want.MemoryBytes, MaxProcesses: 7, DiskBytes: tt.want.DiskBytes}
		if diff := cmp.Diff(want, limits.With(tt.r)); diff != "" {
			t.Errorf("limits with %+v (-want +got):\n%s", tt.r, diff)
		}
	}
}

// TestResourcesWithin checks that each resource is lowered to its own bound, if there is one.
func TestResourcesWithin(t *testing.T) {
	t.Parallel()
	r := Resources{4, 5, 6}
	for _, tt := range []struct {
		bounds Bounds
		want   Resources
	}{
		{Bounds{}, r},
		{Bounds{MemoryBytes: 5, CPUs: 4}, r},
		{Bounds{MemoryBytes: 9, CPUs: 9}, r},
		{Bounds{MemoryBytes: 1}, Resources{4, 1, 6}},
		{Bounds{CPUs: 1}, Resources{1, 5, 6}},
	} {
		if diff := cmp.Diff(tt.want, r.Within(tt.bounds)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", tt.bounds, diff)
		}
	}
}

// TestBoundsAnd checks that the lower of two bounds holds, and that zero is no bound.
func TestBoundsAnd(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ one, other, want Bounds }{
		{Bounds{}, Bounds{}, Bounds{}},
		{Bounds{2, 2}, Bounds{}, Bounds{2, 2}},
		{Bounds{2, 2}, Bounds{1, 3}, Bounds{1, 2}},
		{Bounds{2, 2}, Bounds{MemoryBytes: 1}, Bounds{1, 2}},
		{Bounds{MemoryBytes: 2}, Bounds{CPUs: 1}, Bounds{2, 1}},
	} {
		for _, got := range []Bounds{tt.one.And(tt.other), tt.other.And(tt.one)} {
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%+v and %+v (-want +got):\n%s", tt.one, tt.other, diff)
			}
		}
	}
}

// TestLimitsCheck checks that a sandbox can have the lowest limits, but none below them.
func TestLimitsCheck(t *testing.T) {
	t.Parallel()
	lowest := Limits{minMemoryBytes, minCPUs, minProcesses, minDiskBytes}
	must.Do(t, lowest.Check())
	for want, lower := range map[string]func(*Limits){
		"16777215 bytes of memory, and 16777216 are the least": func(l *Limits) { l.MemoryBytes-- },
		"CPUs, and 0.01 are the least":                         func(l *Limits) { l.CPUs = math.Nextafter(l.CPUs, 0) },
		"15 processes, and 16 are the least":                   func(l *Limits) { l.MaxProcesses-- },
		"1048575 bytes of disk, and 1048576 are the least":     func(l *Limits) { l.DiskBytes-- },
	} {
		l := lowest
		lower(&l)
		if err := l.Check(); !errors.Is(err, ErrLimits) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", l, err, want)
		}
	}
}
