package patience

import (
	"testing"
	"time"
)

// tries is how often Soon looks for a time that is short enough.
const tries = 5

// SoonAfter is Soon for what takes long to prepare: prepare does that in each run, and
// only what it returns is measured.
func SoonAfter(t testing.TB, what string, bound time.Duration, prepare func() func()) {
	t.Helper()
	var took []time.Duration
	for range tries {
		do := prepare()
		start := time.Now()
		do()
		d := time.Since(start)
		if d < bound {
			return
		}
		took = append(took, d)
	}
	t.Fatalf("%s took %v, want one of them below %v", what, took, bound)
}

// Doubling calls f with a time, and with twice as much again and again until f reports
// true. It is for tests of what happens when a time that the product is given is over,
// which need something to have happened before: how long that takes depends on the
// machine, and f reports whether it had. The test fails when not even more than Limit
// was enough. what says what must come first, as in "the code has begun".
func Doubling(t testing.TB, what string, first time.Duration, f func(time.Duration) bool) {
	t.Helper()
	for d := first; !f(d); d *= 2 {
		if d > Limit {
			t.Fatalf("not even %v were enough until %s", d, what)
		}
	}
}
