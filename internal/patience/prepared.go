package patience

import (
	"testing"
	"time"
)

// tries limits the runs in which Soon tries to get a time that is short enough.
const tries = 5

// SoonAfter is Soon for code that takes long to prepare: each run calls prepare, and
// only the function that it returns is measured.
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

// Doubling calls f with a time, and then again and again with twice the time, until f reports true. It is for
// tests of a timeout of the product that need an event before the timeout. The time until that event depends on
// the machine; f reports whether the event came first. The test fails if not even more than Limit was enough.
// what names the necessary event, as in "the code has begun".
func Doubling(t testing.TB, what string, first time.Duration, f func(time.Duration) bool) {
	t.Helper()
	for d := first; !f(d); d *= 2 {
		if d > Limit {
			t.Fatalf("not even %v were enough until %s", d, what)
		}
	}
}
