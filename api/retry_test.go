package api

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// Each bound of the waits between attempts, one below it, at it and one above.
func TestBackoffEdges(t *testing.T) {
	t.Parallel()
	const second = time.Second
	for name, tt := range map[string]struct {
		after       time.Duration
		attempt     int
		ok          bool
		least, most time.Duration
	}{
		"the first":             {0, 0, true, firstBackoff / 2, firstBackoff},
		"the second":            {0, 1, true, firstBackoff, 2 * firstBackoff},
		"the last that doubles": {0, 5, true, 16 * firstBackoff, 32 * firstBackoff},
		"the first at the most": {0, 6, true, maxBackoff / 2, maxBackoff},
		"the one before many":   {0, 10, true, maxBackoff / 2, maxBackoff},
		"many":                  {0, 11, true, maxBackoff / 2, maxBackoff},
		"very many":             {0, 1 << 20, true, maxBackoff / 2, maxBackoff},
		"one below the asked":   {maxRetryAfter - 1, 0, true, maxRetryAfter - 1, maxRetryAfter - 1},
		"as long as can be":     {maxRetryAfter, 0, true, maxRetryAfter, maxRetryAfter},
		"longer":                {maxRetryAfter + 1, 0, false, 0, 0},
		"asked for less":        {1, 0, true, firstBackoff / 2, firstBackoff},
		"asked for a second":    {second, 0, true, second, second},
	} {
		for range 50 { // waits are random
			e := &Error{StatusCode: http.StatusServiceUnavailable, RetryAfter: tt.after, waitNamed: tt.after > 0}
			got, ok := backoff(e, tt.attempt, false)
			if ok != tt.ok || got < tt.least || got > tt.most {
				t.Errorf("%s: got %v, %v, want %v between %v and %v", name, got, ok, tt.ok, tt.least, tt.most)
				break
			}
		}
	}
}

// A wait that ends before the deadline of the call is waited, and no other one is begun.
func TestSleepEdges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const deadline = time.Minute
		for wait, want := range map[time.Duration]bool{0: true, deadline - 1: true, deadline: false, deadline + 1: false} {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			begun := time.Now()
			got, took := sleep(ctx, wait), time.Since(begun)
			cancel()
			waited := time.Duration(0)
			if want {
				waited = wait
			}
			if got != want || took != waited {
				t.Errorf("a wait of %v: got %v after %v, want %v", wait, got, took, want)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if sleep(ctx, time.Hour) {
			t.Error("it waited although its call was cancelled")
		}
	})
}

// TestRetryAfterEdges checks values of Retry-After at the bounds of the accepted ones.
func TestRetryAfterEdges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		date := func(in time.Duration) string { return time.Now().Add(in).UTC().Format(http.TimeFormat) }
		for text, want := range map[string]struct {
			wait time.Duration
			ok   bool
		}{
			"": {0, false}, "0": {0, true}, " 1 ": {time.Second, true}, "-1": {0, false}, "1.5": {0, false}, "x": {0, false},
			"2147483647": {2147483647 * time.Second, true}, "2147483648": {0, false},
			date(-time.Second): {0, true}, date(0): {0, true}, date(time.Second): {time.Second, true},
		} {
			if wait, ok := retryAfter(http.Header{"Retry-After": {text}}); wait != want.wait || ok != want.ok {
				t.Errorf("%q: got %v, %v, want %v, %v", text, wait, ok, want.wait, want.ok)
			}
		}
	})
}
