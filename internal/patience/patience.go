// Package patience contains the waits of tests: until a condition holds, with a
// limit that only ends a hang. No test passes or fails because a machine is busy.
package patience

import (
	"context"
	"os"
	"testing"
	"time"
)

// Limit is the longest time that a test waits for something that must happen: a
// minute, and five with CI set, where nobody watches and the machine is shared.
var Limit = limit(os.Getenv("CI"))

func limit(ci string) time.Duration {
	if ci != "" {
		return 5 * time.Minute
	}
	return time.Minute
}

// The pause between two checks of Until grows from firstPause to longPause, so that a short wait
// ends at once and a long wait costs little.
const (
	firstPause = time.Millisecond
	longPause  = 50 * time.Millisecond
)

// Until returns when ok reports true, and fails the test if it does not within
// Limit. It calls ok again and again, from the goroutine of the caller. what names
// the condition in the failure, as in "the sandbox is gone".
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(Limit)
	for pause := firstPause; !ok(); pause = min(2*pause, longPause) {
		if time.Now().After(end) {
			t.Fatalf("waited %v in vain until %s", Limit, what)
		}
		time.Sleep(pause) //nolint:forbidigo // the one place where tests ask again
	}
}

// Receive returns a value from c, and fails the test if none comes within Limit.
// From a closed channel it returns the zero value.
func Receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	timer := time.NewTimer(Limit)
	defer timer.Stop()
	var value T
	select {
	case value = <-c:
	case <-timer.C:
		t.Fatalf("waited %v in vain for %s", Limit, what)
	}
	return value
}

// Soon runs f until one run takes less than bound, five times at most, and fails
// the test if none does. It is for code that must not wait for a timer of its own.
// bound is a small part of that timer's time: a run that waits for it is never
// below bound, while a busy machine delays only some runs. f must prepare each run
// anew.
func Soon(t testing.TB, what string, bound time.Duration, f func()) {
	t.Helper()
	SoonAfter(t, what, bound, func() func() { return f })
}

// Context returns a context that ends with the test, and after Limit.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	t.Cleanup(cancel)
	return ctx
}

// Deadline returns the time that is Limit from now, for the deadline of a connection.
func Deadline() time.Time { return time.Now().Add(Limit) }
