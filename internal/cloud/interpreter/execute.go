//go:build linux

package interpreter

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/kernel"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// keepaliveInterval is the time between two keepalive lines of a silent execution.
const keepaliveInterval = 5 * time.Second

func (s *Server) execute(w http.ResponseWriter, r *http.Request) {
	var code, contextID, language string
	var env map[string]string
	if !readBody(w, r,
		field{name: "code", required: true, take: stringInto(&code)},
		field{name: "context_id", take: stringInto(&contextID)},
		field{name: "language", take: stringInto(&language)},
		field{name: "env_vars", take: stringsInto(&env)},
	) {
		return
	}
	for name, value := range env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			writeError(w, http.StatusBadRequest, fmt.Sprintf("env_vars: %.64q cannot be an environment variable", name))
			return
		}
	}
	var k *runningKernel
	switch {
	case contextID != "" && language != "":
		writeError(w, http.StatusBadRequest, "Only one of context_id or language can be provided")
		return
	case contextID != "":
		if k = s.contextByID(w, contextID); k == nil {
			return
		}
	default:
		var err error
		if k, err = s.defaultContext(normalLanguage(language)); err != nil {
			writeError(w, http.StatusInternalServerError, err.Error())
			return
		}
	}
	s.stream(w, r, k, code, env)
}

// stream runs code in k, and writes the output as lines of JSON. If the client goes away,
// stream interrupts the code.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, k *runningKernel, code string, env map[string]string) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	content, err := json.Marshal(jupyter.ExecuteRequest{Code: code, StoreHistory: true, StopOnError: true})
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	request := &kernel.Request{Header: jupyter.NewHeader("execute_request", k.id, "e2b"), Content: content, Env: env}
	e := &execution{request: request, outbox: newOutbox(), busy: make(chan struct{})}
	client := k.Attach(func(kernelCtx context.Context, event kernel.Event) {
		e.deliver(kernelCtx, ctx, event)
	})
	defer client.Close()
	if err := client.Submit(request); err != nil {
		writeError(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	w.Header()["Content-Type"] = nil // the service sends no type, and clients expect none
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	_ = flush.Flush()
	if !e.write(ctx, w, flush, s.keepalive) {
		cancel()
		s.abandon(client, request)
	}
}

// interrupts is the maximum number of interrupts that code gets after its client has gone away.
// Several interrupts may be needed, because code may catch an interrupt and continue. interruptPause
// is the pause after each interrupt.
const (
	interrupts     = 5
	interruptPause = 2 * time.Second
)

// abandon interrupts a request until the request ends.
func (s *Server) abandon(client *kernel.Client, request *kernel.Request) {
	pause := time.NewTicker(interruptPause)
	defer pause.Stop()
	for range interrupts {
		client.Cancel(request)
		select {
		case <-request.Done():
			return
		case <-s.ctx.Done():
			return
		case <-pause.C:
		}
	}
}

// execution converts the events of a request to lines.
type execution struct {
	request *kernel.Request
	outbox  *outbox
	busy    chan struct{} // closed when the code starts to run
	failed  bool          // an error was sent; used only by deliver
}

// deliver receives the events from the kernel. It waits for space in the outbox until the
// kernel ends or the client goes away.
func (e *execution) deliver(kernelCtx, clientCtx context.Context, event kernel.Event) {
	if event.Request != e.request {
		return
	}
	for _, line := range e.lines(event) {
		data, err := asciiLine(line)
		if err != nil {
			// This happens only if a kernel writes malformed JSON.
			data, _ = asciiLine(errorLine{Type: "error", Name: "InvalidMessage", Value: fmt.Sprintf("%.200v", err)})
		}
		e.put(kernelCtx, clientCtx, frame{data: data})
	}
}

func (e *execution) put(kernelCtx, clientCtx context.Context, f frame) {
	if e.outbox.tryPush(f) {
		return
	}
	ctx, cancel := context.WithCancel(kernelCtx)
	defer cancel()
	defer context.AfterFunc(clientCtx, cancel)()
	e.outbox.push(ctx, f)
}

func (e *execution) lines(event kernel.Event) []any {
	switch event.Type {
	case "status":
		if strings.Contains(string(event.Content), `"`+jupyter.StateBusy+`"`) {
			close(e.busy)
		}
	case kernel.Queued:
		line := queuedLine{Type: kernel.Queued}
		if json.Unmarshal(event.Content, &line) == nil {
			return []any{line}
		}
	case "execute_input":
		var c jupyter.ExecuteInput
		if json.Unmarshal(event.Content, &c) == nil {
			return []any{countLine{Type: "number_of_executions", Count: c.ExecutionCount}}
		}
	case "stream":
		name, text, err := jupyter.ParseStream(event.Content)
		if err == nil && (name == "stdout" || name == "stderr") {
			return []any{streamLine{Type: name, Text: string(text), Timestamp: event.Time.UTC().Format("2006-01-02T15:04:05.000000+00:00")}}
		}
	case "display_data", "execute_result":
		var c jupyter.DisplayData
		if json.Unmarshal(event.Content, &c) == nil {
			return []any{newResultLine(c.Data, event.Type == "execute_result")}
		}
	case "execute_reply":
		var c jupyter.ExecuteReply
		if e.failed || json.Unmarshal(event.Content, &c) != nil {
			return nil
		}
		switch c.Status {
		case "aborted", "abort": // kernels use both spellings: bash_kernel uses abort
			e.failed = true
			return []any{errorLine{Type: "error", Name: "ExecutionAborted", Value: "Execution was aborted"}}
		case "error": // some kernels report an error only in the reply, such as a magic that is used incorrectly
			e.failed = true
			return []any{errorLine{Type: "error", Name: c.Name, Value: c.Value, Traceback: strings.Join(c.Traceback, "")}}
		}
	case "error":
		var c jupyter.ErrorContent
		if e.failed || json.Unmarshal(event.Content, &c) != nil {
			return nil
		}
		e.failed = true
		line := errorLine{Type: "error", Name: c.Name, Value: c.Value, Traceback: strings.Join(c.Traceback, "")}
		if c.Name == kernel.Ended.Name {
			return []any{errorLine{
				Type: "error", Name: "WebSocketError", Value: "The connections was lost, rerun the code to get the results",
			}, line}
		}
		return []any{line}
	}
	return nil
}

// write writes lines until the request has ended. It returns false if the client goes away before the
// request has ended.
func (e *execution) write(ctx context.Context, w http.ResponseWriter, flush *http.ResponseController, keepalive time.Duration) bool {
	put := func(data []byte) bool {
		_, err := w.Write(data)
		return err == nil && flush.Flush() == nil
	}
	ticker := time.NewTicker(keepalive)
	defer ticker.Stop()
	running := false
	for {
		var ticks <-chan time.Time
		if running {
			ticks = ticker.C
		}
		select {
		case <-ctx.Done():
			return false
		case <-e.busyOnce(running):
			running = true
			ticker.Reset(keepalive)
		case <-ticks:
			if !put([]byte("{\"type\": \"keepalive\"}\n")) {
				return false
			}
		case f := <-e.outbox.frames:
			e.outbox.taken(f)
			if !put(f.data) {
				return false
			}
			ticker.Reset(keepalive)
		case <-e.request.Done():
			// No more frames are added to the outbox, so write the remaining ones.
			for len(e.outbox.frames) > 0 {
				f := <-e.outbox.frames
				e.outbox.taken(f)
				if !put(f.data) {
					return true
				}
			}
			put([]byte("{\"type\": \"end_of_execution\"}\n"))
			return true
		}
	}
}

// busyOnce returns a channel that is closed when the code starts to run. If the code already runs,
// busyOnce returns a nil channel, which is never ready.
func (e *execution) busyOnce(running bool) <-chan struct{} {
	if running {
		return nil
	}
	return e.busy
}
