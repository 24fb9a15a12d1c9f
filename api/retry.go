package api

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 5 * time.Second
	// maxRetryAfter is the longest wait that the client accepts from the service. If the service asks
	// for a longer wait, the call returns an error at once. The error contains the wait.
	maxRetryAfter = time.Minute
)

// backoff reports whether a failed attempt may be repeated, and returns the wait before the next
// attempt. once means that the call must not be repeated when it may have reached the service.
func backoff(err error, attempt int, once bool) (time.Duration, bool) {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.advice == "" && !e.retryable() {
		return 0, false
	}
	switch {
	case e.advice != "":
		// The service knows best whether a retry is safe, since it knows whether it did
		// something.
		if e.advice != "true" {
			return 0, false
		}
	case e.StatusCode == http.StatusTooManyRequests:
		// The service did nothing, whichever call it was. A 429 without Retry-After is a limit
		// of the plan, and waiting does not help.
		if !e.waitNamed {
			return 0, false
		}
	case once && !notSent(e.cause):
		return 0, false
	}
	if e.RetryAfter > maxRetryAfter {
		return 0, false
	}
	wait := min(firstBackoff<<min(attempt, 10), maxBackoff)
	wait = wait/2 + rand.N(wait/2)
	return max(wait, e.RetryAfter), true
}

// sleep waits for d and reports whether it did. It returns false when ctx ends. It returns
// false at once if ctx's deadline comes before d has passed.
func sleep(ctx context.Context, d time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return false
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// retryAfter reads the header Retry-After, in whole seconds or as a date. ok reports whether
// the header is there, even if the wait is 0.
func retryAfter(h http.Header) (wait time.Duration, ok bool) {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(time.Until(at), 0), true
	}
	return 0, false
}

// notSent reports whether provably no byte of a request was sent, because no connection was made.
// It returns false for all other errors, including those of foreign transports, because such errors
// do not show whether bytes were sent.
func notSent(err error) bool {
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return true
	}
	_, ok := errors.AsType[*net.DNSError](err)
	return ok
}
