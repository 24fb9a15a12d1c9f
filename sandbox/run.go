package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/pyshim"
	"github.com/e2bctl/e2bctl/state"
)

var (
	// ErrContextBusy is what Begin returns while another run of this handle is
	// open in the context.
	ErrContextBusy = errors.New("sandbox: another run is open in this context: close it, or use another context")
	// ErrRunClosed is what a call on a closed run returns, and one that Close
	// cut off.
	ErrRunClosed = errors.New("sandbox: the run is closed")
	// ErrStepLimit is what Exec returns after Limits.MaxSteps.
	ErrStepLimit = errors.New("sandbox: the run has no steps left")
	// ErrStepTimeout is what Exec returns when code ran longer than
	// Limits.StepTimeout; the step has what came until then.
	ErrStepTimeout = errors.New("sandbox: the step took longer than Limits.StepTimeout; it was interrupted")
)

// RunParams say how a run begins. The zero value is a run in the default
// context, without state.
type RunParams struct {
	// State becomes variables. What the context's kernel has from an earlier run
	// of this handle, and was not Set since, is not sent again: the variable
	// stays as code left it. Nil is no state.
	State *state.State
	// OnConflict says what becomes of variables of State that code changed since
	// they were last sent or pulled. The default is [KeepSandbox].
	OnConflict ConflictRule
	// Packages are installed first, as by [Packages.Install].
	Packages []string
	// Context is the id of the Python context to run in; empty means the default
	// one, so that RunCode sees the same variables.
	Context string
	// Limits bound the run.
	Limits Limits
	// Guard says what code may import and call; nil is no guard.
	Guard *Guard
	// Stdout and Stderr get what code prints as it comes, in full, from the
	// goroutine that calls Exec. May be nil.
	Stdout, Stderr io.Writer
}

// Limits bound a run. A zero field sets no bound of its own.
type Limits struct {
	// MaxSteps is how many times Exec may run code.
	MaxSteps int
	// StepTimeout is how long the code of one step may take.
	StepTimeout time.Duration
	// MaxOutputBytes is how much of each of stdout and stderr a step keeps: the
	// head and the tail. 0 means [DefaultMaxOutput].
	MaxOutputBytes int
}

// Run is a row of steps in one context of a sandbox. It is safe for concurrent
// use; steps run one after the other.
type Run struct {
	// Installation is what came of RunParams.Packages; nil without.
	Installation *Installation

	runs    *runs
	host    runHost
	context *runContext
	params  RunParams

	mu     sync.Mutex
	closed bool
	steps  int
	calls  map[*inFlight]struct{}
	open   sync.WaitGroup
}

// Step is what one piece of code gave.
type Step struct {
	// N counts the steps of the run from 1.
	N int
	// Execution has output and results. Its Error is the exception that ended
	// the code: for a model it is an observation, so Exec does not return it.
	Execution
	// Value is the value of the last expression, typed; None when there was
	// none. One larger than 1 MiB is opaque: assign it to a variable and use
	// [Run.Get].
	Value state.Value
	// Violations are what the guard refused, whether the code caught it or not.
	Violations []Violation
	// Imports are the modules that the code imported under a guard, sorted.
	Imports []string
	// Duration is how long the step took, seen from here.
	Duration time.Duration
}

// Truncated tells whether output was dropped; the counters are in Execution.
func (s *Step) Truncated() bool { return s.StdoutDropped > 0 || s.StderrDropped > 0 }

const (
	// maxStepValue bounds the document of a step's value: it travels in a message.
	maxStepValue = 1 << 20
	// valueKey names the expression that gives the value.
	valueKey = "value"
)

// Begin starts a run: installs its packages, sends its state, and holds the
// context until Close. ctx bounds the call, not the run. The websocket transport
// is needed.
//
// Errors are [ErrContextBusy], an [*InstallError], a [*GuardError], one of package state that
// names the variable, or a transport's; the context is free then.
func (sb *Sandbox) Begin(ctx context.Context, p *RunParams) (*Run, error) {
	if p == nil {
		p = &RunParams{}
	}
	if _, err := p.Guard.config(p.Packages); err != nil {
		return nil, err
	}
	var installation *Installation
	if len(p.Packages) > 0 {
		var err error
		if installation, err = sb.Packages.Install(ctx, p.Packages...); err != nil {
			return nil, err
		}
	}
	id, err := sb.contextID(ctx, p.Context)
	if err != nil {
		return nil, err
	}
	r, err := sb.runs.begin(ctx, sandboxHost{sb}, id, *p)
	if err != nil {
		return nil, err
	}
	r.Installation = installation
	return r, nil
}

// Exec runs code and returns what it gave. The step is nil only when the code
// did not start. An exception is not an error here, but data in the step.
func (r *Run) Exec(ctx context.Context, code string) (*Step, error) {
	ctx, end, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	step := &Step{}
	r.mu.Lock()
	if most := r.params.Limits.MaxSteps; most > 0 && r.steps >= most {
		r.mu.Unlock()
		return nil, fmt.Errorf("%w: %d were allowed", ErrStepLimit, most)
	}
	r.steps++
	step.N = r.steps
	r.mu.Unlock()
	if limit := r.params.Limits.StepTimeout; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, ErrStepTimeout)
		defer cancel()
	}
	start := time.Now()
	expressions := map[string]string{valueKey: pyshim.Call("last", maxStepValue)}
	if r.params.Guard != nil {
		expressions[guardKey] = pyshim.CallGuard("report")
	}
	c := newCollector(&RunCodeParams{Stdout: r.params.Stdout, Stderr: r.params.Stderr, MaxOutput: r.params.Limits.MaxOutputBytes})
	reply, err := r.host.execute(ctx, r.context.id, jupyter.ExecuteRequest{
		Code: code, StoreHistory: true,
		UserExpressions: expressions,
	}, executionHandler{message: c.message})
	step.Execution, step.Duration = *c.finished(), time.Since(start)
	if err != nil {
		return step, r.failed(ctx, err)
	}
	if reply.Status != "ok" {
		if step.Error == nil {
			step.Error = newExecutionError(reply.Name, reply.Value, strings.Join(reply.Traceback, "\n"))
		}
	}
	if r.params.Guard != nil {
		if err := r.context.report(ctx, r.host, reply, step); err != nil {
			return step, r.failed(ctx, fmt.Errorf("sandbox: guard of step %d: %w", step.N, err))
		}
	}
	if step.Error != nil {
		return step, nil
	}
	if hasMain(step.Results) {
		doc, err := expressionValue(reply, valueKey)
		if err == nil {
			step.Value, err = state.Parse(doc, state.Limits{MaxBytes: 2 * maxStepValue})
		}
		if err != nil {
			return step, fmt.Errorf("sandbox: value of step %d: %w", step.N, lost(err))
		}
	}
	return step, nil
}

func hasMain(results []Result) bool {
	for _, r := range results {
		if r.Main {
			return true
		}
	}
	return false
}

// Get gives a variable as it is now. The error wraps [state.ErrNotFound] when
// there is no such variable.
func (r *Run) Get(ctx context.Context, name string) (state.Value, error) {
	ctx, end, err := r.begin(ctx)
	if err != nil {
		return state.Value{}, err
	}
	defer end()
	value, err := r.context.get(ctx, r.host, name)
	if err != nil {
		return state.Value{}, r.failed(ctx, fmt.Errorf("sandbox: get %.64q: %w", name, err))
	}
	return value, nil
}

// Pull brings what code changed into st: variables that are not as they were
// when they were last sent or pulled, new ones (but those whose name starts
// with an underscore), and removals. Up to 64 MiB of values in all are compared in
// full; of what is larger, a write in place is seen where a sample meets it. What code changed wins over a Set since.
// A variable of st that became something without a Go form is opaque in st;
// new variables without one, or with the name of a builtin, are left out. Nothing changes in st when Pull
// fails before it has everything.
func (r *Run) Pull(ctx context.Context, st *state.State) error {
	ctx, end, err := r.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := r.context.pull(ctx, r.host, st); err != nil {
		return r.failed(ctx, fmt.Errorf("sandbox: pull state: %w", err))
	}
	return nil
}

// Close ends the run: it cuts off calls that are under way, waits for them, and
// frees the context. The sandbox and its variables stay. It is idempotent and
// nil-safe, and its error is always nil.
func (r *Run) Close() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	first := !r.closed
	r.closed = true
	for c := range r.calls {
		c.cancel(ErrRunClosed)
	}
	r.mu.Unlock()
	r.open.Wait()
	if first {
		if r.params.Guard != nil {
			r.context.disarm(r.host)
		}
		r.runs.release(r.context)
	}
	return nil
}

// begin enters a call that Close can cut off.
func (r *Run) begin(ctx context.Context) (_ context.Context, end func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, nil, ErrRunClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	c := &inFlight{cancel}
	r.calls[c] = struct{}{}
	r.open.Add(1)
	return ctx, func() {
		cancel(nil)
		r.mu.Lock()
		delete(r.calls, c)
		r.mu.Unlock()
		r.open.Done()
	}, nil
}

// failed gives the error of a call: why its context ended says more than that
// it did.
func (r *Run) failed(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	for _, own := range []error{ErrRunClosed, ErrStepTimeout} {
		if errors.Is(cause, own) && !errors.Is(err, own) {
			return fmt.Errorf("%w: %w", own, err)
		}
	}
	return err
}
