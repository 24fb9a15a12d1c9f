package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// Trace contains hooks for the steps and tool calls of a run, as package httptrace does for
// requests. A hook returns a context and a function. The step or call runs with this context, and
// the function is called at the end of the step or call. Hooks of tool calls are called from
// several goroutines. Fields may be nil.
type Trace struct {
	Step func(ctx context.Context, n int, code string) (context.Context, func(*Step, error))
	Tool func(ctx context.Context, call ToolCall) (context.Context, func(error))
}

func (t *Trace) step(ctx context.Context, n int, code string) (context.Context, func(*Step, error)) {
	if t == nil || t.Step == nil {
		return ctx, func(*Step, error) {}
	}
	return t.Step(ctx, n, code)
}

func (t *Trace) tool(ctx context.Context, call ToolCall) (context.Context, func(error)) {
	if t == nil || t.Tool == nil {
		return ctx, func(error) {}
	}
	return t.Tool(ctx, call)
}

// Metrics are the counters of a run.
type Metrics struct {
	// Steps is the number of steps that ran. Errors is the number of steps that ended with an
	// exception or were interrupted.
	Steps, Errors int
	// ToolCalls is the number of calls that ended. ToolErrors is the number of calls that failed. Both
	// include calls of final_answer.
	ToolCalls, ToolErrors int
	// Tokens is the sum of the tokens passed to [Run.SpendTokens].
	Tokens int64
	// CodeBytes is the total length of the code.
	CodeBytes int64
	// Imports lists the modules that the code imported, sorted. Without a guard, it contains only the
	// modules of import statements that each fit on one line. Modules that were loaded by __import__
	// or importlib are recorded only with a guard.
	Imports []string
	// Duration is the time from the start of the run until its end, or until now.
	Duration time.Duration
}

// toolRecord is the record of a tool call in the audit.
type toolRecord struct {
	Name         string  `json:"name"`
	Milliseconds float64 `json:"ms"`
	OK           bool    `json:"ok"`
	BytesIn      int     `json:"bytes_in"`
	BytesOut     int     `json:"bytes"`
	Error        string  `json:"error,omitempty"`
}

// runLog writes the audit and the log of a run, and counts the values of the run's [Metrics].
type runLog struct {
	run    *Run
	w      io.Writer // the writer of the audit; nil if there is none
	logger *slog.Logger
	start  time.Time

	mu      sync.Mutex
	metrics Metrics
	imports map[string]bool
	last    string // the error of the last step
	err     error  // the error of w, if there was one
	closed  bool
}

func newRunLog(r *Run) *runLog {
	return &runLog{run: r, w: r.params.Audit, logger: r.about.logger, start: time.Now(), imports: map[string]bool{}}
}

// write writes one line of the audit. After an error of the audit's writer, or after the last line,
// it writes nothing.
func (l *runLog) write(event string, fields map[string]any) {
	if l.w == nil || l.closed {
		return
	}
	fields["event"], fields["time"], fields["run_id"] = event, time.Now().UTC().Format(time.RFC3339Nano), l.run.id
	line, err := json.Marshal(fields)
	if err == nil {
		line, err = l.run.redact.json(line)
	}
	if err == nil && l.err == nil {
		_, err = l.w.Write(append(line, '\n'))
	}
	if l.err == nil && err != nil {
		l.err = fmt.Errorf("agent: write the audit: %w", err)
	}
}

func (l *runLog) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	tools := []string{}
	for _, t := range l.run.params.Tools {
		tools = append(tools, t.name)
	}
	names := []string{}
	if l.run.params.State != nil {
		names = l.run.params.State.Names()
	}
	packages := map[string]string{}
	if l.run.Installation != nil {
		for _, p := range l.run.Installation.Packages {
			packages[p.Name] = p.Version
		}
	}
	l.write("begin", map[string]any{
		"sandbox_id": l.run.about.sandbox, "template": l.run.about.template, "context": l.run.context.id, "prompt": l.run.params.Prompt,
		"start_time": seconds(l.start), "tools": tools, "state": names, "packages": packages,
	})
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

func (l *runLog) tool(ctx context.Context, step int, record toolRecord) {
	l.logger.DebugContext(ctx, "tool call", "run", l.run.id, "step", step, "tool", record.Name, "ms", record.Milliseconds, "ok", record.OK)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.metrics.ToolCalls++
	if !record.OK {
		l.metrics.ToolErrors++
	}
	fields := map[string]any{"step": step, "name": record.Name, "ms": record.Milliseconds, "ok": record.OK, "bytes_in": record.BytesIn, "bytes": record.BytesOut}
	if record.Error != "" {
		fields["error"] = record.Error
	}
	l.write("tool", fields)
}

// panicked writes the value and the stack of a tool's panic to the audit and the log, because they
// appear nowhere else. If the client has no logger, or its logger is disabled for errors, panicked
// uses [slog.Default].
func (l *runLog) panicked(ctx context.Context, step int, tool string, value any, stack []byte) {
	said, where := l.run.redact.short(fmt.Sprint(value), maxPanic), l.run.redact.short(string(stack), maxPanic)
	logger := l.logger
	if !logger.Enabled(ctx, slog.LevelError) {
		logger = slog.Default()
	}
	logger.ErrorContext(ctx, "a tool panicked", "run", l.run.id, "step", step, "tool", tool, "panic", said, "stack", where)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write("panic", map[string]any{"step": step, "name": tool, "panic": said, "stack": where})
}

// maxPanic limits the bytes of each recorded text of a panic.
const maxPanic = 64 << 10

func (l *runLog) step(ctx context.Context, code string, s *Step, calls []toolRecord, err error) {
	text := ""
	switch {
	case err != nil:
		text = err.Error()
	case s.Error != nil:
		text = s.Error.Error()
	}
	l.logger.DebugContext(ctx, "step", "run", l.run.id, "step", s.N, "ms", milliseconds(s.Duration), "final", s.Final, "error", l.run.redact.text(text))
	sum := sha256.Sum256([]byte(code))
	imports := append([]string{}, s.Imports...) // an empty list instead of null in JSON
	if l.run.params.Guard == nil {
		imports = importsOf(code)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.metrics.Steps++
	l.metrics.CodeBytes += int64(len(code))
	if text != "" {
		l.metrics.Errors++
	}
	l.last = text
	l.imported(imports)
	if calls == nil {
		calls = []toolRecord{}
	}
	l.write("step", map[string]any{
		"n": s.N, "code": code, "code_sha256": hex.EncodeToString(sum[:]), "imports": imports, "blocked": append([]Violation{}, s.Violations...), "tool_calls": calls,
		"stdout_bytes": s.printed(s.Stdout, s.StdoutDropped), "stderr_bytes": s.printed(s.Stderr, s.StderrDropped),
		"error": orNil(text), "duration_ms": milliseconds(s.Duration), "final": s.Final,
	})
}

// imported adds names to the modules that the run has imported. The caller must hold l.mu.
func (l *runLog) imported(names []string) {
	for _, name := range names {
		if len(l.imports) < maxImports {
			l.imports[name] = true
		}
	}
}

// cut records the guard's report on a step. The step was cut off before its reply could contain the
// report.
func (l *runLog) cut(step int, g guardReport) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.imported(g.Imports)
	l.write("cut", map[string]any{"n": step, "imports": append([]string{}, g.Imports...), "blocked": append([]Violation{}, g.Violations...)})
}

// orNil returns text, or nil for an empty text. Nil becomes null in JSON.
func orNil(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// end writes the last line of the audit, and returns the error of the audit's writer.
func (l *runLog) end(final *string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return l.err
	}
	l.metrics.Duration = time.Since(l.start)
	status := "unfinished"
	switch {
	case final != nil:
		status = "success"
	case l.last != "":
		status = "error"
	}
	l.write("end", map[string]any{
		"sandbox_id": l.run.about.sandbox, "prompt": l.run.params.Prompt, "start_time": seconds(l.start), "result": final, "status": status,
		"error": orNil(l.last), "duration_seconds": l.metrics.Duration.Round(10 * time.Millisecond).Seconds(),
		"steps_used": l.metrics.Steps, "error_count": l.metrics.Errors, "imports_used": append([]string{}, slices.Sorted(maps.Keys(l.imports))...),
		"tool_calls": l.metrics.ToolCalls, "tool_errors": l.metrics.ToolErrors, "tokens": l.metrics.Tokens, "code_bytes": l.metrics.CodeBytes,
	})
	l.closed = true
	return l.err
}

func (l *runLog) snapshot() Metrics {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.metrics
	m.Imports = slices.Sorted(maps.Keys(l.imports))
	if !l.closed {
		m.Duration = time.Since(l.start)
	}
	return m
}

// SpendTokens records the tokens that the model of the run used, in the metrics and in the audit.
// It also charges these tokens, like the function [SpendTokens].
func (r *Run) SpendTokens(ctx context.Context, tokens int64) error {
	r.log.mu.Lock()
	r.log.metrics.Tokens += tokens
	r.log.mu.Unlock()
	return SpendTokens(ctx, tokens)
}

// Metrics returns the current counters of the run.
func (r *Run) Metrics() Metrics { return r.log.snapshot() }

// maxImports limits the module names that are kept for a step and for a run.
const maxImports = 10_000

var importStatement = lazyregexp.New(`(?m)^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import\b|import[ \t]+([\w. \t,]+))`)

// importsOf returns the modules of the import statements that each fit on one line.
func importsOf(code string) []string {
	found := map[string]bool{}
	for _, m := range importStatement().FindAllStringSubmatch(code, maxImports) {
		for name := range strings.SplitSeq(m[1]+m[2], ",") {
			if fields := strings.Fields(name); len(fields) > 0 {
				found[fields[0]] = true
			}
		}
	}
	return append([]string{}, slices.Sorted(maps.Keys(found))...) // an empty list instead of null in JSON
}
