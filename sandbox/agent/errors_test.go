package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

// A call begins only in an open run that has time, ends with the run for its reason, and is
// forgotten when it has ended.
func TestCallsOfARun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, tt := range map[string]struct {
			life time.Duration // 0: no limit
			does func(r *Run)
			want error // for which the call ends
		}{
			"closed":           {0, func(r *Run) { _ = r.Close() }, ErrRunClosed},
			"out of time":      {time.Hour, func(*Run) { <-time.After(time.Hour) }, ErrRunTimeout},
			"closed with time": {time.Hour, func(r *Run) { _ = r.Close() }, ErrRunClosed},
		} {
			r := &Run{calls: map[*inFlight]struct{}{}, ending: func() error { return nil }}
			if tt.life > 0 {
				r.deadline = time.Now().Add(tt.life)
			}
			ctx, end, err := r.begin(t.Context())
			if err != nil || len(r.calls) != 1 {
				t.Fatalf("%s: got %v and %d calls, want one", name, err, len(r.calls))
			}
			other, endOther, err := r.begin(t.Context())
			must.Do(t, err)
			endOther()
			if len(r.calls) != 1 || other.Err() == nil {
				t.Errorf("%s: %d calls are left, want one, and the other ended: %v", name, len(r.calls), other.Err())
			}
			tt.does(r)
			synctest.Wait()
			if cause := context.Cause(ctx); !errors.Is(cause, tt.want) {
				t.Errorf("%s: the call ended for %v, want %v", name, cause, tt.want)
			}
			if _, _, err := r.begin(t.Context()); !errors.Is(err, tt.want) {
				t.Errorf("%s: the next call: got %v, want %v", name, err, tt.want)
			}
			end()
			if len(r.calls) != 0 {
				t.Errorf("%s: %d calls are left", name, len(r.calls))
			}
			r.open.Wait()
		}
	})
}

// An error of a call says once why its context ended, and that its kernel died is remembered.
func TestErrorsOfCalls(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, cause := range []error{nil, broken, ErrRunClosed, ErrStepTimeout, ErrRunTimeout} {
		for _, err := range []error{broken, fmt.Errorf("late: %w", orElse(cause, broken)), sandbox.ErrKernelDied, sandbox.ErrKernelRestarted} {
			ctx, end := context.WithCancelCause(t.Context())
			if cause != nil {
				end(cause)
			}
			var r Run
			got := r.failed(ctx, err)
			end(nil)
			if !errors.Is(got, err) {
				t.Errorf("%v of %v: got %v, which hides it", err, cause, got)
			}
			own := cause != nil && !errors.Is(cause, broken)
			if own && (!errors.Is(got, cause) || strings.Count(got.Error(), cause.Error()) != 1) {
				t.Errorf("%v of %v: got %v, want the reason once", err, cause, got)
			}
			if !own && got.Error() != err.Error() {
				t.Errorf("%v of %v: got %v, want it as it was", err, cause, got)
			}
			if died := errors.Is(err, sandbox.ErrKernelDied) || errors.Is(err, sandbox.ErrKernelRestarted); r.died != died {
				t.Errorf("%v: noted that the kernel died: %v, want %v", err, r.died, died)
			}
		}
	}
}

func orElse(err, other error) error {
	if err == nil {
		return other
	}
	return err
}

// failingHost is a host without a kernel.
type failingHost struct{ err error }

func (h failingHost) execute(context.Context, string, jupyter.ExecuteRequest, kernelconn.Handler) (jupyter.ExecuteReply, error) {
	return jupyter.ExecuteReply{}, h.err
}
func (h failingHost) upload(context.Context, string, io.Reader) error     { return h.err }
func (h failingHost) open(context.Context, string) (io.ReadCloser, error) { return nil, h.err }
func (h failingHost) about() about                                        { return about{logger: slog.New(slog.DiscardHandler)} }

// Exec returns a step unless its code did not begin, and counts it in any case.
func TestStepOfCodeThatDidNotBegin(t *testing.T) {
	t.Parallel()
	for err, begun := range map[error]bool{
		fmt.Errorf("%w: no connection", kernelconn.ErrNotSent): false, fmt.Errorf("%w: late", sandbox.ErrKernelRestarted): false,
		sandbox.ErrKernelDied: true, errors.New("broken"): true,
	} {
		r, newErr := newRun(&runs{}, failingHost{err}, &runContext{}, Params{Limits: Limits{MaxSteps: 1}})
		must.Do(t, newErr)
		step, got := r.Exec(t.Context(), "1")
		if !errors.Is(got, err) || (step != nil) != begun {
			t.Errorf("%v: got %+v and %v, want a step: %v", err, step, got, begun)
		}
		if _, got := r.Exec(t.Context(), "1"); !errors.Is(got, ErrStepLimit) {
			t.Errorf("%v, again: got %v, want %v", err, got, ErrStepLimit)
		}
	}
}
