package patience

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestSoonAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quick := func() func() { <-time.After(time.Hour); return func() {} }
		SoonAfter(t, "work after long preparation", time.Second, quick)
		slow := func() func() { return func() { <-time.After(time.Second) } }
		if got := failure(t, func(t testing.TB) { SoonAfter(t, "work that waits", time.Second, slow) }); got == "" {
			t.Error("work that always waits did not fail")
		}
	})
}

func TestDoubling(t *testing.T) {
	var got []time.Duration
	Doubling(t, "it is enough", time.Second, func(d time.Duration) bool { got = append(got, d); return d > 3*time.Second })
	if want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}; !slices.Equal(got, want) {
		t.Errorf("tried %v, want %v", got, want)
	}
	if got := failure(t, func(t testing.TB) { Doubling(t, "never", time.Second, func(time.Duration) bool { return false }) }); got == "" {
		t.Error("what is never enough did not fail")
	}
}
