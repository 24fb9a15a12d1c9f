package sandbox

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// CommandEvent is an event of a command. One of its fields is set.
type CommandEvent struct {
	// Stdout and Stderr are bytes that the command printed, as they arrived. They may end in
	// the middle of a line or a character.
	Stdout, Stderr []byte
	// Dropped is the number of bytes of output that were dropped before this loop over the events
	// began, because no loop was running.
	Dropped int64
	// Exit is the result of the command. It is the last event.
	Exit *CommandResult
}

// Events iterates over the output of the command, in the order of arrival. The last event is the
// end of the command. An exit status other than 0 is no error here. If the command cannot be
// followed to its end, the last item is an error: one of the errors of Wait, or the error of ctx.
//
// During a loop over the events, no output is lost: the command waits for a slow loop. While no
// loop runs, the last 256 KiB of output are kept for the next loop, and earlier output is counted
// as dropped. Only one loop may run at a time.
func (c *Command) Events(ctx context.Context) iter.Seq2[CommandEvent, error] {
	return func(yield func(CommandEvent, error) bool) {
		if !c.backlog.take() {
			yield(CommandEvent{}, fmt.Errorf("sandbox: events of command %d in %s: another loop takes them", c.PID(), c.process.sb.ID()))
			return
		}
		defer c.backlog.give()
		defer c.waiting.join()()
		for ended := false; ; {
			for {
				event, ok, dropped := c.backlog.pop()
				if dropped > 0 {
					event.Dropped = dropped
				} else if !ok {
					break
				}
				if !yield(event, nil) {
					return
				}
			}
			if ended {
				c.last(yield)
				return
			}
			select {
			case <-c.backlog.news:
			case <-c.done:
				ended = true
			case <-ctx.Done():
				yield(CommandEvent{}, fmt.Errorf("sandbox: events of command %d in %s: %w", c.PID(), c.process.sb.ID(), context.Cause(ctx)))
				return
			}
		}
	}
}

// last yields the last item of the loop: the end of the command, or an error.
func (c *Command) last(yield func(CommandEvent, error) bool) {
	if _, exited := errors.AsType[*ExitError](c.err); exited || c.err == nil {
		yield(CommandEvent{Exit: c.result}, nil)
		return
	}
	yield(CommandEvent{}, c.err)
}
