package sandbox

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

const (
	// maxAsking is the service's limit of open questions for one sandbox.
	maxAsking = 32
	// askTimeout is the time that the service waits for an answer.
	askTimeout = 30 * time.Second
	// askAgain is the pause after a failed request for questions.
	askAgain = time.Second
)

// WithAsk sets a function that is called before the sandbox reaches a host that neither AllowOut
// nor DenyOut of [Network] names. ask receives the name or address of the host, and the port. It
// returns whether the sandbox may reach this port of the host. Apart from the hosts that ask or
// AllowOut permits, a sandbox that was created with WithAsk denies [AllTraffic]. With [Connect],
// ask is called if the sandbox was created with WithAsk, or if this handle sets the sandbox's rules
// with [Sandbox.SetNetwork].
//
// An answer is valid for the host and the port, as long as the sandbox lives. The host is denied if
// there is no answer within 30 seconds, if ask panics, or if no handle with WithAsk is open. The
// ctx of ask ends after these 30 seconds, or when the handle is closed. Closing does not wait for
// ask. Up to 32 questions are asked at the same time.
//
// ask is called when a program connects. A name is looked up only after ask has permitted it. Until
// then, the name resolves inside the sandbox to an address of 198.18.0.0/15, which stands for the
// name. A program that does not wait long enough for the answer must try again. For a copy of the
// sandbox by [Sandbox.Fork], ask is called again.
//
// Only the local cloud supports WithAsk. For other services, the error is [errors.ErrUnsupported],
// and nothing is created, changed or resumed.
func WithAsk(ask func(ctx context.Context, host string, port int) bool) HandleOption {
	return handleOption(func(c *config) error { c.ask = ask; return nil })
}

// asker calls the function of [WithAsk] for the questions about one sandbox.
type asker struct {
	sb  *Sandbox
	ask func(ctx context.Context, host string, port int) bool
}

// start begins to answer questions in the background, until the handle is closed.
func (a *asker) start() {
	ctx, end, err := a.sb.begin(context.Background())
	if err != nil {
		return // the handle is closed
	}
	go func() {
		defer end()
		a.serve(ctx)
	}()
}

// serve fetches questions until ctx ends or the sandbox is gone.
func (a *asker) serve(ctx context.Context) {
	free := make(chan struct{}, maxAsking)
	var last int64
	for ctx.Err() == nil {
		questions, err := a.sb.client.api.Sandboxes.Questions(ctx, a.sb.ID(), &api.QuestionsParams{After: last})
		if errors.Is(err, api.ErrNotFound) {
			return
		}
		for _, q := range questions {
			last = q.ID
			select {
			case free <- struct{}{}:
			case <-ctx.Done():
				return
			}
			// Close does not wait for this goroutine, because ask may never return.
			go func() {
				defer func() { <-free }()
				a.answer(ctx, q)
			}()
		}
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(askAgain):
			}
		}
	}
}

// answer answers a question with the result of the function that was set with [WithAsk]. If this
// function ends its goroutine, the answer is no.
func (a *asker) answer(ctx context.Context, q api.Question) {
	allow := false
	defer func() {
		if ctx.Err() != nil {
			return
		}
		err := a.sb.client.api.Sandboxes.Answer(ctx, a.sb.ID(), &api.AnswerParams{ID: q.ID, Allow: allow})
		if err != nil && ctx.Err() == nil {
			a.sb.client.api.Logger().WarnContext(ctx, "the answer of WithAsk came too late", "sandbox", a.sb.ID(), "host", q.Host, "port", q.Port, "error", err)
		}
	}()
	allow = a.call(ctx, q)
}

func (a *asker) call(ctx context.Context, q api.Question) (allow bool) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			allow = false
			a.sb.client.api.Logger().ErrorContext(ctx, "the function of WithAsk panicked, which is a no", "sandbox", a.sb.ID(), "host", q.Host, "port", q.Port, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	return a.ask(ctx, q.Host, q.Port)
}
