// Package httpwait bounds the time that the answer to an HTTP request may take. Without a bound, a
// peer that sends a byte now and then could block the caller forever.
package httpwait

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Bounds of the time that the body of an answer may take if it is not a stream.
const (
	// Idle is the longest time for which no part of the body arrives.
	Idle = 20 * time.Second
	// Body is the longest time from the head of the answer to the end of its body.
	Body = time.Minute
)

// Limits bound the time that an answer may take.
type Limits struct {
	// Head bounds the time from the start of sending the request to the head of the answer. 0 means
	// that only the request's context bounds this time.
	Head time.Duration
	// Stream means that the body of a 2xx answer may take any time. All other
	// bodies are bounded by [Idle] and [Body].
	Stream bool
}

// SlowError reports an answer that did not arrive in time. It is a net.Error whose Timeout returns
// true. It does not match [context.DeadlineExceeded], because the caller set no deadline.
type SlowError struct {
	what  string
	limit time.Duration
}

// NewSlowError returns an error for a peer that was too slow. what is a clause in the past tense,
// such as "it did not answer". limit is the time within which the peer should have acted.
func NewSlowError(what string, limit time.Duration) *SlowError { return &SlowError{what, limit} }

func (e *SlowError) Error() string {
	return fmt.Sprintf("the peer is too slow: %s within %v", e.what, e.limit)
}

// Timeout returns true.
func (e *SlowError) Timeout() bool { return true }

// Temporary returns false: another attempt would take just as long.
func (e *SlowError) Temporary() bool { return false }

// Do sends a request with send. If the answer does not arrive within the limits, the request is
// cancelled, and Do or a Read of the answer's body returns a [*SlowError]. The caller must close
// the answer's body.
//
// When the request's context ends, Do returns, even while a Read of the request's body blocks. Then
// only this Read and one goroutine continue, until the Read returns. The request's body is not read
// again.
func Do(send func(*http.Request) (*http.Response, error), r *http.Request, limits Limits) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	if limits.Head > 0 {
		defer after(limits.Head, cancel, "it did not begin to answer").Stop()
	}
	response, err := sendUntil(ctx, send, r.WithContext(ctx))
	if err != nil {
		err = orSlow(ctx, err)
		cancel(nil)
		return nil, err
	}
	b := &body{ReadCloser: response.Body, ctx: ctx, cancel: cancel}
	if !limits.Stream || response.StatusCode < 200 || response.StatusCode > 299 {
		b.idle = after(Idle, cancel, "no more of its answer came")
		b.whole = after(Body, cancel, "its answer did not end")
	}
	response.Body = b
	return response, nil
}

// sendUntil sends a request with send. It returns at the latest when ctx ends. send alone might
// return later, because net/http waits for a Read of the request's body that is in progress.
func sendUntil(ctx context.Context, send func(*http.Request) (*http.Response, error), r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.Body == http.NoBody || r.GetBody != nil { // a body in memory never blocks
		return send(r)
	}
	r.Body = sentBody{r.Body, ctx}
	type answer struct {
		response *http.Response
		err      error
	}
	answers := make(chan answer)
	go func() {
		response, err := send(r)
		select {
		case answers <- answer{response, err}:
		case <-ctx.Done():
			if err == nil {
				_ = response.Body.Close()
			}
		}
	}()
	select {
	case a := <-answers:
		return a.response, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// sentBody is the body of a request. It is not read after the request has ended.
type sentBody struct {
	io.ReadCloser
	ctx context.Context //nolint:containedctx // the context of the request
}

func (b sentBody) Read(p []byte) (int, error) {
	if b.ctx.Err() != nil {
		return 0, context.Cause(b.ctx)
	}
	return b.ReadCloser.Read(p)
}

// after returns a timer that cancels a request after limit, with a [*SlowError]. what is the text
// for [NewSlowError].
func after(limit time.Duration, cancel context.CancelCauseFunc, what string) *time.Timer {
	return time.AfterFunc(limit, func() { cancel(&SlowError{what, limit}) })
}

// orSlow returns the [*SlowError] with which this package cancelled the request. If this package
// did not cancel the request, orSlow returns err.
func orSlow(ctx context.Context, err error) error {
	if slow, ok := errors.AsType[*SlowError](context.Cause(ctx)); ok {
		return slow
	}
	return err
}

// body is the body of an answer.
type body struct {
	io.ReadCloser
	ctx    context.Context //nolint:containedctx // the context of the request
	cancel context.CancelCauseFunc

	idle, whole *time.Timer // nil if the body may take any time
}

func (b *body) Read(p []byte) (int, error) {
	if b.idle != nil {
		b.idle.Reset(Idle)
		defer b.idle.Stop() // the caller may take any time to use it
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // a Reader returns io.EOF itself
		err = orSlow(b.ctx, err)
	}
	return n, err
}

func (b *body) Close() error {
	if b.idle != nil {
		b.idle.Stop()
		b.whole.Stop()
	}
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}
