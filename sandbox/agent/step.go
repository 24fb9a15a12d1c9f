package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
	"github.com/e2bctl/e2bctl/internal/pyshim"
	"github.com/e2bctl/e2bctl/internal/runhost"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/state"
)

// Step is the result of running one piece of code.
type Step struct {
	// N is the number of the step in the run, counted from 1.
	N int
	// Execution contains output and results. Its Error is the exception that ended the code. Exec does
	// not return this exception as an error, because for a model it is an observation. If Exec returns
	// [ErrStepTimeout], Error is the exception of the interrupt, usually a KeyboardInterrupt, with the
	// line and the traceback of the interrupted code. If the code did not stop within 2 seconds, or
	// stopped without an exception, Error is a TimeoutError without a traceback.
	sandbox.Execution
	// Restarted reports whether the step began in a new kernel, because the kernel of the
	// previous step died or was replaced. The variables were then those of Params.State.
	Restarted bool
	// Final reports whether the run has its final answer: Value is then the argument
	// of the code's first call of final_answer(…). Nothing else sets Final.
	Final bool
	// Value is the typed value of the last expression. It is None if there was no such expression. A
	// value larger than 1 MiB is opaque: assign it to a variable and use [Run.Get].
	Value state.Value
	// Refused is the violation that ended the code. It is nil if no violation ended the code.
	Refused *Violation
	// Violations lists all refusals of the guard, including those whose exception the code caught.
	Violations []Violation
	// Imports lists the modules that the code imported, sorted. It is recorded only with a guard.
	Imports []string
	// Duration is the duration of the step, measured in this program.
	Duration time.Duration

	maxOutput int64
	redact    *redactor
	overran   time.Duration // the limit after which the code was interrupted; 0 if the code exceeded no limit
}

// Decode decodes Value by the rules of [state.Unmarshal], and stores the result in the variable
// whose address is to. Value is the final answer if Final is set, and otherwise the value of the last
// expression. If there is no value, Decode returns an error.
func (s *Step) Decode(to any) error {
	if !s.Final && !hasMain(s.Results) {
		why := "the code does not end with an expression that has a value"
		if s.Error != nil {
			why = "the code ended with " + s.Error.Error()
		}
		return fmt.Errorf("agent: decode the value of step %d: there is none: %s: %w", s.N, why, api.ErrInvalidArgument)
	}
	if err := s.Value.Decode(to); err != nil {
		return fmt.Errorf("agent: decode the value of step %d: %w", s.N, err)
	}
	return nil
}

// Truncated reports whether output was dropped; Execution contains the amounts.
func (s *Step) Truncated() bool { return s.StdoutDropped > 0 || s.StderrDropped > 0 }

// Exec runs code and returns the result. The step is nil only if the code did not start. An
// exception in the code is not an error, but part of the step.
//
// If code takes longer than Limits.StepTimeout, Exec returns [ErrStepTimeout], and the step's Error
// contains the interrupted line. If the code does not stop, its kernel is replaced before the next
// step. Restarted is then set in the next step.
//
// If the kernel dies while running the code, Exec returns [sandbox.ErrKernelDied]. If the
// kernel was replaced since the last step for another reason, Exec returns
// [sandbox.ErrKernelRestarted], and the code did not start. In both cases variables are lost.
// The next Exec begins with the current values of Params.State, and with the guard and the
// tools.
//
// If ctx ends, Exec interrupts the code and returns within 100 ms. If the code stops within this
// time, the step contains the exception of the code.
func (r *Run) Exec(ctx context.Context, code string) (*Step, error) {
	ctx, end, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	step := &Step{maxOutput: r.params.Limits.MaxOutputBytes, redact: r.redact}
	if step.N, err = r.count(); err != nil {
		return nil, err
	}
	ctx, traced := r.params.Trace.step(ctx, step.N, code)
	calls, err := r.exec(ctx, code, step)
	err = r.redact.err(err)
	r.log.step(ctx, code, step, calls, err)
	traced(step, err)
	if notBegun(err) {
		return nil, err
	}
	return step, err
}

// notBegun reports whether err means that the code did not start.
func notBegun(err error) bool {
	return errors.Is(err, kernelconn.ErrNotSent) || errors.Is(err, sandbox.ErrKernelRestarted)
}

// revive prepares a new kernel for the run. It is necessary after the old kernel died, or after it
// was replaced because code that ran too long did not stop.
func (r *Run) revive(ctx context.Context) (restarted bool, err error) {
	r.mu.Lock()
	died, late := r.died, r.late
	r.mu.Unlock()
	if !died {
		switch replaced, err := r.reportCut(ctx); {
		case err != nil:
			return false, fmt.Errorf("%w: wait for the end of the previous step: %w", kernelconn.ErrNotSent, err)
		case !replaced:
			return false, nil
		case !late:
			return false, fmt.Errorf("%w: earlier code did not stop when it was interrupted", sandbox.ErrKernelRestarted)
		}
	}
	if err := r.prepare(ctx); err != nil {
		return false, fmt.Errorf("%w: begin again in another kernel: %w", kernelconn.ErrNotSent, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.died, r.cut = false, 0
	return true, nil
}

// count returns the number of a new step.
func (r *Run) count() (int, error) {
	if _, finished := r.final(); finished {
		return 0, ErrRunFinished
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if most := r.params.Limits.MaxSteps; most > 0 && r.steps >= most {
		return 0, fmt.Errorf("%w: %d were allowed", ErrStepLimit, most)
	}
	r.steps++
	return r.steps, nil
}

// exec runs the code of a step and stores the result in step.
func (r *Run) exec(ctx context.Context, code string, step *Step) ([]toolRecord, error) {
	var err error
	if step.Restarted, err = r.revive(ctx); err != nil {
		return nil, r.failed(ctx, fmt.Errorf("agent: step %d: %w", step.N, err))
	}
	unfinished, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	answered := make(chan struct{})
	calls := r.bridge.step(unfinished, step.N, func() { close(answered) })
	go endAfterAnswer(unfinished, answered, cancel)
	limit := func(ctx context.Context) (context.Context, context.CancelFunc) {
		if r.params.Limits.StepTimeout <= 0 {
			return ctx, func() {}
		}
		limited, cancel := context.WithTimeoutCause(ctx, r.params.Limits.StepTimeout, ErrStepTimeout)
		calls.within(limited)
		return limited, cancel
	}
	start := time.Now()
	expressions := map[string]string{valueKey: pyshim.Call("last", maxStepValue)}
	if r.params.Guard != nil {
		expressions[guardKey] = pyshim.CallGuard("report")
	}
	c := runhost.NewCollector(r.params.Stdout, r.params.Stderr, r.params.Limits.MaxOutputBytes)
	message, flush := r.redact.output(c.Message)
	reply, err := r.host.execute(unfinished, r.context.id, jupyter.ExecuteRequest{
		Code: code, StoreHistory: true,
		UserExpressions: expressions,
	}, kernelconn.Handler{Message: message, Input: calls.input, Limit: limit})
	err = errors.Join(err, flush())
	records := calls.end()
	step.Execution, step.Duration = *c.Finished().(*sandbox.Execution), time.Since(start)
	if answer, ok := r.final(); ok {
		step.Final, step.Value = true, answer
		if step.Error != nil && step.Error.Name == "FinalAnswer" {
			step.Error = nil
		}
		if errors.Is(context.Cause(unfinished), ErrRunFinished) {
			err = nil
		}
	}
	// The cause of ctx may be the timeout of another run that called this one as a tool.
	late := errors.Is(err, ErrStepTimeout) && !errors.Is(context.Cause(ctx), ErrStepTimeout)
	interrupted, _ := errors.AsType[*sandbox.InterruptedError](err)
	if ended := late && interrupted != nil && interrupted.Ended; err != nil && !ended {
		if late {
			step.overrun(r.params.Limits.StepTimeout, interrupted)
		}
		if !notBegun(err) {
			r.wasCut(step.N, late)
		}
		return records, r.failed(ctx, err)
	}
	if reply.Status != "ok" && step.Error == nil && !step.Final {
		c.Failed(r.redact.text(reply.Name), r.redact.text(reply.Value), r.redact.text(strings.Join(reply.Traceback, "\n")))
		step.Error = c.Finished().(*sandbox.Execution).Error
	}
	if late {
		step.overrun(r.params.Limits.StepTimeout, interrupted)
	}
	if r.params.Guard != nil {
		if err := r.context.report(ctx, r.host, reply, step, r.redact); err != nil {
			return records, r.failed(ctx, fmt.Errorf("agent: guard of step %d: %w", step.N, err))
		}
	}
	if step.Final || step.Error != nil {
		return records, err
	}
	return records, r.takeValue(ctx, reply, step)
}

// endAfterAnswer interrupts code that still runs when the time afterFinal has passed since the final
// answer.
func endAfterAnswer(unfinished context.Context, answered <-chan struct{}, cancel context.CancelCauseFunc) {
	select {
	case <-answered:
	case <-unfinished.Done():
		return
	}
	grace := time.NewTimer(afterFinal)
	defer grace.Stop()
	select {
	case <-grace.C:
		cancel(ErrRunFinished)
	case <-unfinished.Done():
	}
}

// takeValue stores the value of the code's last expression in step.
func (r *Run) takeValue(ctx context.Context, reply jupyter.ExecuteReply, step *Step) error {
	doc, err := expressionValue(reply, valueKey)
	main := hasMain(step.Results)
	if main {
		if err == nil {
			step.Value, err = state.Parse(doc, state.Bounds{MaxBytes: 2 * maxStepValue})
		}
		step.Value = r.redact.value(step.Value)
	}
	if err = lost(err); err != nil && (main || errors.Is(err, sandbox.ErrKernelDied)) {
		return r.failed(ctx, fmt.Errorf("agent: value of step %d: %w", step.N, err))
	}
	return nil
}

// overrun records that the code was interrupted because it took longer than limit, and
// makes sure that Error describes the outcome.
func (s *Step) overrun(limit time.Duration, interrupted *sandbox.InterruptedError) {
	s.overran = limit
	if s.Error != nil {
		return
	}
	why := fmt.Sprintf("it did not stop within %v when it was interrupted: unless it stops soon its kernel is replaced, and all variables are lost", kernelconn.LimitGrace)
	switch {
	case interrupted == nil:
	case interrupted.Ended:
		why = "it ended without an exception when it was interrupted"
	case interrupted.Starting:
		why = "it did not begin: the kernel was still starting"
	case interrupted.Ran == 0:
		why = "it was not seen to begin: other code of the context may be running, or it does not let Python do anything else"
	}
	s.Error = &sandbox.ExecutionError{Name: "TimeoutError", Value: fmt.Sprintf("the code took longer than %v, and %s", limit, why)}
}

// final returns the final answer, and whether there is one.
func (r *Run) final() (state.Value, bool) {
	r.bridge.mu.Lock()
	defer r.bridge.mu.Unlock()
	if r.bridge.final == nil {
		return state.Value{}, false
	}
	return *r.bridge.final, true
}

func hasMain(results []sandbox.Result) bool {
	for _, r := range results {
		if r.Main {
			return true
		}
	}
	return false
}
