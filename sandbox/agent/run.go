package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/state"
)

var (
	// ErrContextBusy is returned by Begin if another run of the same handle is open in the context.
	ErrContextBusy = errors.New("agent: another run is open in this context: close it, or use another context")
	// ErrRunClosed is returned by calls on a closed run, and by calls that Close interrupts.
	ErrRunClosed = errors.New("agent: the run is closed")
	// ErrStepLimit is returned by Exec after Limits.MaxSteps steps.
	ErrStepLimit = errors.New("agent: the run has no steps left")
	// ErrStepTimeout is returned by Exec when code ran longer than Limits.StepTimeout. The step
	// contains the output until the interrupt. The Error of the step contains the line at which the
	// code was interrupted.
	ErrStepTimeout = errors.New("agent: the step took longer than Limits.StepTimeout")
	// ErrRunTimeout is returned by calls after Limits.RunTimeout. If Exec was interrupted, its step
	// contains the output until the interrupt.
	ErrRunTimeout = errors.New("agent: the run took longer than Limits.RunTimeout")
	// ErrRunFinished is returned by Exec after the final answer.
	ErrRunFinished = errors.New("agent: the run has its final answer")
)

// Params configures a run. The zero value is a run in the default context, without state.
type Params struct {
	// State contains the variables to set in the context. Nil means no variables. If the kernel has a
	// variable from an earlier run of this handle, and the variable was not Set in State since that
	// run, the variable is not sent. It then keeps the value that code gave it.
	State *state.State
	// OnConflict is the rule for variables of State that code changed since they were last sent
	// or pulled. The default is [KeepSandbox].
	OnConflict ConflictRule
	// Packages are installed before the run with [sandbox.Packages.Install]. Their modules are added
	// to Guard.Allow.
	Packages []string
	// Lock is installed before the run with [sandbox.Packages.InstallLock]. Nil means no lock. With a
	// Lock, each name in Packages must be in the lock or installed in the sandbox, and the lock
	// determines the versions.
	Lock *sandbox.LockFile
	// Tools lists the tools that code can call by their names until Close. A tool must not have the
	// name of a builtin, of a variable of State, or of an existing variable. Code cannot redefine the
	// name of a tool: a cell that assigns to it does not run and raises the exception NameTaken. If
	// others could reach the kernels, Begin returns [sandbox.ErrPublicKernel].
	Tools []Tool
	// Context is the id of the Python context in which the run executes code. Empty means the default
	// context, so that RunCode uses the same variables.
	Context sandbox.ContextID
	// Limits contains the limits of the run.
	Limits Limits
	// Guard restricts the imports and calls of the code. Nil means no guard.
	Guard *Guard
	// Redact lists secret values. "[redacted]" replaces them in everything that steps produce
	// (Stdout and Stderr, output, results, exceptions, values, the final answer), in results and
	// errors of tools before code receives them, in the audit and in the texts of errors. Secrets are
	// recognized unchanged, in JSON, in Python's repr, quoted by Go, in URLs and in base64, even if
	// they are split across writes. They are not recognized in any other form: reversed, divided,
	// compressed, encrypted, in base64 with line breaks, in hex, in a picture.
	//
	// Names of tools, and the texts of errors, panics and violations, are redacted before they are
	// shortened. Other code may already have shortened such a text. Therefore these texts are also
	// searched for the beginning of a secret. A beginning of at least 8 bytes is replaced, even if
	// these bytes belong to something else. For example, with the secret "https://user:key@host",
	// every "https://" in an error is replaced. Beginnings are also replaced in values in the sandbox
	// that have no Go form, because a kernel sends only the beginning of their repr.
	//
	// A value from the sandbox is replaced completely if its packed data contains a secret. Get and
	// Pull return variables unchanged. Secrets shorter than 4 bytes are refused.
	Redact []string
	// Prompt is the task, recorded in the audit.
	Prompt string
	// Audit receives JSON lines: the beginning, every tool call, a tool's panic with its stack, every
	// step with its code, a guard's report on a step that was cut off, and the end with the counters.
	// The run does not close Audit. If a Write fails, Close returns the error. Audit may be nil.
	Audit io.Writer
	// Trace contains hooks for the beginning and the end of steps and tool calls. May be nil.
	Trace *Trace
	// Stdin answers input() in the code, like [sandbox.RunCodeParams].Stdin. If it is nil,
	// input() raises an EOFError.
	Stdin func(ctx context.Context, prompt string, password bool) (string, error)
	// Stdout and Stderr receive the complete output of the code as it arrives. Their Write methods are
	// called in the goroutine that calls Exec. Stdout and Stderr may be nil.
	Stdout, Stderr io.Writer
}

// Limits contains the limits of a run. A zero field sets no limit.
type Limits struct {
	// MaxSteps limits the number of steps.
	MaxSteps int
	// StepTimeout limits the running time of one step's code. Waiting for other code of the context
	// does not count. After the timeout, the code's tool calls end, and the code is interrupted. Exec
	// waits up to 2 seconds for the code to stop. The next step waits until the code has stopped. If
	// the code does not stop, its kernel is replaced.
	StepTimeout time.Duration
	// RunTimeout limits the duration of the run, counted from Begin.
	RunTimeout time.Duration
	// MaxMemoryBytes limits the memory (data and private mappings, RLIMIT_DATA) that the kernel
	// may allocate in addition to its memory at Begin. Beyond the limit the code receives a
	// MemoryError. Code can deliberately lift this limit, but not that of the sandbox.
	// MaxMemoryBytes works only on Linux.
	MaxMemoryBytes int64
	// MaxOutputBytes limits the bytes of stdout and of stderr that a step keeps, from the
	// beginning and the end. 0 means [sandbox.DefaultMaxOutputBytes].
	MaxOutputBytes int64
}

// Run is a sequence of steps in one context of a sandbox. It is safe for concurrent
// use; steps run one after the other.
type Run struct {
	// Installation is the result of installing Params.Packages and Params.Lock. If neither is set,
	// Installation is nil.
	Installation *sandbox.Installation

	id       string
	runs     *runs
	host     runHost
	context  *runContext
	params   Params
	about    about
	deadline time.Time // the time at which the run ends; zero if the run has no time limit
	bridge   *bridge
	guard    *guardConfig // the configuration of the guard; nil if there is none
	redact   *redactor
	log      *runLog

	mu     sync.Mutex
	closed bool
	died   bool // the kernel died, and the next kernel is not prepared yet
	cut    int  // number of the step whose code was interrupted; 0 if no code was interrupted
	late   bool // the code was interrupted because it ran longer than StepTimeout
	steps  int
	ending func() error // closes the run, once
	calls  map[*inFlight]struct{}
	open   sync.WaitGroup
}

const (
	// maxStepValue limits the bytes of a step's value, because it is sent in a message.
	maxStepValue = 1 << 20
	// valueKey names the expression that returns the value.
	valueKey = "value"
	// closeTimeout limits the time of Close, so that cleaning up does not block a program.
	closeTimeout = 10 * time.Second
	// afterFinal limits the running time of code after its final answer.
	afterFinal = 2 * time.Second
)

// ID returns the id of the run in the audit and in logs.
func (r *Run) ID() string { return r.id }

// Get returns the current value of a variable in the sandbox. If there is no such variable, the
// error wraps [state.ErrNotFound].
func (r *Run) Get(ctx context.Context, name string) (state.Value, error) {
	ctx, end, err := r.begin(ctx)
	if err != nil {
		return state.Value{}, err
	}
	defer end()
	value, err := r.context.get(ctx, r.host, name)
	if err != nil {
		return state.Value{}, r.redact.err(r.failed(ctx, fmt.Errorf("agent: get %.64q: %w", name, err)))
	}
	return value, nil
}

// Pull applies to st the changes that code made in the sandbox. If the value of a variable differs
// from the value that was last sent or pulled, Pull sets the variable in st. It adds new variables,
// except those whose name starts with an underscore. It removes variables that code deleted. If a
// variable was Set in st after it was last sent or pulled, the change by code takes precedence.
//
// Pull compares each variable completely, whatever its size: types, lengths, keys and their order,
// values at any depth, and the index, names and dtypes of tables. To compare, the kernel reads its
// variables. This takes about a second for each GB of arrays, tables and bytes, and for each 100 MB
// of lists and dicts. The first comparison of a list or dict after it was sent or pulled takes as
// long as pulling it. Large values are sent only if they changed.
//
// Pull ignores properties that are not part of the Go form:
//   - Attributes of an instance of a subclass beyond its base and fields, and the attrs of a table.
//   - Whether two names, or two parts, are one object. If code changes an object through one name,
//     Pull applies the change to each variable that contains the object.
//   - The order of a set, and the order in memory of the elements of a non-contiguous array.
//   - The replacement of a memoryview by bytes with the same content, or the reverse.
//   - Most of a value that is too large, or that has no Go form and is inside another value. Pull
//     compares only the class of such a value, and the first 200 characters of its repr or its
//     length.
//
// If the new value of a variable of st has no Go form, the variable is opaque in st. Pull leaves
// out new variables whose value has no Go form, and new variables with the name of a builtin. If
// Pull fails before it has received everything, st is unchanged.
func (r *Run) Pull(ctx context.Context, st *state.State) error {
	ctx, end, err := r.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := r.context.pull(ctx, r.host, st); err != nil {
		return r.redact.err(r.failed(ctx, fmt.Errorf("agent: pull state: %w", err)))
	}
	return nil
}

// Close ends the run. It interrupts calls in progress, and waits for these calls and for the
// functions of tools. It removes the tools from the kernel, writes the last line of the audit, and
// frees the context. The sandbox and its variables stay. Close may be called more than once, and on
// a nil Run. It returns the error of the audit's writer. If a tool did not return within 10 seconds
// after its context had ended, Close also returns an error.
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
	_, _ = r.reportCut(ctx) // the run ends in any case
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

// inFlight is a call in progress, which Close interrupts.
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

// failed returns the error of a call. If the call's context has ended because of ErrRunClosed,
// ErrStepTimeout or ErrRunTimeout, the returned error also wraps this cause.
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
