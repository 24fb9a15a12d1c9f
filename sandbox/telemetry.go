package sandbox

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/e2bctl/e2bctl/api"
)

// LogEntry is one entry of a sandbox's log. The service and envd, its daemon inside the
// sandbox, write the log. The log does not contain the output of programs. Code in the sandbox
// can make envd write any entry.
type LogEntry struct {
	Time    time.Time `json:"timestamp"`
	Level   LogLevel  `json:"level"`
	Message string    `json:"message"`
	// Fields contains further details by name. The field "logger" names the program that wrote
	// the entry.
	Fields map[string]string `json:"fields"`
}

// LogParams selects entries of a log. The zero value selects all entries.
type LogParams struct {
	// From is the time of the first entry, to the millisecond; zero means the oldest
	// entry.
	From time.Time
	// Tail is the maximum number of existing entries to return, at most 1000. These are the newest
	// ones. Zero means all existing entries.
	Tail int
	// Level is the lowest level of the returned entries; empty means all levels.
	Level LogLevel
	// Search is a text that messages must contain, at most 256 characters.
	Search string
	// Follow waits for new entries until the sandbox has ended.
	Follow bool
}

// LogLevel is the severity of an entry of a log. A service may use values other than the
// constants here.
type LogLevel = api.LogLevel

// These are the levels, from the least serious one.
const (
	LogDebug = api.LogDebug
	LogInfo  = api.LogInfo
	LogWarn  = api.LogWarn
	LogError = api.LogError
)

// Usage is the resource usage of a sandbox at one time.
type Usage struct {
	Time time.Time `json:"timestamp"`
	CPUs int       `json:"cpuCount"`
	// CPUPercent is the usage of the sandbox's processors, in percent of the capacity of all its
	// processors together.
	CPUPercent       float64 `json:"cpuUsedPct"`
	MemoryUsedBytes  int64   `json:"memUsed"`
	MemoryTotalBytes int64   `json:"memTotal"`
	// MemoryCacheBytes is the memory used for caches of files. MemoryUsedBytes does not include
	// it.
	MemoryCacheBytes int64 `json:"memCache"`
	DiskUsedBytes    int64 `json:"diskUsed"`
	DiskTotalBytes   int64 `json:"diskTotal"`
}

func usageOf(u api.Usage) Usage { return Usage(u) }

// MetricsParams selects metrics. The zero value selects all.
type MetricsParams struct {
	// From and Until limit the time, to the second; zero means no limit.
	From, Until time.Time
}

// Logs iterates over the log of the sandbox, oldest entry first. The service and envd write the
// log; it does not contain the output of programs. With [LogParams].Follow the iteration continues
// until the sandbox or ctx ends; a pause does not end the iteration. Logs yields an error at most
// once, as the last item.
func (sb *Sandbox) Logs(ctx context.Context, p *LogParams) iter.Seq2[LogEntry, error] {
	return func(yield func(LogEntry, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		next, stop := iter.Pull2(sb.client.api.Sandboxes.Logs(ctx, sb.ID(), (*api.LogParams)(p)))
		defer stop()
		for {
			// Only the wait for an entry is a call, because the loop's body may close the
			// handle.
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

// Logs is like [Sandbox.Logs], for a sandbox without a handle. It does not resume the sandbox. The
// error is [ErrGone] if the service has neither the sandbox nor a log of the sandbox.
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

// Metrics returns the sandbox's resource usage, oldest first. A local cloud takes a sample every 5
// seconds while the sandbox runs. Of samples that are more than an hour old, it keeps only a part.
// The newest sample is at most 5 seconds old.
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

// Metrics is like [Sandbox.Metrics], for a sandbox without a handle. It does not resume the
// sandbox. The error is [ErrGone] if there is no such sandbox.
func (c *Client) Metrics(ctx context.Context, id string, p *MetricsParams) ([]Usage, error) {
	all, err := c.api.Sandboxes.Metrics(ctx, id, (*api.MetricsParams)(p))
	if err != nil {
		return nil, fmt.Errorf("sandbox: metrics: %w", missing(id, err))
	}
	return allAs(all, usageOf), nil
}
