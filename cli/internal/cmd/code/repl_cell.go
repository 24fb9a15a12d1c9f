package code

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

// errGivenUp is the cause of a cell's cancelled context when e2bctl no longer waits for the cell,
// such as after a second Ctrl-C.
var errGivenUp = errors.New("it was given up")

// interruptLimit bounds the time for sending an interrupt.
const interruptLimit = 10 * time.Second

// running is a cell that runs.
type running struct {
	*prompt
	ctx    context.Context //nolint:containedctx // of the call that runs the cell
	giveUp context.CancelCauseFunc
	sent   sync.WaitGroup // waits until the interrupt has been sent

	mu          sync.Mutex
	begun       bool // the kernel has begun to run the cell
	interrupted bool // Ctrl-C was typed

	asking sync.Mutex // held while the code asks for input
	over   bool
}

// execute runs a cell and shows its output and results.
// If the code raises an exception, the error is nil.
func (p *prompt) execute(ctx context.Context, cell string) error {
	cellCtx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	r := &running{prompt: p, ctx: ctx, giveUp: giveUp}
	params := p.params()
	params.Envs, params.Stdin, params.Stdout, params.Stderr, params.MaxOutputBytes = p.Envs, r.ask, p.stdout, p.stderr, -1
	params.OnResult = func(result sandbox.Result) {
		if text := result.Text(); text != "" {
			p.console.screen.finish()
			_ = p.stdout.println(text) // a terminal that is gone ends the keyboard, too
		}
	}
	p.console.keys.during(r.interrupt)
	execution, err := r.run(cellCtx, cell, &params)
	giveUp(nil) // also a question that nobody waits for any longer
	r.asking.Lock()
	r.over = true
	r.asking.Unlock()
	p.console.keys.during(nil)
	r.sent.Wait() // a late interrupt would hit the next cell
	raised, isRaised := errors.AsType[*sandbox.ExecutionError](p.notStarted(err))
	if execution != nil {
		if !isRaised {
			raised = execution.Error
		}
		if raised != nil {
			p.console.screen.finish()
			if err := p.stderr.println(strings.TrimRight(raised.Traceback, "\n")); err != nil {
				return err
			}
		}
		if err := p.keepImages(execution.Results); err != nil {
			return err
		}
	}
	switch {
	case isRaised:
		return nil
	case errors.Is(err, errInterrupted): // at a question
		if raised == nil {
			p.printLine("KeyboardInterrupt")
		}
		return nil
	}
	return p.notStarted(err)
}

// run runs the cell, and calls begin when the kernel begins to run it.
func (r *running) run(ctx context.Context, cell string, params *sandbox.RunCodeParams) (execution *sandbox.Execution, err error) {
	for event, failed := range r.sb.StreamCode(ctx, cell, params) {
		err = failed
		switch event := event.(type) {
		case sandbox.StatusEvent:
			if event.State == sandbox.CodeBusy {
				r.begin()
			}
		case sandbox.EndEvent:
			execution = event.Execution
		}
	}
	return execution, err
}

// begin records that the kernel has begun to run the cell. If Ctrl-C was typed before, begin sends
// the interrupt now: sent earlier, it would have had no effect.
func (r *running) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.interrupted && !r.begun {
		r.send()
	}
	r.begun = true
}

// interrupt interrupts the cell without waiting. A second call makes e2bctl stop waiting for the
// cell. If the kernel cannot be interrupted, the first call already does this.
func (r *running) interrupt() {
	_, _ = r.console.screen.Write([]byte("^C\n"))
	r.mu.Lock()
	defer r.mu.Unlock()
	isNamed := r.params().Context != "" || r.python // of default contexts, only Python's has a name here
	if r.interrupted || r.deaf || !isNamed {
		r.giveUp(errGivenUp)
		return
	}
	r.interrupted = true
	if r.begun {
		r.send()
	}
}

func (r *running) send() {
	r.sent.Go(func() {
		ctx, cancel := context.WithTimeout(r.ctx, interruptLimit)
		defer cancel()
		if r.sb.Contexts.Interrupt(ctx, r.params().Context) != nil {
			r.giveUp(errGivenUp)
		}
	})
}

// ask answers the input() of the cell.
func (r *running) ask(ctx context.Context, prompt string, password bool) (string, error) {
	r.asking.Lock()
	defer r.asking.Unlock()
	if r.over {
		return "", errInterrupted
	}
	r.console.keys.during(nil)
	defer r.console.keys.during(r.interrupt)
	return r.console.ask(ctx, prompt, password)
}

// keepImages writes pictures to files. Without --save-images it writes none, and prints a hint
// about that flag once.
func (p *prompt) keepImages(results []sandbox.Result) error {
	err := p.images.save(results)
	p.images.before += len(results)
	for _, result := range results {
		if len(imagesOf(result)) > 0 && p.SaveImages == "" && !p.hinted {
			p.hinted = true
			p.printLine("a picture, which a terminal cannot show: --save-images DIR writes pictures to files")
		}
	}
	return err
}

// helpOn returns the name in a cell that asks for help in the way of IPython: with ? before or
// after the name, or with ?? for the source of the name's object.
func (p *prompt) helpOn(cell string) (name string, source, ok bool) {
	cell = strings.TrimSpace(cell)
	name = strings.Trim(cell, "?")
	marks := len(cell) - len(name)
	if !p.python || marks == 0 || marks > 2 || strings.ContainsAny(name, "?\n #'\"=") {
		return "", false, false
	}
	return name, marks == 2, true
}

// help prints the kernel's description of a name and, if source is true, its source code.
func (p *prompt) help(ctx context.Context, name string, source bool) error {
	if name == "" {
		p.printLine("name? shows what the kernel knows of a name, name?? its source, too; Tab completes; the up key brings back earlier code")
		return nil
	}
	if p.deaf {
		return sandbox.ErrNeedsWebsocket
	}
	ctx, done := p.patiently(ctx)
	defer done()
	params := p.params()
	text, err := p.sb.Contexts.Inspect(ctx, name, len(name), &sandbox.InspectParams{Context: params.Context, Language: params.Language, Source: source})
	if errors.Is(context.Cause(ctx), errInterrupted) {
		return nil
	}
	if err != nil {
		return err
	}
	if text == "" {
		p.printLine(fmt.Sprintf("the kernel knows no %s", cmdutil.Printable(name)))
		return nil
	}
	return p.stdout.println(strings.TrimRight(text, "\n"))
}
