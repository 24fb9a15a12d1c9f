package sandbox

import (
	"context"
	"fmt"
	"iter"

	"github.com/e2bctl/e2bctl/api"
)

// LogEntry is one entry of a sandbox's log.
type LogEntry = api.LogEntry

// LogParams says which entries of a log are wanted.
type LogParams = api.LogParams

// LogLevel is how serious an entry of a log is.
type LogLevel = api.LogLevel

// The levels, from the least serious one.
const (
	LogDebug = api.LogDebug
	LogInfo  = api.LogInfo
	LogWarn  = api.LogWarn
	LogError = api.LogError
)

// Usage is what a sandbox used at a time.
type Usage = api.Usage

// MetricsParams says which metrics are wanted.
type MetricsParams = api.MetricsParams

// Logs iterates over the log of the sandbox, oldest entry first: what the service and the
// daemon inside say about it, not what programs print. With [LogParams].Follow it goes on
// until the sandbox has ended or ctx has; a pause does not end it. An error is yielded at
// most once, as the last item.
func (sb *Sandbox) Logs(ctx context.Context, p *LogParams) iter.Seq2[*LogEntry, error] {
	return func(yield func(*LogEntry, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		next, stop := iter.Pull2(sb.client.api.Sandboxes.Logs(ctx, sb.ID(), p))
		defer stop()
		for {
			// Only to wait for an entry is a call: the loop's body may close the handle.
			call, end, err := sb.begin(ctx)
			if err != nil {
				yield(nil, err)
				return
			}
			detach := context.AfterFunc(call, func() { cancel(context.Cause(call)) })
			e, err, more := next()
			detach()
			if err != nil {
				err = sb.failed(call, "logs", missing(sb.ID(), err))
			}
			end()
			if !more || !yield(e, err) {
				return
			}
		}
	}
}

// Logs is [Sandbox.Logs] for a sandbox to which there is no handle. It resumes none. If
// there is no such sandbox, and no log of it, the error is [ErrGone].
func (c *Client) Logs(ctx context.Context, id string, p *LogParams) iter.Seq2[*LogEntry, error] {
	return func(yield func(*LogEntry, error) bool) {
		for e, err := range c.api.Sandboxes.Logs(ctx, id, p) {
			if err != nil {
				err = fmt.Errorf("sandbox: logs: %w", missing(id, err))
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// Metrics returns what the sandbox has used, oldest first. On a local cloud there is a
// sample of every 5 seconds in which it ran, fewer of times that are more than an hour
// ago, and one that is at most 5 seconds old.
func (sb *Sandbox) Metrics(ctx context.Context, p *MetricsParams) ([]*Usage, error) {
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	all, err := sb.client.api.Sandboxes.Metrics(ctx, sb.ID(), p)
	if err != nil {
		return nil, sb.failed(ctx, "metrics", missing(sb.ID(), err))
	}
	return all, nil
}

// Metrics is [Sandbox.Metrics] for a sandbox to which there is no handle. It resumes none.
// If there is no such sandbox, the error is [ErrGone].
func (c *Client) Metrics(ctx context.Context, id string, p *MetricsParams) ([]*Usage, error) {
	all, err := c.api.Sandboxes.Metrics(ctx, id, p)
	if err != nil {
		return nil, fmt.Errorf("sandbox: metrics: %w", missing(id, err))
	}
	return all, nil
}
