package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// These are the shortest and the longest interval between two requests of WaitPort. The intervals
// are short at first, because most servers start quickly.
const (
	firstPortWait = 5 * time.Millisecond
	maxPortWait   = 250 * time.Millisecond
)

// WaitPort waits until a server listens on a port of the sandbox. Only ctx limits the time. WaitPort
// sends GET requests for "/" and ignores their answers, so a server of another protocol receives a
// request that it does not understand. Errors are those of [Sandbox.Transport], except
// [ErrPortClosed]. If WaitPort has found the port closed and then ctx ends or another error occurs,
// the error also wraps [ErrPortClosed].
func (sb *Sandbox) WaitPort(ctx context.Context, port int) error {
	transport := sb.Transport(port)
	var closed error
	for wait := firstPortWait; ; wait = min(2*wait, maxPortWait) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost:"+strconv.Itoa(port)+"/", nil)
		if err != nil {
			return err
		}
		response, err := transport.RoundTrip(request)
		if err == nil {
			return response.Body.Close()
		}
		if !errors.Is(err, ErrPortClosed) {
			return closedUntil(err, closed)
		}
		closed = err
		if !sleep(ctx, wait) {
			return closedUntil(context.Cause(ctx), err)
		}
	}
}

// closedUntil returns the error of a wait for a port. err ended the wait. closed is the last
// error that reported the port as closed. If closed is nil, closedUntil returns err alone.
func closedUntil(err, closed error) error {
	if closed == nil {
		return err
	}
	return fmt.Errorf("sandbox: wait for a port: %w: %w", closed, err)
}
