package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/e2bctl/e2bctl/state"
)

// maxCalls limits the calls in progress, including abandoned calls whose function has not
// returned.
const maxCalls = 1024

// caller calls tools for the code of a run or for a [Toolbox], within the limits of each tool.
type caller struct {
	tools map[string]*boundTool
	work  sync.WaitGroup // counts the functions of tools that have not returned
	slots chan struct{}  // has one element for each function in work

	// trace is called when a call is approved. The function
	// that it returns is called at the end of the call.
	trace func(context.Context, ToolCall) (context.Context, func(error))
	// panicked receives the value and the stack of a panic in a call.
	panicked func(ctx context.Context, call ToolCall, value any, stack []byte)
}

// boundTool is a tool with the counters of its limits.
type boundTool struct {
	Tool
	slots chan struct{} // limits the concurrent calls; nil if there is no limit

	mu    sync.Mutex
	calls int
}

func (c *caller) init(tools []Tool) {
	c.tools, c.slots = map[string]*boundTool{}, make(chan struct{}, maxCalls)
	for _, t := range tools {
		bound := &boundTool{Tool: t}
		if n := t.limits.MaxConcurrency; n > 0 {
			bound.slots = make(chan struct{}, n)
		}
		c.tools[t.name] = bound
	}
}

// call makes a call and limits the size of its result. size is the number of bytes of the
// arguments' document.
func (c *caller) call(ctx context.Context, t *boundTool, call ToolCall, size int) (state.Value, error) {
	if most := t.limits.MaxArgumentBytes; most > 0 && int64(size) > most {
		return state.Value{}, errToolLimit("the arguments of %s have %d bytes, more than %d", t.name, size, most)
	}
	if err := t.check(call.Arguments); err != nil {
		return state.Value{}, fmt.Errorf("%s: %w", t.name, err)
	}
	v, err := c.limited(ctx, t, call)
	if err != nil {
		return state.Value{}, fmt.Errorf("%s: %w", t.name, err)
	}
	most := int64(maxExchange)
	if t.limits.MaxResultBytes > 0 {
		most = min(most, t.limits.MaxResultBytes)
	}
	if n := int64(len(v.Bytes())); n > most {
		return state.Value{}, errToolLimit("the result of %s has %d bytes, more than %d", t.name, n, most)
	}
	return v, nil
}

// limited makes a call within the limits of its tool and of the agents that enclose the call.
func (c *caller) limited(ctx context.Context, t *boundTool, call ToolCall) (state.Value, error) {
	t.mu.Lock()
	t.calls++
	over := t.limits.MaxCalls > 0 && t.calls > t.limits.MaxCalls
	t.mu.Unlock()
	if over {
		return state.Value{}, errToolLimit("it was called %d times, as often as it may be", t.limits.MaxCalls)
	}
	if err := chargeCall(ctx); err != nil {
		return state.Value{}, err
	}
	select {
	case c.slots <- struct{}{}:
	default:
		return state.Value{}, errToolLimit("more than %d calls are under way", maxCalls)
	}
	begun := false
	defer func() {
		if !begun {
			<-c.slots
		}
	}()
	if t.approve != nil {
		err := c.protected(ctx, call, func() error { return t.approve(ctx, call) })
		switch {
		case ctx.Err() != nil: // the code no longer waits for the call
			return state.Value{}, context.Cause(ctx)
		case err != nil:
			return state.Value{}, &ToolError{Type: "Refused", Message: "the call was not approved: " + err.Error()}
		}
	}
	if t.slots != nil {
		select {
		case t.slots <- struct{}{}:
		case <-ctx.Done():
			return state.Value{}, context.Cause(ctx)
		}
	}
	ctx, traced := c.trace(ctx, call)
	cancel := func() {}
	if t.limits.Timeout > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, t.limits.Timeout, &ToolError{
			Type: "TimeoutError", Message: fmt.Sprintf("it took longer than %v", t.limits.Timeout), Retryable: true,
		})
	}
	type outcome struct {
		value state.Value
		err   error
	}
	outcomes := make(chan outcome, 1)
	begun = true
	c.work.Go(func() {
		defer cancel()
		defer func() { <-c.slots }()
		var o outcome
		o.err = c.protected(ctx, call, func() (err error) {
			o.value, err = t.call(ctx, call.Arguments)
			return err
		})
		if ctx.Err() != nil && errors.Is(o.err, ctx.Err()) {
			o.err = context.Cause(ctx) // the cause is more precise
		}
		if t.slots != nil {
			<-t.slots
		}
		outcomes <- o
	})
	var o outcome
	select {
	case o = <-outcomes:
	case <-ctx.Done():
		select {
		case o = <-outcomes: // its context ended because the function returned
		default:
			// Do not wait for a function that ignores the end of its context.
			o.err = context.Cause(ctx)
		}
	}
	traced(o.err)
	return o.value, o.err
}

// protected calls f and converts a panic to an error. The panic's value is recorded in this
// program's log and the audit, and is not sent to the sandbox.
func (c *caller) protected(ctx context.Context, call ToolCall, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.panicked(ctx, call, p, debug.Stack())
			err = &ToolError{Type: "InternalError", Message: "it panicked; the log of the program that runs the tool says more"}
		}
	}()
	return f()
}
