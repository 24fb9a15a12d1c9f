package httpwait

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pipetest"
)

// ask sends a request to a real server with the given handler and reads the
// answer. It returns how long that took.
func ask(ctx context.Context, t *testing.T, limits Limits, handler http.HandlerFunc) (body string, took time.Duration, err error) {
	t.Helper()
	transport := pipetest.Serve(t, handler)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://service/", nil)
	must.Do(t, err)
	start := time.Now()
	response, err := Do((&http.Client{Transport: transport}).Do, r, limits)
	if err != nil {
		return "", time.Since(start), err
	}
	text, err := io.ReadAll(response.Body)
	took = time.Since(start)
	if err := response.Body.Close(); err != nil {
		t.Error(err)
	}
	return string(text), took, err
}

// drip answers with a status and then n bytes, one after each interval, until the
// request ends.
func drip(status, n int, each time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		flusher := http.NewResponseController(w)
		for range n {
			if flusher.Flush() != nil {
				return
			}
			select {
			case <-time.After(each):
			case <-r.Context().Done():
				return
			}
			_, _ = io.WriteString(w, "x")
		}
	}
}

func silent(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func TestDo(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limits  Limits
		handler http.HandlerFunc
		took    time.Duration
		want    string // of the error, or of the body
	}{
		"drips":             {Limits{}, drip(200, 1e6, time.Second), Body, "its answer did not end within 1m0s"},
		"stops":             {Limits{}, drip(200, 1e6, time.Hour), Idle, "no more of its answer came within 20s"},
		"no head":           {Limits{Head: time.Minute}, silent, time.Minute, "it did not begin to answer within 1m0s"},
		"an error drips":    {Limits{Stream: true}, drip(500, 1e6, time.Second), Body, "its answer did not end within 1m0s"},
		"slow, but in time": {Limits{}, drip(200, 3, 19*time.Second), 57 * time.Second, "xxx"},
		"a stream":          {Limits{Stream: true}, drip(200, 3, time.Hour), 3 * time.Hour, "xxx"},
		"a late head": {Limits{Head: time.Minute}, func(w http.ResponseWriter, r *http.Request) {
			<-time.After(59 * time.Second)
			drip(200, 2, time.Second)(w, r)
		}, 61 * time.Second, "xx"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				text, took, err := ask(t.Context(), t, test.limits, test.handler)
				if slow, ok := errors.AsType[*SlowError](err); ok {
					text = slow.Error()
					if !slow.Timeout() || errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("got %v, want a timeout that is not context.DeadlineExceeded", err)
					}
				} else if err != nil {
					t.Error(err)
				}
				if !strings.HasSuffix(text, test.want) || took != test.took {
					t.Errorf("%q after %v, want %q after %v", text, took, test.want, test.took)
				}
			})
		})
	}
}

// TestDoHeedsItsContext checks that the caller's context still ends a request, and is then the reason.
func TestDoHeedsItsContext(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]http.HandlerFunc{"no head": silent, "drips": drip(200, 1e6, time.Second)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, took, err := ask(ctx, t, Limits{Head: time.Hour}, handler)
				if !errors.Is(err, context.DeadlineExceeded) || took != 5*time.Second {
					t.Errorf("got %v after %v, want context.DeadlineExceeded after %v", err, took, 5*time.Second)
				}
			})
		})
	}
}

// TestSlowReader checks that a caller may take its time to read a body that has arrived.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		b := &body{ReadCloser: io.NopCloser(strings.NewReader("xx")), ctx: ctx, cancel: cancel}
		b.idle, b.whole = after(Idle, cancel, "idle"), after(Body, cancel, "whole")
		defer b.Close()
		one := make([]byte, 1)
		for range 2 {
			if _, err := b.Read(one); err != nil {
				t.Error(err)
			}
			<-time.After(Idle + time.Second)
			if err := context.Cause(ctx); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestDoDoesNotWaitForItsBody checks that a request ends with its context while its body is silent,
// and that the body is not read afterwards.
func TestDoDoesNotWaitForItsBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		transport := pipetest.Serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		body, speak := io.Pipe()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://service/", body)
		must.Do(t, err)
		start := time.Now()
		if _, err := Do(transport.RoundTrip, r, Limits{}); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 5*time.Second {
			t.Errorf("got %v after %v, want context.DeadlineExceeded after 5s", err, time.Since(start))
		}
		must.Do(t, second(speak.Write([]byte("late")))) // the read in progress takes it
		if _, err := speak.Write([]byte("too late")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("got %v for a write after the request's end, want that its body is closed", err)
		}
	})
}

func second[T any](_ T, err error) error { return err }

// TestClose checks that Close of an answer's body ends its request and stops its timers.
func TestClose(t *testing.T) {
	t.Parallel()
	var sent *http.Request
	send := func(r *http.Request) (*http.Response, error) {
		sent = r
		return &http.Response{StatusCode: http.StatusOK, Body: r.Body}, nil
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://service/", strings.NewReader("text"))
	must.Do(t, err)
	in := r.Body
	response, err := Do(send, r, Limits{})
	must.Do(t, err)
	if sent.Body != in {
		t.Errorf("got a body of type %T, want the one in memory", sent.Body)
	}
	must.Do(t, sent.Context().Err())
	must.Do(t, response.Body.Close())
	b, ok := response.Body.(*body)
	if !ok || b.idle.Stop() || b.whole.Stop() {
		t.Error("a timer runs on after Close")
	}
	must.Is(t, sent.Context().Err(), context.Canceled)
}

// TestEndOfSlowBody checks that the end of a body that has arrived is no error, even if the time is up.
func TestEndOfSlowBody(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	b := &body{ReadCloser: http.NoBody, ctx: ctx, cancel: cancel}
	cancel(NewSlowError("it did not end", time.Second))
	if _, err := b.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // a Reader returns io.EOF itself
		t.Errorf("got %v, want io.EOF", err)
	}
}

type closer struct {
	io.Reader
	closed bool
}

func (c *closer) Close() error {
	c.closed = true
	return nil
}

// TestLateAnswer checks that an answer after the request's end is closed, and that the request's
// body is not read then.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		late := &closer{Reader: strings.NewReader("")}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://service/", &closer{Reader: strings.NewReader("text")})
		must.Do(t, err)
		var readErr error
		_, err = Do(func(r *http.Request) (*http.Response, error) {
			<-time.After(time.Minute)
			_, readErr = r.Body.Read(make([]byte, 1))
			return &http.Response{Body: late}, nil
		}, r, Limits{Head: time.Second})
		if slow, ok := errors.AsType[*SlowError](err); !ok || slow.Temporary() {
			t.Errorf("got %v, want a *SlowError that is not temporary", err)
		}
		<-time.After(time.Hour)
		synctest.Wait()
		if _, ok := errors.AsType[*SlowError](readErr); !ok || !late.closed {
			t.Errorf("got %v for a late read, and closed %v, want a *SlowError and true", readErr, late.closed)
		}
	})
}
