package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/e2bctl/e2bctl/internal/boundjson"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
	"github.com/e2bctl/e2bctl/state"
)

const (
	// bridgePrefix distinguishes input requests of the tools module from input requests of input().
	bridgePrefix = "\x00e2bctl:"
	// maxExchange bounds the bytes of the calls that arrive in one exchange, and so the memory of
	// these calls.
	maxExchange = 64 << 20
	// maxWaiting limits the bytes of the finished replies that the code has not received yet.
	maxWaiting = 4 * maxExchange
	// replyPart is the maximum length of a part of a reply.
	replyPart = 4 << 20
	// The answer to an exchange is delayed until a call finishes. The delay is short, because the
	// kernel cannot send more calls during the delay. The maximum of the delay begins with
	// shortestMoment, and grows with each exchange that returns no result, up to longestMoment.
	shortestMoment = 2 * time.Millisecond
	longestMoment  = 64 * time.Millisecond
	finalAnswer    = "final_answer"
	// maxToolName limits the bytes of an unknown tool's name in messages.
	maxToolName = 64
	// maxRecords bounds the number of calls in the audit's line for a step. Each call also has its own
	// line.
	maxRecords = 10_000
)

// bridge is the part of a run's tools that runs in this program.
type bridge struct {
	caller

	run *Run

	mu    sync.Mutex
	final *state.Value
}

func newBridge(r *Run, tools []Tool) *bridge {
	b := &bridge{run: r}
	b.init(tools)
	b.trace = func(ctx context.Context, call ToolCall) (context.Context, func(error)) {
		ctx, end := r.params.Trace.tool(ctx, call)
		return ctx, func(err error) { end(r.redact.err(err)) }
	}
	b.panicked = func(ctx context.Context, call ToolCall, value any, stack []byte) {
		r.log.panicked(ctx, call.Step, call.Tool, value, stack)
	}
	return b
}

// stepCalls handles the calls of one step's code.
type stepCalls struct {
	bridge *bridge
	ctx    context.Context //nolint:containedctx // the step's context: calls outlive their requests
	n      int
	ended  func() // called once, after the final answer

	mu     sync.Mutex
	number string          // the number of an exchange that arrives in parts
	in     strings.Builder // the parts received so far
	out    string          // the unsent rest of the reply
	calls  map[uint64]*bridgedCall
	audit  []toolRecord
	idle   int  // number of consecutive exchanges without a result
	over   bool // no more calls are accepted
	wake   chan struct{}
}

// bridgedCall is a call that the kernel waits for.
type bridgedCall struct {
	cancel context.CancelFunc
	reply  []byte // the line of the call in the reply; nil while the call runs
	status string
}

func (b *bridge) step(ctx context.Context, n int, ended func()) *stepCalls {
	return &stepCalls{bridge: b, ctx: ctx, n: n, ended: sync.OnceFunc(ended), calls: map[uint64]*bridgedCall{}, wake: make(chan struct{}, 1)}
}

// input answers a prompt of the code. It is used as kernelconn.Handler.Input.
func (s *stepCalls) input(ctx context.Context, prompt string, password bool) (string, error) {
	question, ours := strings.CutPrefix(prompt, bridgePrefix)
	if !ours {
		if ask := s.bridge.run.params.Stdin; ask != nil {
			return ask(ctx, prompt, password)
		}
		return "", io.EOF
	}
	at := strings.IndexAny(question, "+.?")
	if at < 0 || at > 20 {
		return "!the kernel's request is malformed", nil
	}
	number, kind, text := question[:at], question[at], question[at+1:]
	s.mu.Lock()
	if kind == '?' {
		defer s.mu.Unlock()
		return s.part(), nil
	}
	if number != s.number {
		s.number = number
		s.in.Reset()
	}
	if s.in.Len()+len(text) > maxExchange {
		s.in.Reset()
		s.mu.Unlock()
		return fmt.Sprintf("!the arguments have more than %d bytes", maxExchange), nil
	}
	s.in.WriteString(text)
	if kind == '+' {
		s.mu.Unlock()
		return "", nil
	}
	all := s.in.String()
	s.in.Reset()
	s.mu.Unlock()
	reply, err := s.exchange(ctx, []byte(all))
	if err != nil {
		return "!" + s.bridge.run.redact.short(err.Error(), maxToolError), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = reply
	return s.part(), nil
}

// within sets the context of all later calls. ctx must be derived from the step's context.
func (s *stepCalls) within(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ctx = ctx
}

// part returns the next part of the reply. The caller must hold s.mu.
func (s *stepCalls) part() string {
	if len(s.out) <= replyPart {
		defer func() { s.out = "" }()
		return "." + s.out
	}
	n := replyPart
	for !utf8.RuneStart(s.out[n]) {
		n--
	}
	part := s.out[:n]
	s.out = s.out[n:]
	return "+" + part
}

var errExchange = errors.New("the kernel's request is malformed")

// exchange accepts new calls and returns the replies to finished calls.
func (s *stepCalls) exchange(ctx context.Context, text []byte) (string, error) {
	line, documents, _ := bytes.Cut(text, []byte("\n"))
	var head struct {
		Calls   []callHead `json:"calls"`
		Waiting []uint64   `json:"waiting"`
	}
	if err := boundjson.Unmarshal(line, &head, 8*maxCalls, 3); err != nil { // three values for each call
		return "", fmt.Errorf("%w: %w", errExchange, err)
	}
	if len(head.Calls)+len(head.Waiting) > 2*maxCalls {
		return "", fmt.Errorf("more than %d calls at once", maxCalls)
	}
	wanted := make(map[uint64]bool, len(head.Calls)+len(head.Waiting))
	fresh := false
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return "", errors.New("the step has ended")
	}
	for _, id := range head.Waiting {
		wanted[id] = true
		if s.calls[id] == nil {
			s.calls[id] = refused("Unreachable", "the step that made this call has ended")
		}
	}
	for _, h := range head.Calls {
		document, rest, _ := bytes.Cut(documents, []byte("\n"))
		documents = rest
		wanted[h.id] = true
		if s.calls[h.id] != nil {
			continue // a repetition, because the answer to the first one was lost
		}
		if len(s.calls) >= maxCalls {
			s.calls[h.id] = refused("LimitError", fmt.Sprintf("more than %d calls are under way", maxCalls))
			continue
		}
		callCtx, cancel := context.WithCancel(s.ctx)
		c := &bridgedCall{cancel: cancel}
		s.calls[h.id] = c
		s.start(callCtx, c, h.name, document)
		fresh = true
	}
	for id, c := range s.calls {
		if !wanted[id] { // the code has its reply, or no longer waits
			c.cancel()
			delete(s.calls, id)
		}
	}
	s.mu.Unlock()
	return s.finished(ctx, fresh), nil
}

// callHead contains the id and the name of a call.
type callHead struct {
	id   uint64
	name string
}

func (h *callHead) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&h.id, &h.name})
}

// finished returns the replies that are ready. If no reply is ready, finished waits briefly for the
// first reply.
func (s *stepCalls) finished(ctx context.Context, fresh bool) string {
	s.mu.Lock()
	if fresh {
		s.idle = 0
	}
	moment := min(longestMoment, shortestMoment<<min(s.idle, 16))
	s.mu.Unlock()
	timer := time.NewTimer(moment)
	defer timer.Stop()
	for over := false; ; {
		if reply, some := s.replies(); some || over {
			return reply
		}
		select {
		case <-s.wake:
		case <-timer.C:
			over = true
			s.mu.Lock()
			s.idle++
			s.mu.Unlock()
		case <-ctx.Done():
			over = true
		}
	}
}

// replies returns the replies that are ready. text contains a line with ids and statuses, and a
// line for each reply. If calls are under way and none of them has a reply, some is false.
func (s *stepCalls) replies() (text string, some bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines bytes.Buffer
	heads := [][2]any{}
	for id, c := range s.calls {
		// The others are sent with the next exchange.
		if c.reply != nil && (lines.Len() == 0 || lines.Len()+len(c.reply) <= maxExchange) {
			heads = append(heads, [2]any{id, c.status})
			lines.WriteByte('\n')
			lines.Write(c.reply)
		}
	}
	head, err := json.Marshal(heads)
	if err != nil {
		panic(err) // numbers and strings can always be encoded
	}
	return string(head) + lines.String(), len(heads) > 0 || len(s.calls) == 0
}

// refused returns a finished call whose reply is an error. The tool is not called.
func refused(kind, message string) *bridgedCall {
	c := &bridgedCall{cancel: func() {}}
	c.status, c.reply = "error", errorLine(ToolError{Type: kind, Message: message})
	return c
}

func errorLine(e ToolError) []byte {
	line, err := json.Marshal(map[string]any{"type": e.Type, "message": e.Message, "retryable": e.Retryable})
	if err != nil {
		panic(err) // strings and a bool can always be encoded
	}
	return line
}

// start makes a call in its own goroutine.
func (s *stepCalls) start(ctx context.Context, c *bridgedCall, name string, document []byte) {
	b := s.bridge
	b.work.Go(func() {
		defer c.cancel()
		start := time.Now()
		status, line, err := s.made(ctx, name, document)
		if err == nil && !s.fits(len(line)) {
			err = errToolLimit("the results that code has not fetched yet would have more than %d bytes", maxWaiting)
		}
		record := toolRecord{Name: b.run.redact.short(name, maxToolName), Milliseconds: milliseconds(time.Since(start)), OK: err == nil, BytesIn: len(document), BytesOut: len(line)}
		if err != nil {
			seen := errorSeen(b.run.redact, err)
			record.Error = seen.Message
			status, line = "error", errorLine(seen)
		}
		b.run.log.tool(ctx, s.n, record)
		s.mu.Lock()
		if len(s.audit) < maxRecords {
			s.audit = append(s.audit, record)
		}
		c.status, c.reply = status, line
		s.mu.Unlock()
		select {
		case s.wake <- struct{}{}:
		default:
		}
	})
}

// fits reports whether n more bytes of waiting replies are within the limit.
func (s *stepCalls) fits(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		n += len(c.reply)
	}
	return n <= maxWaiting
}

// made makes a call, and returns the call's line in the reply.
func (s *stepCalls) made(ctx context.Context, name string, document []byte) (status string, line []byte, err error) {
	b := s.bridge
	b.mu.Lock()
	final := b.final != nil
	b.mu.Unlock()
	if final {
		return "final", []byte("null"), nil
	}
	arguments, err := state.Parse(document, state.Bounds{MaxBytes: maxExchange})
	if err != nil {
		return "", nil, &argumentError{err}
	}
	if name == finalAnswer {
		return s.record(arguments)
	}
	t := b.tools[name]
	if t == nil {
		return "", nil, &ToolError{Type: "NameError", Message: fmt.Sprintf("the run has no tool %q", b.run.redact.short(name, maxToolName))}
	}
	ctx = kernelconn.WithWaiting(ctx, b.run.about.sandbox, b.run.context.id)
	v, err := b.call(ctx, t, ToolCall{Run: b.run.id, Step: s.n, Tool: name, Arguments: arguments}, len(document))
	if err != nil {
		return "", nil, err
	}
	return "ok", b.run.redact.value(v).Bytes(), nil
}

// record records the final answer. If the code gives several final answers, only the first counts.
func (s *stepCalls) record(arguments state.Value) (string, []byte, error) {
	if err := finalTool.check(arguments); err != nil {
		return "", nil, fmt.Errorf("%s: %w", finalAnswer, err)
	}
	var given struct {
		Answer state.Value `py:"answer"`
	}
	if err := arguments.Decode(&given); err != nil {
		return "", nil, &argumentError{err}
	}
	answer := s.bridge.run.redact.value(given.Answer)
	s.bridge.mu.Lock()
	if s.bridge.final == nil {
		s.bridge.final = &answer
	}
	s.bridge.mu.Unlock()
	s.ended()
	return "final", []byte("null"), nil
}

// finalTool describes final_answer to the code. Every run has this tool.
var finalTool = Tool{
	name: finalAnswer, doc: "Gives the final answer of the task and ends the run.",
	parameters: []toolParameter{{anyType(), "answer", "answer", "", true}}, returns: plainType("None", ""),
}

// end makes s refuse further calls. It returns the records of the calls that have ended.
func (s *stepCalls) end() []toolRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	return s.audit
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond)) / float64(time.Millisecond)
}
