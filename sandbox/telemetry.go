package sandbox

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

// LogEntry is one entry of a sandbox's log. The service and its daemon inside write the log;
// programs' output is not in it. Code in the sandbox can make the daemon write anything.
type LogEntry struct {
	Time    time.Time `json:"timestamp"`
	Level   LogLevel  `json:"level"`
	Message string    `json:"message"`
	// Fields has more details, by name. The field "logger" is the program that wrote the entry.
	Fields map[string]string `json:"fields"`
}

// LogParams says which entries of a log are wanted. The zero value means all entries.
type LogParams struct {
	// From is the time of the first entry, to the millisecond; zero means the oldest
	// entry.
	From time.Time
	// Tail selects the newest entries by their number, at most 1000. Zero means all.
	Tail int
	// Level is the least serious level; empty means all.
	Level LogLevel
	// Search is a text that messages contain, at most 256 characters.
	Search string
	// Follow goes on with new entries until the sandbox has ended.
	Follow bool
}

// LogLevel is the severity of an entry of a log. A service may use others than the
// constants here.
type LogLevel = api.LogLevel

// The levels, from the least serious one.
const (
	LogDebug = api.LogDebug
	LogInfo  = api.LogInfo
	LogWarn  = api.LogWarn
	LogError = api.LogError
)

// Usage is the use of resources by a sandbox at one time.
type Usage struct {
	Time time.Time `json:"timestamp"`
	CPUs int       `json:"cpuCount"`
	// CPUPercent is the use of the sandbox's processors, in percent of all of them.
	CPUPercent       float64 `json:"cpuUsedPct"`
	MemoryUsedBytes  int64   `json:"memUsed"`
	MemoryTotalBytes int64   `json:"memTotal"`
	// MemoryCacheBytes are used for caches of files, and not part of MemoryUsedBytes.
	MemoryCacheBytes int64 `json:"memCache"`
	DiskUsedBytes    int64 `json:"diskUsed"`
	DiskTotalBytes   int64 `json:"diskTotal"`
}

func usageOf(u api.Usage) Usage { return Usage(u) }

// MetricsParams says which metrics are wanted. The zero value means all of them.
type MetricsParams struct {
	// From and Until bound the time, to the second; zero means unbounded.
	From, Until time.Time
}

// Logs iterates over the log of the sandbox, oldest entry first. The service and the daemon inside
// write it; programs' output is not in it. With [LogParams].Follow it goes on until the sandbox
// has ended or ctx has; a pause does not end it. An error is yielded at most once, as the last
// item.
func (sb *Sandbox) Logs(ctx context.Context, p *LogParams) iter.Seq2[LogEntry, error] {
	return func(yield func(LogEntry, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		next, stop := iter.Pull2(sb.client.api.Sandboxes.Logs(ctx, sb.ID(), (*api.LogParams)(p)))
		defer stop()
		for {
			// Only to wait for an entry is a call: the loop's body may close the handle.
			call, end, err := sb.begin(ctx)
			if err != nil {
				yield(LogEntry{}, err)
				return
			}
			detach := context.AfterFunc(call, func() { cancel(context.Cause(call)) })
			e, err, more := next()
			detach()
			if err != nil {
				err = sb.failed(call, "logs", missing(sb.ID(), err))
			}
			end()
			if !more || !yield(LogEntry(e), err) {
				return
			}
		}
	}
}

// Logs is [Sandbox.Logs] for a sandbox to which there is no handle. It resumes none. If
// there is no such sandbox, and no log of it, the error is [ErrGone].
func (c *Client) Logs(ctx context.Context, id string, p *LogParams) iter.Seq2[LogEntry, error] {
	return func(yield func(LogEntry, error) bool) {
		for e, err := range c.api.Sandboxes.Logs(ctx, id, (*api.LogParams)(p)) {
			if err != nil {
				err = fmt.Errorf("sandbox: logs: %w", missing(id, err))
			}
			if !yield(LogEntry(e), err) {
				return
			}
		}
	}
}

// Metrics returns the sandbox's use of resources, oldest first. On a local cloud there is a sample
// of every 5 seconds in which it ran, fewer of times that are more than an hour ago, and one that
// is at most 5 seconds old.
func (sb *Sandbox) Metrics(ctx context.Context, p *MetricsParams) ([]Usage, error) {
	ctx, end, err := sb.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	all, err := sb.client.api.Sandboxes.Metrics(ctx, sb.ID(), (*api.MetricsParams)(p))
	if err != nil {
		return nil, sb.failed(ctx, "metrics", missing(sb.ID(), err))
	}
	return allAs(all, usageOf), nil
}

// Metrics is [Sandbox.Metrics] for a sandbox to which there is no handle. It resumes none.
// If there is no such sandbox, the error is [ErrGone].
func (c *Client) Metrics(ctx context.Context, id string, p *MetricsParams) ([]Usage, error) {
	all, err := c.api.Sandboxes.Metrics(ctx, id, (*api.MetricsParams)(p))
	if err != nil {
		return nil, fmt.Errorf("sandbox: metrics: %w", missing(id, err))
	}
	return allAs(all, usageOf), nil
}
