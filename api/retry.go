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
	// maxRetryAfter is the longest wait that the service can ask for; what asks
	// for more is an error at once, with the wait in it.
	maxRetryAfter = time.Minute
)

// backoff says whether a failed attempt may be repeated, and after how long.
// once: the call must not be repeated when it may have reached the service.
func backoff(err error, attempt int, once bool) (time.Duration, bool) {
	e, ok := errors.AsType[*Error](err)
	if !ok || !e.retryable() {
		return 0, false
	}
	switch {
	case e.StatusCode == http.StatusTooManyRequests:
		// Nothing was done, whatever the call. Without Retry-After it is a limit
		// of the plan, which waiting does not lift.
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

// sleep waits and tells whether it could: not beyond ctx, nor when its deadline
// comes first.
func sleep(ctx context.Context, d time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// retryAfter reads the header: whole seconds or a date. ok tells that it is
// there; a wait of 0 is one, too.
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

// notSent tells that provably no byte of a request left: no connection came
// about. Of anything else, transports that are not ours included, we cannot
// know.
func notSent(err error) bool {
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return true
	}
	_, ok := errors.AsType[*net.DNSError](err)
	return ok
}
