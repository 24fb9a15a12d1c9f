package sandbox

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
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

type executeRequest struct {
	Code      string            `json:"code"`
	ContextID string            `json:"context_id,omitempty"`
	Language  string            `json:"language,omitempty"`
	EnvVars   map[string]string `json:"env_vars,omitempty"`
}

// overHTTP runs code with one request when its turn comes. When ctx ends the
// request ends, and the interpreter interrupts the code.
func (r *codeRunner) overHTTP(ctx context.Context, code string, p *RunCodeParams, c *collector) (started bool, err error) {
	if p.Silent || p.NoHistory {
		return false, fmt.Errorf("RunCodeParams.Silent and NoHistory: %w", ErrNeedsWebsocket)
	}
	turn, err := r.takeRequestTurn(ctx, p, c.queued)
	if err != nil {
		return false, err
	}
	defer r.releaseRequestTurn(turn)
	if err := r.settleRequests(ctx, turn, p); err != nil {
		return false, err
	}
	return r.request(ctx, turn, code, p, c)
}

// request makes the request, and records in its turn if the request ends before
// its answer does.
func (r *codeRunner) request(ctx context.Context, turn *requestTurn, code string, p *RunCodeParams, c *collector) (started bool, err error) {
	interpreter := portClient{r.sb, protocol.PortInterpreter}
	body, err := json.Marshal(executeRequest{code, p.Context, p.Language, p.Envs})
	if err != nil {
		return false, err
	}
	request, err := interpreter.request(ctx, http.MethodPost, "/execute", bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	request.Header.Set("Content-Type", "application/json")
	whole := false
	defer func() {
		if !whole {
			turn.cut = time.Now()
		}
	}()
	response, err := interpreter.Do(request)
	if err != nil {
		whole = ctx.Err() == nil // it was refused, or did not arrive
		return false, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		whole = true
		text, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
		return false, kernelconn.UnknownLanguage(api.ResponseError(request.Method, "/execute", response.StatusCode, response.Header, text))
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, jupyter.MaxMessage)
	lines.Split(wholeLines)
	for lines.Scan() {
		if len(lines.Bytes()) == 0 {
			continue
		}
		if err := c.line(lines.Bytes()); errors.Is(err, errEnd) {
			whole = true
			if e := c.execution.Error; p.Stdin != nil && e != nil && e.Name == "StdinNotImplementedError" {
				return true, fmt.Errorf("RunCodeParams.Stdin: %w: %w", ErrNeedsWebsocket, e)
			}
			return true, nil
		} else if err != nil {
			return true, err
		}
	}
	if ctx.Err() != nil {
		interrupted := &kernelconn.InterruptedError{Context: p.Context, Cause: context.Cause(ctx)}
		if began := c.execution.Timing.Started; !began.IsZero() {
			interrupted.Ran = time.Since(began)
		}
		return true, interrupted
	}
	if err := lines.Err(); err != nil {
		return true, fmt.Errorf("%w: %w", ErrKernelLost, err)
	}
	return true, ErrKernelLost
}

// wholeLines is like bufio.ScanLines, but omits the incomplete line that remains
// when the input is cut off.
func wholeLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if atEOF && bytes.IndexByte(data, '\n') < 0 && !json.Valid(data) {
		return len(data), nil, nil
	}
	return bufio.ScanLines(data, atEOF)
}
