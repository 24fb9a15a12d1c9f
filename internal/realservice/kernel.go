//go:build linux

package realservice

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// kernel is the interpreter's own connection to the kernel of a context. No other component uses
// this connection. If the connection is cut, messages that the kernel sends in the meantime are
// lost.
type kernel struct {
	jupyter       *jupyterServer
	id, session   string
	language, cwd string
	turn          chan struct{}     // held while code runs, so that only one request runs at a time
	globals       map[string]string // the sandbox's environment, set at the first execution; guarded by turn

	mu      sync.Mutex
	conn    *websocket.Conn
	reading sync.WaitGroup
	running map[string]*running
}

// running is a request that the kernel has not reported as finished.
type running struct {
	silent bool
	input  bool // the kernel has accepted this request, so the next status "idle" is the request's end
	failed bool
	lines  *queue
}

// line is one line of an answer of /execute.
type line map[string]any

// connect opens the websocket.
func (k *kernel) connect(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	conn, response, err := k.jupyter.dialer.DialContext(ctx, address("ws", "/api/kernels/"+k.id+"/channels"), nil)
	if err != nil {
		if response != nil {
			response.Body.Close()
		}
		return err
	}
	k.conn = conn
	k.reading.Go(func() { k.read(conn) })
	return nil
}

// disconnect closes the websocket, and ends the requests that run over it.
func (k *kernel) disconnect() {
	k.mu.Lock()
	if k.conn != nil {
		k.conn.Close()
	}
	k.mu.Unlock()
	k.reading.Wait()
}

func (k *kernel) read(conn *websocket.Conn) {
	for {
		kind, frame, err := conn.ReadMessage()
		if err != nil {
			break
		}
		if kind == websocket.TextMessage {
			k.hear(frame)
		}
	}
	conn.Close()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.conn = nil
	k.end(
		line{"type": "error", "name": "WebSocketError", "value": "The connections was lost, rerun the code to get the results", "traceback": ""},
		line{"type": "error", "name": "UnexpectedEndOfExecution", "value": "Connection to the execution was closed before the execution was finished", "traceback": ""},
	)
}

// end ends all requests with these lines. The caller holds k.mu.
func (k *kernel) end(lines ...line) {
	for id, r := range k.running {
		for _, l := range lines {
			r.lines.put(l)
		}
		r.lines.end()
		delete(k.running, id)
	}
}

// hear handles a message of the kernel.
func (k *kernel) hear(frame []byte) {
	m, err := jupyter.Unmarshal(frame, false)
	if err != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var content struct {
		jupyter.ErrorContent
		State  string                     `json:"execution_state"`
		Status string                     `json:"status"`
		Name   string                     `json:"name"`
		Text   string                     `json:"text"`
		Count  int                        `json:"execution_count"`
		Data   map[string]json.RawMessage `json:"data"`
	}
	_ = json.Unmarshal(m.Content, &content) // malformed content is ignored
	kind := m.Header.MsgType
	if kind == "status" && content.State == "restarting" {
		k.end(line{"type": "error", "name": "ContextRestarting", "value": "Context was restarted", "traceback": ""})
		return
	}
	r := k.running[m.Parent.MsgID]
	if r == nil {
		return
	}
	switch kind {
	case "execute_input":
		r.input = true
		r.lines.put(line{"type": "number_of_executions", "execution_count": content.Count})
	case "stream":
		r.lines.put(line{"type": content.Name, "text": content.Text, "timestamp": string(m.Header.Date)})
	case "display_data", "execute_result":
		r.lines.put(result(content.Data, kind == "execute_result"))
	case "error":
		k.fail(r, content.ErrorContent)
	case "execute_reply":
		switch content.Status {
		case "error":
			k.fail(r, content.ErrorContent)
		case "abort": // kernels spell it differently: a request that they drop never ends
			r.lines.put(line{"type": "error", "name": "ExecutionAborted", "value": "Execution was aborted", "traceback": ""})
			r.lines.end()
			delete(k.running, m.Parent.MsgID)
		}
	case "status":
		if content.State == "busy" && r.silent {
			r.input = true
		}
		if content.State == "idle" && r.input {
			r.lines.end()
			delete(k.running, m.Parent.MsgID)
		}
	}
}

// fail records the first error of a request. The caller holds k.mu.
func (k *kernel) fail(r *running, e jupyter.ErrorContent) {
	if !r.failed {
		r.failed = true
		r.lines.put(line{"type": "error", "name": e.Name, "value": e.Value, "traceback": strings.Join(e.Traceback, "")})
	}
}

// result returns the line of a value that was displayed.
func result(data map[string]json.RawMessage, main bool) line {
	l, extra := line{"type": "result", "is_main_result": main}, map[string]json.RawMessage{}
	for mime, value := range data {
		field, known := fields[mime]
		switch {
		case !known:
			extra[mime] = value
		case field == "text":
			var text string
			_ = json.Unmarshal(value, &text) // the kernel's text is a string
			if n := len(text); n > 1 && text[0] == text[n-1] && (text[0] == '\'' || text[0] == '"') {
				text = text[1 : n-1]
			}
			l[field] = text
		default:
			l[field] = value
		}
	}
	l["extra"] = extra
	return l
}

// fields maps MIME types to the names of the fields in the interpreter's answers.
var fields = map[string]string{
	"text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg", "image/png": "png",
	"image/jpeg": "jpeg", "application/pdf": "pdf", "text/latex": "latex", "application/json": "json",
	"application/javascript": "javascript", "e2b/data": "data", "e2b/chart": "chart",
}

// sendAttempts limits the attempts to send a request.
const sendAttempts = 4

// send sends code to the kernel. If there is no connection, it opens one.
func (k *kernel) send(ctx context.Context, code string, silent bool) (*running, error) {
	header := jupyter.NewHeader("execute_request", k.session, "e2b")
	request := map[string]any{
		"header": header, "parent_header": struct{}{},
		"metadata": map[string]any{"trusted": true, "deletedCells": []string{}, "recordTiming": false, "cellId": jupyter.NewID()},
		"content": map[string]any{
			"code": code, "silent": silent, "store_history": true, "user_expressions": struct{}{}, "stop_on_error": true, "allow_stdin": false,
		},
	}
	r := &running{silent: silent, lines: newQueue()}
	var err error
	for range sendAttempts {
		k.mu.Lock()
		conn := k.conn
		if conn != nil {
			k.running[header.MsgID] = r
			err = conn.WriteJSON(request)
			if err == nil {
				k.mu.Unlock()
				return r, nil
			}
			delete(k.running, header.MsgID)
			conn.Close()
		}
		k.mu.Unlock()
		if connected := k.connect(ctx); connected != nil {
			err = connected
		}
	}
	return nil, err
}

// interrupt interrupts the code that the kernel is running.
func (k *kernel) interrupt(ctx context.Context) error {
	return k.jupyter.call(ctx, http.MethodPost, "/api/kernels/"+k.id+"/interrupt", nil, nil)
}

// queue stores the lines of a request, so that a slow reader does not block the
// sender.
type queue struct {
	mu    sync.Mutex
	lines []line
	ended bool
	more  chan struct{}
}

func newQueue() *queue { return &queue{more: make(chan struct{}, 1)} }

func (q *queue) put(l line) { q.add([]line{l}, false) }
func (q *queue) end()       { q.add(nil, true) }

func (q *queue) add(lines []line, ended bool) {
	q.mu.Lock()
	q.lines, q.ended = append(q.lines, lines...), q.ended || ended
	q.mu.Unlock()
	select {
	case q.more <- struct{}{}:
	default:
	}
}

func (q *queue) take() (lines []line, ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lines, q.lines = q.lines, nil
	return lines, q.ended
}

// keepalive is the time without output after which an answer of /execute contains a line of the
// type keepalive.
const keepalive = 5 * time.Second

// errAway means that the client has gone.
var errAway = errors.New("the client went away")

// follow calls tell with the lines of a request's answer, until the request ends or the client goes
// away.
func (r *running) follow(ctx context.Context, tell func(line) error) error {
	for {
		timer := time.NewTimer(keepalive)
		select {
		case <-ctx.Done():
			timer.Stop()
			return errAway
		case <-timer.C:
			if tell(line{"type": "keepalive"}) != nil {
				return errAway
			}
			continue
		case <-r.lines.more:
			timer.Stop()
		}
		lines, ended := r.lines.take()
		for _, l := range lines {
			if tell(l) != nil {
				return errAway
			}
		}
		if ended {
			return nil
		}
	}
}
