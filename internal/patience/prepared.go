package patience

import (
	"testing"
	"time"
)

// tries bounds the number of runs in which Soon tries to get a time below its bound.
const tries = 5

// SoonAfter is like Soon, for code that takes long to prepare. Each run calls prepare, and then the
// function that prepare returns. Only the time of this function is measured.
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

// Doubling calls f with the time first, and then again and again with twice the previous time,
// until f returns true. It is for tests of a timeout of e2bctl in which an event must happen before
// the timeout. The time until this event depends on the machine. f reports whether the event
// happened before the timeout. If not even a time above Limit was enough, the test fails. what
// describes the event in the failure, such as "the code has begun".
func Doubling(t testing.TB, what string, first time.Duration, f func(time.Duration) bool) {
	t.Helper()
	for d := first; !f(d); d *= 2 {
		if d > Limit {
			t.Fatalf("not even %v were enough until %s", d, what)
		}
	}
}
