package template

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

const (
	// fastest is the interval between requests for the state of a build while new lines appear in its
	// log. Without new lines the interval grows up to slowest.
	fastest = 200 * time.Millisecond
	slowest = 2 * time.Second
	// outage limits the time for which Wait continues without an answer from the service. The build
	// itself continues during that time.
	outage = time.Minute
	// keptLines limits the lines of a BuildError.
	keptLines = 20
)

// WaitParams sets the receiver of the log. The zero value only waits.
type WaitParams struct {
	// Log is like [BuildParams].Log and receives the whole log. May be nil.
	Log func(api.BuildLogEntry)
}

// Wait waits until a build is ready. A Built needs only TemplateID and BuildID, so another
// program may have started the build. Errors are those of [Build].
func Wait(ctx context.Context, templates *api.TemplateService, built *Built, p *WaitParams) error {
	w := waiting{templates: templates, built: built}
	if p != nil {
		w.log = p.Log
	}
	state, err := w.untilEnd(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("template: stopped waiting for build %s of template %s, which goes on: %w", built.BuildID, built.TemplateID, context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("template: wait for build %s of template %s: %w", built.BuildID, built.TemplateID, err)
	case state.Status == api.BuildReady:
		return nil
	}
	return w.failure(state)
}

// waiting is the state of a call of Wait.
type waiting struct {
	templates *api.TemplateService
	built     *Built
	log       func(api.BuildLogEntry)

	offset int                 // number of lines received
	last   []api.BuildLogEntry // the last lines received
}

// untilEnd waits for the end of the build and reads its whole log. It returns the final state.
func (w *waiting) untilEnd(ctx context.Context) (*api.BuildState, error) {
	interval, answered := fastest, time.Now()
	for {
		state, err := w.ask(ctx)
		switch {
		case err == nil:
			answered = time.Now()
		case ctx.Err() != nil || !errors.Is(err, api.ErrRetryable) || time.Since(answered) > outage:
			return nil, err
		}
		if err == nil && state.Status != api.BuildWaiting && state.Status != api.BuildBuilding {
			return state, w.drain(ctx, state)
		}
		if interval = min(interval*3/2, slowest); err == nil && len(state.Logs) > 0 {
			interval = fastest
		}
		if err := pause(ctx, interval); err != nil {
			return nil, err
		}
	}
}

// drain reads the rest of the log after the final state.
func (w *waiting) drain(ctx context.Context, state *api.BuildState) error {
	for len(state.Logs) > 0 {
		var err error
		if state, err = w.ask(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (w *waiting) ask(ctx context.Context) (*api.BuildState, error) {
	state, err := w.templates.BuildStatus(ctx, w.built.TemplateID, w.built.BuildID, &api.BuildStatusParams{LogsOffset: w.offset})
	if err != nil {
		return nil, err
	}
	w.offset += len(state.Logs)
	for i := range state.Logs {
		entry := &state.Logs[i]
		entry.Message = withoutControls(entry.Message)
		if w.log != nil {
			w.log(*entry)
		}
	}
	w.last = append(w.last, state.Logs...)
	w.last = w.last[max(0, len(w.last)-keptLines):]
	return state, nil
}

func (w *waiting) failure(state *api.BuildState) error {
	e := &BuildError{TemplateID: w.built.TemplateID, BuildID: w.built.BuildID, Name: w.built.Name, Logs: w.last}
	if f := state.Failure; f != nil {
		e.Step, e.Reason = clip.Line(f.Step, maxStep), clip.Line(withoutControls(f.Message), maxReason)
		e.Instruction = w.built.instruction(e.Step)
	}
	e.Reason = cmp.Or(e.Reason, fmt.Sprintf("its status is %q", clip.Line(string(state.Status), maxStep)))
	return e
}

// instruction returns the step that a service calls NUMBER or STAGE/NUMBER. It returns "" if there
// is none.
func (b *Built) instruction(called string) string {
	steps := b.steps
	at := strings.LastIndexByte(called, '/')
	if at >= 0 {
		i := slices.IndexFunc(b.stages, func(s stage) bool { return s.name == called[:at] })
		if i < 0 {
			return ""
		}
		steps = b.stages[i].steps
	}
	number, err := strconv.Atoi(called[at+1:])
	if err != nil || number < 1 || number > len(steps) {
		return ""
	}
	return steps[number-1].describe()
}

const (
	maxStep   = 64
	maxReason = 1024
)

// BuildError reports a build that failed.
type BuildError struct {
	TemplateID, BuildID string
	// Name is the name of the template; empty if the Built that was passed to [Wait] had no name.
	Name string
	// Step is "base" for the preparation before the steps, the number of a step counted from "1", or
	// "finalize" for the start and ready commands. It is often empty. For a step of another stage of a
	// Dockerfile, the stage's name precedes the number, as in "build/2".
	Step string
	// Instruction is the failed step, such as "RUN make". It is empty if the failure does not belong
	// to a step, or if another program started the build.
	Instruction string
	// Reason is the service's message.
	Reason string
	// Logs are the last lines of the log, at most 20.
	Logs []api.BuildLogEntry
}

// Error returns the step and the reason, without the log.
func (e *BuildError) Error() string {
	what := cmp.Or(e.Name, e.TemplateID)
	step := ""
	if e.Step != "" {
		step = ", step " + e.Step
	}
	if e.Instruction != "" {
		step += fmt.Sprintf(" (%s)", clip.Line(e.Instruction, 200))
	}
	return fmt.Sprintf("template: build %s of %q failed%s: %s", e.BuildID, what, step, e.Reason)
}

// controls matches control sequences of terminals, and control characters.
var controls = lazyregexp.New(`\x1b[\]PX^_][^\x07\x1b\x{9c}]*(?:\x07|\x1b\\|\x{9c})|[\x1b\x{9b}][\[\]()#;?]*(?:[0-9]{1,4}(?:[;:][0-9]{0,4})*)?[0-9A-PR-TZcf-nq-uy=><~]|[\x00-\x08\x0b-\x1f\x7f]`)

func withoutControls(s string) string { return controls().ReplaceAllString(s, "") }
