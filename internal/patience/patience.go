// Package patience contains functions with which tests wait for a condition. The limit of the wait
// only ends a test that hangs. With these functions, no test passes or fails because a machine is
// busy.
package patience

import (
	"context"
	"os"
	"testing"
	"time"
)

// Limit is the longest time that a test waits for an event that must happen. It is one minute. If
// the variable CI is set, it is five minutes, because nobody watches the test and the machine is
// shared.
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

// Until calls ok again and again until ok returns true. If ok does not return true within Limit,
// the test fails. Until calls ok in the goroutine of the caller. what describes the condition in
// the failure, such as "the sandbox is gone".
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

// Receive returns a value from c. If no value arrives within Limit, the test fails. From a closed
// channel, Receive returns the zero value.
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

// Soon runs f until one run takes less than bound, but at most five times. If no run takes less, the
// test fails. Soon is for a test which checks that code does not wait for one of the code's own
// timers. bound must be a small part of the timer's duration. Then a run that waits for the timer always takes longer than
// bound, while a busy machine delays only some of the runs. f must prepare each run anew.
func Soon(t testing.TB, what string, bound time.Duration, f func()) {
	t.Helper()
	SoonAfter(t, what, bound, func() func() { return f })
}

// Context returns a context that ends with the test, or after Limit.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	t.Cleanup(cancel)
	return ctx
}

// Deadline returns the time that is Limit from now, for the deadline of a connection.
func Deadline() time.Time { return time.Now().Add(Limit) }
