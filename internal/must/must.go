// Package must ends a test whose preparation failed. Use it where the error alone explains the failure. A test
// of the result of a call writes a message of its own.
package must

import (
	"errors"
	"testing"
)

// Do ends the test at once with err as its message, unless err is nil. Call it from the
// goroutine of the test alone, as [testing.T.FailNow] demands.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Is ends the test at once unless [errors.Is] finds target in err. Call it from the goroutine of
// the test alone.
func Is(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("got %v, want %v", err, target)
	}
}
