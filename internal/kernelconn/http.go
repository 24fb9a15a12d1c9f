package kernelconn

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/boundjson"
	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// ErrEnd is returned by HTTPCall.Line for the line that ends an execution.
var ErrEnd = errors.New("the end of the execution")

// HTTPCall is a request to run code through the interpreter's endpoint /execute. It needs no
// websocket.
type HTTPCall struct {
	Code string
	// Context is the id of the context. Empty means the default context of the
	// language, and an empty language means Python.
	Context, Language string
	// Envs are environment variables for this call only.
	Envs map[string]string
	// Queued is called only if other calls of this handle run before this call. position is the number
	// of these other calls. Queued may be nil.
	Queued func(position int) error
	// Line receives the lines of the answer. It must return [ErrEnd] for the line that ends the
	// execution. If it returns another error, the code is interrupted, and the call returns this
	// error. If Line is nil, the call only looks for errors about the kernel.
	Line func(line []byte) error
}

type executeRequest struct {
	Code      string            `json:"code"`
	ContextID string            `json:"context_id,omitempty"`
	Language  string            `json:"language,omitempty"`
	EnvVars   map[string]string `json:"env_vars,omitempty"`
}

// ExecuteOverHTTP waits for its turn, and runs code with one request. When ctx ends, the request
// ends, and the interpreter interrupts the code. started reports that the code may have run.
func (ks *Kernels) ExecuteOverHTTP(ctx context.Context, c HTTPCall) (started bool, err error) {
	turn, err := ks.takeRequestTurn(ctx, c)
	if err != nil {
		return false, err
	}
	defer ks.releaseRequestTurn(turn)
	if err := ks.settleRequests(ctx, turn, c); err != nil {
		return false, err
	}
	return ks.request(ctx, turn, c)
}

// request makes the HTTP request for c. If the request ends before its answer is complete, request
// records the time of the cut in turn.
func (ks *Kernels) request(ctx context.Context, turn *requestTurn, c HTTPCall) (started bool, err error) {
	body, err := json.Marshal(executeRequest{c.Code, c.Context, c.Language, c.Envs})
	if err != nil {
		return false, err
	}
	whole := false
	defer func() {
		if !whole {
			turn.cut = time.Now()
		}
	}()
	response, err := ks.options.Server.Do(ctx, protocol.PortInterpreter, http.MethodPost, "/execute", body, true)
	if err != nil {
		whole = ctx.Err() == nil // it was refused, or did not arrive
		return false, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		whole = true
		text, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
		return false, unknownLanguage(api.ResponseError(http.MethodPost, "/execute", response.StatusCode, response.Header, text))
	}
	read := c.Line
	if read == nil {
		read = skim
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, jupyter.MaxMessage)
	lines.Split(wholeLines)
	heard := false
	for lines.Scan() {
		if len(lines.Bytes()) == 0 {
			continue
		}
		if !heard && ofKernel(lines.Bytes()) {
			heard = true
			ks.hear(turn.key)
		}
		if err := read(lines.Bytes()); errors.Is(err, ErrEnd) {
			whole = true
			return true, nil
		} else if err != nil {
			return true, err
		}
	}
	if ctx.Err() != nil {
		return true, &InterruptedError{Context: c.Context, Cause: context.Cause(ctx), Starting: !ks.hasHeard(turn.key)}
	}
	if err := lines.Err(); err != nil {
		return true, fmt.Errorf("%w: %w", ErrLost, err)
	}
	return true, ErrLost
}

// ofKernel reports whether a line comes from the kernel. Until the kernel sends its first line, the
// interpreter sends only lines that keep the connection open.
func ofKernel(line []byte) bool {
	var l struct {
		Type string `json:"type"`
	}
	err := boundjson.Unmarshal(line, &l, jupyter.MaxMembers, 2)
	return err == nil && l.Type != "keepalive"
}

// hear records that the kernel of a context, or of a language's default context, has
// sent something.
func (ks *Kernels) hear(key string) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	ks.heard[key] = struct{}{}
}

func (ks *Kernels) hasHeard(key string) bool {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	_, heard := ks.heard[key]
	return heard
}

// wholeLines is like bufio.ScanLines, with one difference. If the input is cut off,
// wholeLines omits the incomplete last line.
func wholeLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if atEOF && bytes.IndexByte(data, '\n') < 0 && !json.Valid(data) {
		return len(data), nil, nil
	}
	return bufio.ScanLines(data, atEOF)
}

// LineError returns the error about the kernel that a line of type "error" reports. If the line
// reports an exception of the code, LineError returns nil.
func LineError(name, value, traceback string) error {
	switch {
	case traceback == "" && name == "ContextRestarting":
		return died(value)
	case traceback == "" && (name == "WebSocketError" || name == "UnexpectedEndOfExecution"):
		return fmt.Errorf("%w: %s", ErrLost, clip.Text(value, 256))
	}
	return nil
}

// skim reads the lines of a call whose output is not needed.
func skim(line []byte) error {
	var l struct {
		Type      string `json:"type"`
		Name      string `json:"name"`
		Value     string `json:"value"`
		Traceback string `json:"traceback"`
	}
	if err := boundjson.Unmarshal(line, &l, jupyter.MaxMembers, 2); err != nil {
		return fmt.Errorf("read the interpreter's answer: %w", err)
	}
	switch l.Type {
	case "error":
		return LineError(l.Name, l.Value, l.Traceback)
	case "end_of_execution":
		return ErrEnd
	}
	return nil
}
