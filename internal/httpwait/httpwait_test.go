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
		"drips": {Limits{}, drip(200, 1e6, time.Second), Body, "its answer did not end within 1m0s"},
		"stops": {Limits{}, drip(200, 1e6, time.Hour), Idle, "no more of its answer came within 20s"},
		"stops later": {Limits{}, func(w http.ResponseWriter, r *http.Request) {
			drip(200, 1, 5*time.Second)(w, r)
			_ = http.NewResponseController(w).Flush()
			silent(w, r)
		}, 5*time.Second + Idle, "no more of its answer came within 20s"},
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

// TestEndOfSlowBody checks that the rest and the end of a body that has arrived are no error, even if the time is up.
func TestEndOfSlowBody(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	b := &body{ReadCloser: io.NopCloser(strings.NewReader("x")), ctx: ctx, cancel: cancel}
	cancel(NewSlowError("it did not end", time.Second))
	if n, err := b.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("got %d bytes and %v, want the last one and no error", n, err)
	}
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

// TestStatusOfStream checks that only the body of a 2xx answer may take any time if a stream is expected.
func TestStatusOfStream(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status  int
		stream  bool
		bounded bool
	}{
		{199, true, true}, {200, true, false}, {299, true, false}, {300, true, true}, {200, false, true}, {299, false, true},
	} {
		response, err := Do(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: test.status, Body: http.NoBody}, nil
		}, request(t, nil), Limits{Stream: test.stream})
		must.Do(t, err)
		if b, ok := response.Body.(*body); !ok || (b.idle != nil) != test.bounded || (b.whole != nil) != test.bounded {
			t.Errorf("status %d, stream %v: got the body %+v, want that it is bounded: %v", test.status, test.stream, response.Body, test.bounded)
		}
		must.Do(t, response.Body.Close())
	}
}

// request returns a request with a body that cannot be sent again.
func request(t *testing.T, body io.ReadCloser) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://service/", nil)
	must.Do(t, err)
	r.Body = body
	return r
}

// TestSentBody checks that a request without a body, or with an empty one, is sent as it is, and that it ends if it fails.
func TestSentBody(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		body  io.ReadCloser
		plain bool
	}{"none": {nil, true}, "empty": {http.NoBody, true}, "a stream": {&closer{Reader: strings.NewReader("")}, false}} {
		var sent *http.Request
		_, err := Do(func(r *http.Request) (*http.Response, error) {
			sent = r
			return nil, io.ErrUnexpectedEOF
		}, request(t, test.body), Limits{})
		must.Is(t, err, io.ErrUnexpectedEOF)
		if plain := sent.Body == test.body; plain != test.plain {
			t.Errorf("%s: got the body %T, want that it is as before: %v", name, sent.Body, test.plain)
		}
		must.Is(t, sent.Context().Err(), context.Canceled)
	}
}

// cut is the body of an answer that ends with its request, with an error that does not tell the cause.
type cut struct{ until <-chan struct{} }

func (c cut) Read([]byte) (int, error) {
	<-c.until
	return 0, io.ErrUnexpectedEOF
}

func (cut) Close() error { return nil }

// TestCause checks that a request or a body that a limit ended is reported as too slow, whatever the error of the transport
// is, and that an earlier error is returned as it is.
func TestCause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, err := Do(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, io.ErrUnexpectedEOF
		}, request(t, nil), Limits{Head: time.Second})
		if _, ok := errors.AsType[*SlowError](err); !ok {
			t.Errorf("got %v for a request that its limit ended, want a *SlowError", err)
		}
		ended := make(chan struct{})
		close(ended)
		for _, until := range []<-chan struct{}{nil, ended} {
			response, err := Do(func(r *http.Request) (*http.Response, error) {
				if until == nil {
					return &http.Response{Body: cut{r.Context().Done()}}, nil
				}
				return &http.Response{Body: cut{until}}, nil
			}, request(t, nil), Limits{})
			must.Do(t, err)
			_, err = response.Body.Read(nil)
			if _, slow := errors.AsType[*SlowError](err); slow != (until == nil) || !slow && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("got %v, ended early %v, want a *SlowError or else the error of the body", err, until != nil)
			}
			must.Do(t, response.Body.Close())
		}
	})
}
