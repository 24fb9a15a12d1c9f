package sandbox

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// CommandEvent is something that a command did. One of its fields is set.
type CommandEvent struct {
	// Stdout and Stderr are bytes it printed, as they came: they may end in the
	// middle of a line or a character.
	Stdout, Stderr []byte
	// Dropped counts the bytes of output that came before anybody iterated, or
	// between two iterations, and did not fit into what is kept for such times.
	Dropped int64
	// Exit is its end and the last event.
	Exit *CommandResult
}

// Events iterates over what the command does: its output, in the order in which
// it came, and its end; a status other than 0 is no error here. An error comes
// last, in the place of the end: the ones of Wait, or that of ctx.
//
// While a loop runs nothing is lost: the command waits for a loop that is slow.
// While none does, the last 256 KiB are kept for the next one and what was before
// is counted as dropped. There can be one loop at a time.
func (c *Command) Events(ctx context.Context) iter.Seq2[CommandEvent, error] {
	return func(yield func(CommandEvent, error) bool) {
		if !c.backlog.take() {
			yield(CommandEvent{}, fmt.Errorf("sandbox: events of command %d in %s: another loop takes them", c.PID(), c.process.sb.ID()))
			return
		}
		defer c.backlog.give()
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

// last yields how the command ended.
func (c *Command) last(yield func(CommandEvent, error) bool) {
	if _, exited := errors.AsType[*ExitError](c.err); exited || c.err == nil {
		yield(CommandEvent{Exit: c.result}, nil)
		return
	}
	yield(CommandEvent{}, c.err)
}
