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
	// maxRetryAfter is the longest wait that the service can ask for. A longer one
	// is an error at once, which contains the wait.
	maxRetryAfter = time.Minute
)

// backoff reports whether a failed attempt may be repeated, and after how long.
// once means that the call must not be repeated when it may have reached the
// service.
func backoff(err error, attempt int, once bool) (time.Duration, bool) {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.advice == "" && !e.retryable() {
		return 0, false
	}
	switch {
	case e.advice != "":
		// The service knows best, also whether it did something.
		if e.advice != "true" {
			return 0, false
		}
	case e.StatusCode == http.StatusTooManyRequests:
		// Nothing was done, whichever call it was. Without Retry-After it is a limit
		// of the plan, which does not go away by waiting.
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

// sleep waits for d and reports whether it did. It stops when ctx ends, and
// does not start when ctx's deadline comes first.
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

// retryAfter reads the header, which holds whole seconds or a date. ok reports
// whether the header is there; a wait of 0 also counts.
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

// notSent reports whether provably no byte of a request was sent, because no
// connection was made. For any other error, including those of transports that
// are not ours, we cannot know.
func notSent(err error) bool {
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return true
	}
	_, ok := errors.AsType[*net.DNSError](err)
	return ok
}
