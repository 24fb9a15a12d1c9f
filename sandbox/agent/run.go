package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
	"github.com/e2bctl/e2bctl/internal/pyshim"
	"github.com/e2bctl/e2bctl/internal/runhost"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/state"
)

var (
	// ErrContextBusy is returned by Begin while another run of this handle is
	// open in the context.
	ErrContextBusy = errors.New("agent: another run is open in this context: close it, or use another context")
	// ErrRunClosed is returned by calls on a closed run, and by calls that Close
	// cut off.
	ErrRunClosed = errors.New("agent: the run is closed")
	// ErrStepLimit is returned by Exec after Limits.MaxSteps steps.
	ErrStepLimit = errors.New("agent: the run has no steps left")
	// ErrStepTimeout is returned by Exec when code ran longer than
	// Limits.StepTimeout; the step has what arrived until then, and its Error says
	// where the code was.
	ErrStepTimeout = errors.New("agent: the step took longer than Limits.StepTimeout")
	// ErrRunTimeout is returned by calls after Limits.RunTimeout; a step that was
	// under way has what arrived until then.
	ErrRunTimeout = errors.New("agent: the run took longer than Limits.RunTimeout")
	// ErrRunFinished is returned by Exec after the final answer.
	ErrRunFinished = errors.New("agent: the run has its final answer")
)

// Params configure a run. The zero value is a run in the default
// context, without state.
type Params struct {
	// State becomes variables in the context. A variable that the kernel has from
	// an earlier run of this handle, and that was not Set since, is not sent
	// again: it stays as code left it. Nil means no state.
	State *state.State
	// OnConflict says what happens to variables of State that code changed since
	// they were last sent or pulled. The default is [KeepSandbox].
	OnConflict ConflictRule
	// Packages are installed first, as by [sandbox.Packages.Install]. The modules
	// that they provide are added to Guard.Allow.
	Packages []string
	// Lock, when not nil, is installed as by [sandbox.Packages.InstallLock]. The
	// names in Packages must then be in the lock or in the sandbox already, and the
	// versions are those of the lock.
	Lock *sandbox.LockFile
	// Tools are callable from the code by their names until Close. A name must
	// not be that of a builtin, of a variable of State or of a variable that exists
	// already. Code cannot give the name another meaning: a cell that assigns to it
	// does not run and ends with an exception NameTaken.
	// On a service where others could reach the kernels, Begin returns
	// [sandbox.ErrPublicKernel].
	Tools []Tool
	// Context is the id of the Python context to run in; empty means the default
	// context, so that RunCode sees the same variables.
	Context string
	// Limits bound the run.
	Limits Limits
	// Guard says what code may import and call; nil means no guard.
	Guard *Guard
	// Redact lists values that are replaced by "[redacted]" in everything that steps
	// produce (writers, output, results, exceptions, values, the final answer), in
	// results and errors of tools before code sees them, in the audit and in the
	// texts of errors. They are recognised as they are, as in JSON, in Python's repr,
	// in URLs and in base64, in one piece or cut across writes. They cannot be
	// recognised in any other form: reversed, split, compressed, encrypted, in base64
	// with line breaks, in hex, in a picture. A value whose packed data contains one
	// is replaced as a whole. Get and Pull return variables as they are. Values
	// shorter than 4 bytes are refused.
	Redact []string
	// Prompt is the task, recorded in the audit.
	Prompt string
	// Audit receives JSON lines: the beginning, every tool call, a tool's panic with
	// its stack, every step with its code, what a guard saw in a step that was cut
	// off, and the end with the counters. The caller still owns it. If a Write fails,
	// Close returns the error. May be nil.
	Audit io.Writer
	// Trace is called when steps and tool calls begin and end. May be nil.
	Trace *Trace
	// Stdin answers input() in the code, as in [sandbox.RunCodeParams]; if it is
	// nil, input() raises an EOFError.
	Stdin func(ctx context.Context, prompt string, password bool) (string, error)
	// Stdout and Stderr receive what code prints as it arrives, in full, from the
	// goroutine that calls Exec. May be nil.
	Stdout, Stderr io.Writer
}

// Limits bound a run. A zero field sets no limit of its own.
type Limits struct {
	// MaxSteps is how many times Exec may run code.
	MaxSteps int
	// StepTimeout is how long the code of one step may take, from when it is sent
	// to the kernel: waiting for other code of the context does not count. After
	// that its tool calls end and it is interrupted, and Exec waits for up to 2
	// seconds more for it to stop. The next step waits until it has stopped or, if
	// it does not stop, until its kernel is replaced.
	StepTimeout time.Duration
	// RunTimeout is how long the run may take, counted from Begin.
	RunTimeout time.Duration
	// MaxMemoryBytes is how much memory (data and private mappings, RLIMIT_DATA)
	// the kernel may take beyond what it has at Begin: taking more raises a
	// MemoryError in the code. Code can deliberately lift this limit; the limit that
	// holds is the sandbox's own. It works on Linux only.
	MaxMemoryBytes int
	// MaxOutputBytes is how much of each of stdout and stderr a step keeps: the
	// head and the tail. 0 means [sandbox.DefaultMaxOutput].
	MaxOutputBytes int
}

// Run is a sequence of steps in one context of a sandbox. It is safe for concurrent
// use; steps run one after the other.
type Run struct {
	// Installation is the result of installing Params.Packages and Lock; nil if
	// there were none.
	Installation *sandbox.Installation

	id       string
	runs     *runs
	host     runHost
	context  *runContext
	params   Params
	about    about
	deadline time.Time // zero if there is none
	bridge   *bridge
	guard    *guardConfig // nil if there is none
	redact   *redactor
	log      *runLog

	mu     sync.Mutex
	closed bool
	died   bool // its kernel died, and the next one has nothing of the run yet
	cut    int  // step whose code was given up before it ended; 0 if there is none
	late   bool // it was given up because it took longer than StepTimeout
	steps  int
	ending func() error // closes the run, once
	calls  map[*inFlight]struct{}
	open   sync.WaitGroup
}

// Step is the outcome of one piece of code.
type Step struct {
	// N counts the steps of the run from 1.
	N int
	// Execution has output and results. Its Error is the exception that ended
	// the code: Exec does not return it, because for a model it is an observation.
	// Together with [ErrStepTimeout] it is the exception that the interrupt raised,
	// most often a KeyboardInterrupt, with the line and the traceback of where the
	// code was. If the code did not stop within 2 seconds, or stopped without an
	// exception, it is a TimeoutError without a traceback that says so.
	sandbox.Execution
	// Restarted reports whether the step began in a fresh kernel, because the kernel
	// of the previous step died or was replaced: the variables were then those of
	// Params.State.
	Restarted bool
	// Final reports whether the run has its final answer: Value is then the argument
	// of the code's first call of final_answer(…). Nothing else sets Final.
	Final bool
	// Value is the value of the last expression, typed; None when there was
	// none. A value larger than 1 MiB is opaque: assign it to a variable and use
	// [Run.Get].
	Value state.Value
	// Refused is the violation that ended the code; nil when something else ended it.
	Refused *Violation
	// Violations are what the guard refused, whether the code caught it or not.
	Violations []Violation
	// Imports are the modules that the code imported under a guard, sorted.
	Imports []string
	// Duration is how long the step took, measured in this program.
	Duration time.Duration

	maxOutput int
	redact    *redactor
	overran   time.Duration // the limit after which the code was interrupted; else 0
}

// Decode stores Value in what to points to, by the rules of [state.Unmarshal]: the
// final answer if Final is set, otherwise the value of the last expression. The error
// says so if there is none.
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

// Truncated reports whether output was dropped; the counters are in Execution.
func (s *Step) Truncated() bool { return s.StdoutDropped > 0 || s.StderrDropped > 0 }

const (
	// maxStepValue bounds the document of a step's value, because it travels in a message.
	maxStepValue = 1 << 20
	// valueKey names the expression that returns the value.
	valueKey = "value"
	// closeTimeout bounds the work of Close: cleaning up must not hang a program.
	closeTimeout = 10 * time.Second
	// afterFinal is how long code may go on after its final answer.
	afterFinal = 2 * time.Second
)

// Begin starts a run: it installs the packages, sends the state, makes the tools
// and final_answer callable, and holds the context until Close. ctx bounds the
// call, not the run. The websocket transport is required.
//
// Code ends the run by calling final_answer(x), at any depth. The value is
// recorded here, and nothing that the code catches or does afterwards changes it;
// 2 seconds later the code is interrupted. Any other name may be that of a tool:
// see [NewTool]. The code waits while a tool runs. Tools may be called from threads;
// in coroutines, use await tool.aio(…). A tool's exceptions are of the class tool.Error.
//
// Errors are [ErrContextBusy], [sandbox.ErrPublicKernel], an [*sandbox.InstallError], a
// [*GuardError], an error of package state that names the variable, or an error
// of the transport; the context is then free again.
func Begin(ctx context.Context, sb *sandbox.Sandbox, p *Params) (*Run, error) {
	if p == nil {
		p = &Params{}
	}
	if _, err := p.Guard.config(p.Packages); err != nil {
		return nil, err
	}
	if err := checkNames(p); err != nil {
		return nil, fmt.Errorf("agent: begin a run: %w", err)
	}
	redact, err := newRedactor(p.Redact)
	if err != nil {
		return nil, fmt.Errorf("agent: begin a run: %w", err)
	}
	host := runhost.Of(sb)
	if len(p.Tools) > 0 {
		if err := host.CheckPrivate(ctx); err != nil {
			return nil, err
		}
	}
	installation, err := install(ctx, sb.Packages, p)
	if err != nil {
		return nil, redact.err(err)
	}
	id, err := host.ContextID(ctx, p.Context)
	if err != nil {
		return nil, err
	}
	all := host.Attached(func() any { return new(runs) }).(*runs)
	r, err := all.begin(ctx, sandboxHost{sb, host}, id, *p)
	if err != nil {
		return nil, redact.err(err)
	}
	r.Installation = installation
	r.log.begin()
	return r, nil
}

// ID returns the name of the run in the audit and in logs.
func (r *Run) ID() string { return r.id }

// install installs the packages of a run. It returns nil if there are none.
func install(ctx context.Context, packages *sandbox.Packages, p *Params) (*sandbox.Installation, error) {
	switch {
	case p.Lock != nil:
		return packages.InstallLock(ctx, p.Lock, &sandbox.InstallLockParams{Require: p.Packages})
	case len(p.Packages) > 0:
		return packages.Install(ctx, p.Packages, nil)
	}
	return nil, nil
}

// checkNames refuses names that collide.
func checkNames(p *Params) error {
	what := map[string]string{finalAnswer: "the function that gives the final answer"}
	for _, t := range p.Tools {
		if t.call == nil {
			return errors.New("a Tool was not made by NewTool or NewManaged")
		}
		if other, taken := what[t.name]; taken {
			return fmt.Errorf("the tool %q has the name of %s: rename one", t.name, other)
		}
		what[t.name] = fmt.Sprintf("the tool %q", t.name)
	}
	if p.State != nil {
		for _, name := range p.State.Names() {
			if other, taken := what[name]; taken {
				return fmt.Errorf("the variable %q of the state has the name of %s: rename one", name, other)
			}
		}
	}
	return nil
}

func newRun(rs *runs, host runHost, c *runContext, p Params) (*Run, error) {
	r := &Run{id: jupyter.NewID(), runs: rs, host: host, about: host.about(), context: c, params: p, calls: map[*inFlight]struct{}{}}
	if p.Limits.RunTimeout > 0 {
		r.deadline = time.Now().Add(p.Limits.RunTimeout)
	}
	var err error
	if r.guard, err = p.Guard.config(p.Packages); err != nil {
		return nil, err
	}
	if r.redact, err = newRedactor(p.Redact); err != nil {
		return nil, err
	}
	r.bridge, r.log = newBridge(r, p.Tools), newRunLog(r)
	r.ending = sync.OnceValue(r.close)
	return r, nil
}

// Exec runs code and returns its outcome. The step is nil only if the code
// did not start. An exception in the code is not an error, but part of the step.
//
// If code takes longer than Limits.StepTimeout, Exec returns [ErrStepTimeout], and the
// step's Error says where the code was. If the code does not stop, its kernel is
// replaced before the next step, which has Restarted set.
//
// If the kernel dies while running the code, Exec returns [sandbox.ErrKernelDied]. If
// the kernel was replaced since the last step for another reason, it returns
// [sandbox.ErrKernelRestarted], and the code did not start. In both cases variables are
// lost; the next Exec begins with what Params.State holds by then, and with the guard
// and the tools.
//
// If ctx ends, Exec returns within 100 ms and the code is interrupted. If the
// code stops within that time, the step has its exception.
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

// revive prepares a new kernel for the run after its own died, or was replaced
// because the code of a late step did not stop.
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

// count assigns a number to a step.
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

// exec runs the code of a step and fills in the step.
func (r *Run) exec(ctx context.Context, code string, step *Step) ([]toolRecord, error) {
	var err error
	if step.Restarted, err = r.revive(ctx); err != nil {
		return nil, r.failed(ctx, fmt.Errorf("agent: step %d: %w", step.N, err))
	}
	unfinished, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	answered := make(chan struct{})
	calls := r.bridge.step(unfinished, step.N, func() { close(answered) })
	go func() {
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
	}()
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
	// The cause of ctx may be the timeout of another run, of which this run is a tool call.
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
		c.Failed(reply.Name, r.redact.text(reply.Value), r.redact.text(strings.Join(reply.Traceback, "\n")))
		step.Error = c.Finished().(*sandbox.Execution).Error
	}
	if late {
		step.overrun(r.params.Limits.StepTimeout, interrupted)
	}
	if r.params.Guard != nil {
		if err := r.context.report(ctx, r.host, reply, step, r.redact.text); err != nil {
			return records, r.failed(ctx, fmt.Errorf("agent: guard of step %d: %w", step.N, err))
		}
	}
	if step.Final || step.Error != nil {
		return records, err
	}
	doc, err := expressionValue(reply, valueKey)
	main := hasMain(step.Results)
	if main {
		if err == nil {
			step.Value, err = state.Parse(doc, state.Bounds{MaxBytes: 2 * maxStepValue})
		}
		step.Value = r.redact.value(step.Value)
	}
	if err = lost(err); err != nil && (main || errors.Is(err, sandbox.ErrKernelDied)) {
		return records, r.failed(ctx, fmt.Errorf("agent: value of step %d: %w", step.N, err))
	}
	return records, nil
}

// overrun records that the code was interrupted because it took longer than limit,
// and makes sure that Error says what became of it.
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
	case interrupted.Ran == 0:
		why = "it was not seen to begin: other code of the context may be running, or it does not let Python do anything else"
	}
	s.Error = &sandbox.ExecutionError{Name: "TimeoutError", Value: fmt.Sprintf("the code took longer than %v, and %s", limit, why)}
}

// final returns the final answer, if there is one.
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

// Get returns a variable as it is now. The error wraps [state.ErrNotFound] when
// there is no such variable.
func (r *Run) Get(ctx context.Context, name string) (state.Value, error) {
	ctx, end, err := r.begin(ctx)
	if err != nil {
		return state.Value{}, err
	}
	defer end()
	value, err := r.context.get(ctx, r.host, name)
	if err != nil {
		return state.Value{}, r.failed(ctx, fmt.Errorf("agent: get %.64q: %w", name, err))
	}
	return value, nil
}

// Pull brings what code changed into st: variables that differ from what was
// last sent or pulled, new ones (except those whose name starts
// with an underscore), and removals. Up to 64 MiB of values in all are compared in
// full; in larger values, a write in place is noticed only if it falls on a sampled
// part. What code changed takes precedence over a Set since.
// A variable of st that became something without a Go form is opaque in st;
// new variables without one, or with the name of a builtin, are left out. If Pull
// fails before it has received everything, st is unchanged.
func (r *Run) Pull(ctx context.Context, st *state.State) error {
	ctx, end, err := r.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := r.context.pull(ctx, r.host, st); err != nil {
		return r.failed(ctx, fmt.Errorf("agent: pull state: %w", err))
	}
	return nil
}

// Close ends the run: it cuts off calls that are under way and waits for them
// and for the functions of tools, removes the tools from the kernel, writes the last
// line of the audit, and frees the context. The sandbox and its variables stay. It is
// idempotent and does nothing on nil. It returns the error of the audit's writer, or
// an error that a tool did not return within 10 seconds after its context had ended.
func (r *Run) Close() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	r.closed = true
	for c := range r.calls {
		c.cancel(ErrRunClosed)
	}
	r.mu.Unlock()
	return r.ending()
}

func (r *Run) close() error {
	r.open.Wait()
	var failed []error
	returned := make(chan struct{})
	go func() {
		r.bridge.work.Wait()
		close(returned)
	}()
	select {
	case <-returned:
	case <-time.After(closeTimeout):
		failed = append(failed, fmt.Errorf("agent: close a run: a tool did not return within %v after its context had ended", closeTimeout))
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_, _ = r.reportCut(ctx) // the run ends, whatever its kernel answers
	r.leave(ctx)
	var result *string
	if answer, ok := r.final(); ok {
		text := string(answer.Bytes())
		result = &text
	}
	failed = append(failed, r.log.end(result))
	r.runs.release(r.context)
	return errors.Join(failed...)
}

// inFlight is a call that Close cuts off.
type inFlight struct{ cancel context.CancelCauseFunc }

// begin registers a call so that Close can cut it off.
func (r *Run) begin(ctx context.Context) (_ context.Context, end func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, nil, ErrRunClosed
	}
	if !r.deadline.IsZero() && !time.Now().Before(r.deadline) {
		return nil, nil, ErrRunTimeout
	}
	ctx, cancel := context.WithCancelCause(ctx)
	c := &inFlight{cancel}
	r.calls[c] = struct{}{}
	r.open.Add(1)
	timed := func() {}
	if !r.deadline.IsZero() {
		ctx, timed = context.WithDeadlineCause(ctx, r.deadline, ErrRunTimeout)
	}
	return ctx, func() {
		timed()
		cancel(nil)
		r.mu.Lock()
		delete(r.calls, c)
		r.mu.Unlock()
		r.open.Done()
	}, nil
}

// failed returns the error of a call: the reason why its context ended says more
// than that it ended.
func (r *Run) failed(ctx context.Context, err error) error {
	if errors.Is(err, sandbox.ErrKernelDied) || errors.Is(err, sandbox.ErrKernelRestarted) {
		r.mu.Lock()
		r.died = true
		r.mu.Unlock()
	}
	cause := context.Cause(ctx)
	for _, own := range []error{ErrRunClosed, ErrStepTimeout, ErrRunTimeout} {
		if errors.Is(cause, own) && !errors.Is(err, own) {
			return fmt.Errorf("%w: %w", own, err)
		}
	}
	return err
}
