package sandbox

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

const (
	// maxAsking is how many questions the service has open at the same time.
	maxAsking = 32
	// askTimeout is how long the service waits for an answer.
	askTimeout = 30 * time.Second
	// askAgain is how long after a failed request for questions the next one is made.
	askAgain = time.Second
)

// asker calls [Network].Ask for the questions about one sandbox, while its handle is open.
type asker struct {
	sb *Sandbox

	mu      sync.Mutex
	ask     func(ctx context.Context, host string) bool // nil: nobody is asked
	serving bool
}

// current returns what is called.
func (a *asker) current() func(ctx context.Context, host string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ask
}

// use makes ask be called from now on.
func (a *asker) use(ask func(ctx context.Context, host string) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ask = ask
	if ask == nil || a.serving {
		return
	}
	ctx, end, err := a.sb.begin(context.Background())
	if err != nil {
		return // the handle is closed
	}
	a.serving = true
	go func() {
		defer end()
		a.serve(ctx)
	}()
}

// serve fetches questions until ctx ends, or there is no sandbox.
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
			// Close does not wait for it: Ask may never return.
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

// answer answers a question, with no also if Ask ends its goroutine.
func (a *asker) answer(ctx context.Context, q *api.Question) {
	allow := false
	defer func() {
		if ctx.Err() != nil {
			return
		}
		err := a.sb.client.api.Sandboxes.Answer(ctx, a.sb.ID(), &api.AnswerParams{ID: q.ID, Allow: allow})
		if err != nil && ctx.Err() == nil {
			a.sb.client.api.Logger().WarnContext(ctx, "the answer of Network.Ask came too late", "sandbox", a.sb.ID(), "host", q.Host, "error", err)
		}
	}()
	allow = a.call(ctx, q.Host)
}

func (a *asker) call(ctx context.Context, host string) (allow bool) {
	ask := a.current()
	if ask == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			allow = false
			a.sb.client.api.Logger().ErrorContext(ctx, "Network.Ask panicked, which is a no", "sandbox", a.sb.ID(), "host", host, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	return ask(ctx, host)
}
