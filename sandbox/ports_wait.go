package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// How often WaitPort asks: often at first, because most servers start at once.
const (
	firstPortWait = 5 * time.Millisecond
	maxPortWait   = 250 * time.Millisecond
)

// WaitPort waits until a server listens on a port of the sandbox, however long
// that takes: bound it with ctx. It asks with GET requests for "/", whose answers
// do not matter, so a server that does not speak HTTP sees a connection with a
// request that it does not understand. Errors are those of [Sandbox.Transport]
// except [ErrPortClosed], which is wrapped beside them when the port was found
// closed before, as when ctx ends.
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
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return closedUntil(context.Cause(ctx), err)
		}
	}
}

// closedUntil returns the error of a wait for a port. err ended the wait. closed is the last error
// that said that the port was closed. If it is nil, closedUntil returns err alone.
func closedUntil(err, closed error) error {
	if closed == nil {
		return err
	}
	return fmt.Errorf("sandbox: wait for a port: %w: %w", closed, err)
}
