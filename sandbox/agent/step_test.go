package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pyshim"
	"github.com/e2bctl/e2bctl/sandbox"
)

// scripted returns a host whose kernel runs code as the functions say.
func scripted(t *testing.T, code map[string]func(context.Context, kernelconn.Handler) (jupyter.ExecuteReply, error)) *scriptedHost {
	t.Helper()
	return &scriptedHost{t: t, answers: map[string]any{}, logger: slog.New(slog.DiscardHandler), code: code}
}

// TestTruncated checks that a step reports dropped output of either stream.
func TestTruncated(t *testing.T) {
	t.Parallel()
	for dropped, want := range map[[2]int64]bool{{0, 0}: false, {1, 0}: true, {0, 1}: true, {1, 1}: true} {
		s := Step{Execution: sandbox.Execution{StdoutDropped: dropped[0], StderrDropped: dropped[1]}}
		if got := s.Truncated(); got != want {
			t.Errorf("%v: got %v, want %v", dropped, got, want)
		}
	}
}

// TestObservationOfErrors checks the text of an exception for a model: with its traceback, or with the guard's text instead.
func TestObservationOfErrors(t *testing.T) {
	t.Parallel()
	raised := &sandbox.ExecutionError{Name: "E", Value: "no", Traceback: "\n\nline 1\nline 2\n"}
	for want, step := range map[string]*Step{
		"Error:\nE: no\nline 1\nline 2\n": {Execution: sandbox.Execution{Error: raised}},
		"Error:\nE: No. Ask\n":            {Execution: sandbox.Execution{Error: raised}, Refused: &Violation{Message: "No", Suggestion: "Ask"}},
	} {
		if got := step.Observation(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestCodeAfterItsAnswer checks that code that goes on after its final answer is interrupted two seconds later, which is
// no error, and that code that ends before that is not.
func TestCodeAfterItsAnswer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		ends time.Duration // after the answer; 0: it goes on
		took time.Duration
		want error
	}{
		"goes on":      {0, afterFinal, nil},
		"ends":         {time.Second, time.Second, nil},
		"is cut off":   {time.Nanosecond, time.Nanosecond, errLost},
		"is cut later": {time.Second, time.Second, errLost},
	} {
		synctest.Test(t, func(t *testing.T) {
			var h *scriptedHost
			h = scripted(t, map[string]func(context.Context, kernelconn.Handler) (jupyter.ExecuteReply, error){
				"answer": func(ctx context.Context, handler kernelconn.Handler) (jupyter.ExecuteReply, error) {
					err := h.call(ctx, handler, finalAnswer, `{"v":1,"value":{"answer":7}}`)
					if tt.ends == 0 {
						<-ctx.Done()
						return jupyter.ExecuteReply{}, errors.Join(err, context.Cause(ctx))
					}
					<-time.After(tt.ends)
					return jupyter.ExecuteReply{Status: "ok"}, errors.Join(err, tt.want)
				},
			})
			r := h.begin(Params{})
			start := time.Now()
			step, err := r.Exec(t.Context(), "answer")
			if took := time.Since(start); !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) || took != tt.took {
				t.Errorf("%s: got error %v after %v, want %v after %v", name, err, took, tt.want, tt.took)
			}
			if got := string(step.Value.Bytes()); !step.Final || got != `{"v":1,"value":7}` || step.Error != nil {
				t.Errorf("%s: got %s, final %v, exception %v, want the answer 7", name, got, step.Final, step.Error)
			}
			must.Do(t, r.Close())
		})
	}
}

// TestStepThatWasInterrupted checks the step after one whose code was interrupted: it runs in the same kernel if the code
// ended. If the code did not end, the kernel was replaced, and that is an error unless the code was too slow itself.
func TestStepThatWasInterrupted(t *testing.T) {
	t.Parallel()
	type outcome struct {
		begun, restarted bool
		err              error
	}
	same, next := outcome{true, false, nil}, outcome{true, true, nil}
	for name, tt := range map[string]struct {
		slow     bool  // it ran longer than the limit of a step, or the call was cancelled otherwise
		ended    bool  // it ended when it was interrupted
		replaced bool  // its kernel
		waiting  error // of the wait for its end
		want     []outcome
	}{
		"slow, ended":        {slow: true, ended: true, replaced: true, want: []outcome{same, same}}, // nothing has to be found out
		"slow, ends later":   {slow: true, want: []outcome{same, same}},
		"slow, never ends":   {slow: true, replaced: true, want: []outcome{next, same}},
		"lost, ends later":   {want: []outcome{same, same}},
		"lost, never ends":   {replaced: true, want: []outcome{{false, false, sandbox.ErrKernelRestarted}, next}},
		"lost, still lost":   {waiting: errLost, want: []outcome{{false, false, kernelconn.ErrNotSent}, {false, false, kernelconn.ErrNotSent}}},
		"slow, kernel died":  {slow: true, waiting: sandbox.ErrKernelDied, want: []outcome{next, same}},
		"lost, kernel died":  {waiting: sandbox.ErrKernelDied, want: []outcome{{false, false, sandbox.ErrKernelRestarted}, next}},
		"slow, still at it":  {slow: true, waiting: errLost, want: []outcome{{false, false, kernelconn.ErrNotSent}}},
		"slow, ends at once": {slow: true, ended: true, want: []outcome{same}},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := &interruptedHost{scriptedHost: scripted(t, nil), waiting: tt.waiting}
			h.code = map[string]func(context.Context, kernelconn.Handler) (jupyter.ExecuteReply, error){
				"run": func(ctx context.Context, handler kernelconn.Handler) (jupyter.ExecuteReply, error) {
					if !tt.slow {
						return jupyter.ExecuteReply{}, errLost
					}
					limited, unbind := handler.Within(ctx)
					defer unbind()
					<-limited.Done()
					raised := jupyter.ExecuteReply{Status: "error", ErrorContent: jupyter.ErrorContent{Name: "KeyboardInterrupt"}}
					return raised, &sandbox.InterruptedError{Cause: context.Cause(limited), Ended: tt.ended, Ran: time.Second}
				},
			}
			r, err := newRun(&runs{}, h, &runContext{id: "context-1"}, Params{Limits: Limits{StepTimeout: time.Minute}})
			must.Do(t, err)
			h.answers[pyshim.CallTools("placed")] = map[string]any{"placed": !tt.replaced}
			key, _, err := r.toolSpecs()
			must.Do(t, err)
			h.answers[pyshim.CallTools("begin", key, int64(0), "")] = map[string]any{"known": true}
			h.answers[pyshim.Call("begin")] = map[string]any{"token": "t"}
			want := errLost
			if tt.slow {
				want = ErrStepTimeout
			}
			step, err := r.Exec(t.Context(), "run")
			if must.Is(t, err, want); tt.slow && (step.overran != time.Minute || (step.Error.Name == "KeyboardInterrupt") != tt.ended) {
				t.Errorf("%s: got %+v after %v, want the exception of the interrupt: %v", name, step.Error, step.overran, tt.ended)
			}
			for i, want := range tt.want {
				step, err := r.Exec(t.Context(), "x")
				got := outcome{begun: step != nil, restarted: step != nil && step.Restarted, err: want.err}
				if got != want || !errors.Is(err, want.err) || (err == nil) != (want.err == nil) {
					t.Errorf("%s, step %d after it: got %+v, error %v, want %+v", name, i+1, got, err, want)
				}
				if !tt.replaced && tt.waiting == nil {
					continue
				}
				h.waiting = orKeep(h.waiting, want.err)
				h.answers[pyshim.CallTools("placed")] = map[string]any{"placed": true}
			}
			h.waiting = nil
			must.Do(t, r.Close())
		})
	}
}

// orKeep returns the error of a host after a step that failed with failed: a kernel that died is replaced by then.
func orKeep(waiting, failed error) error {
	if errors.Is(failed, kernelconn.ErrNotSent) {
		return waiting
	}
	return nil
}

// interruptedHost fails the wait for the end of code.
type interruptedHost struct {
	*scriptedHost
	waiting error
}

func (h *interruptedHost) execute(ctx context.Context, id string, request jupyter.ExecuteRequest, handler kernelconn.Handler) (jupyter.ExecuteReply, error) {
	if h.waiting != nil && request.UserExpressions[toolsKey] == pyshim.CallTools("placed") {
		return jupyter.ExecuteReply{}, h.waiting
	}
	return h.scriptedHost.execute(ctx, id, request, handler)
}

// TestValueOfAStep checks that a value that cannot be read is an error only if the code has one, and that a kernel without
// the run's modules is one in any case.
func TestValueOfAStep(t *testing.T) {
	t.Parallel()
	main := []sandbox.Result{{}, {Main: true}}
	for name, tt := range map[string]struct {
		results []sandbox.Result
		value   any
		want    string // the value, or a part of the error
	}{
		"a value":                 {main, 5, `{"v":1,"value":5}`},
		"a value not asked for":   {main[:1], 5, `{"v":1,"value":null}`},
		"none":                    {nil, errRaised, `{"v":1,"value":null}`},
		"an unreadable one":       {main, errRaised, "agent: value of step 3: the kernel answered ValueError: no"},
		"no modules":              {nil, errMissing, sandbox.ErrKernelDied.Error()},
		"no modules, but a value": {main, errMissing, sandbox.ErrKernelDied.Error()},
	} {
		step := &Step{N: 3, Execution: sandbox.Execution{Results: tt.results}}
		r := &Run{}
		err := r.takeValue(t.Context(), replyOf(t, map[string]any{valueKey: tt.value}), step)
		got := string(step.Value.Bytes())
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, tt.want) || (err == nil) != strings.HasPrefix(tt.want, "{") {
			t.Errorf("%s: got %s, error %v, want %s", name, step.Value.Bytes(), err, tt.want)
		}
		if died := tt.value == any(errMissing); r.died != died {
			t.Errorf("%s: noted that the kernel died: %v, want %v", name, r.died, died)
		}
	}
}

// TestCloseWaits checks that Close waits for the calls that it interrupts, and frees the context after them.
func TestCloseWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := scripted(t, map[string]func(context.Context, kernelconn.Handler) (jupyter.ExecuteReply, error){
			"linger": func(ctx context.Context, _ kernelconn.Handler) (jupyter.ExecuteReply, error) {
				<-ctx.Done()
				<-time.After(time.Hour)
				return jupyter.ExecuteReply{}, context.Cause(ctx)
			},
		})
		r := h.begin(Params{})
		r.context.busy = true
		result := make(chan error, 1)
		go func() {
			_, err := r.Exec(t.Context(), "linger")
			result <- err
		}()
		synctest.Wait()
		start := time.Now()
		must.Do(t, r.Close())
		if took := time.Since(start); took != time.Hour || r.context.busy {
			t.Errorf("Close took %v, the context is free: %v, want an hour, and that it is", took, !r.context.busy)
		}
		must.Is(t, <-result, ErrRunClosed)
	})
}

// TestCallsBetweenSteps checks how many refused calls a kernel may report at the end of a run, and how many of them the run counts.
func TestCallsBetweenSteps(t *testing.T) {
	t.Parallel()
	refused := make([]any, maxRefused+1)
	for i := range refused {
		refused[i] = fmt.Sprint("tool", i)
	}
	for n, want := range map[int]int{0: 0, 1: 1, maxRefused: maxRefused, maxRefused + 1: maxRefused} {
		h := scripted(t, nil)
		h.answers[pyshim.CallTools("end")] = map[string]any{"refused": refused[:n]}
		r := h.begin(Params{})
		must.Do(t, r.Close())
		m := r.Metrics()
		if diff := cmp.Diff([2]int{want, want}, [2]int{m.ToolCalls, m.ToolErrors}); diff != "" {
			t.Errorf("%d refused calls (-want +got):\n%s", n, diff)
		}
	}
}
