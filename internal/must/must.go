// Package must ends a test whose preparation failed. Use it if the error alone explains the
// failure. If a test checks the result of a call, write a message for this check instead.
package must

import (
	"errors"
	"testing"
)

// Do ends the test at once, with err as its message. If err is nil, it does nothing. Call it only
// from the goroutine of the test, as [testing.T.FailNow] requires.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Is ends the test at once if [errors.Is] does not find target in err. Call it only from the
// goroutine of the test.
func Is(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("got %v, want %v", err, target)
	}
}
