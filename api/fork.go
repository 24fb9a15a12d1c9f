package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
)

// ForkParams sets how to fork a sandbox. The zero value makes one copy that lives for
// [DefaultLifetime].
type ForkParams struct {
	// Count is the number of copies, 1 to 100. Zero means 1. The service's limit of running sandboxes
	// may be lower than 100.
	Count int
	// Lifetime is the lifetime of the copies, rounded up to whole seconds. Zero means
	// [DefaultLifetime].
	Lifetime time.Duration
}

type forkRequest struct {
	Timeout int64 `json:"timeout"`
	Count   int   `json:"count,omitempty"`
}

// ForkResult is one copy of a sandbox, or the error that prevented the copy.
type ForkResult struct {
	// Sandbox is the copy; nil when Err is set.
	Sandbox *Sandbox
	// Err is the service's [*Error]; nil if Sandbox is set.
	Err error
	// Memory reports whether the copy has the memory of the original, so that its processes
	// continue. False means that it started anew from the files. Nil means that the service
	// does not report it.
	Memory *bool
}

type forkAnswer struct {
	Sandbox *Sandbox   `json:"sandbox"`
	Error   *forkError `json:"error"`
	Memory  *bool      `json:"memory"`
}

type forkError struct {
	Code      int    `json:"code"`
	Message   string `json:"message"`
	ErrorCode string `json:"error_code"`
}

// Fork makes copies of a running sandbox. All copies have the state of the sandbox at one moment.
// The sandbox continues to run. The result has an entry for each copy that the service tried to
// make. A returned error applies to all copies: [ErrConflict] when the sandbox is paused or changes
// its state, [ErrInvalidArgument] when Count exceeds the limit of running sandboxes,
// [ErrUnavailable] when the service cannot fork the sandbox now.
//
// Like Create, Fork is retried only when provably nothing was sent, or when the service answers
// 429. If the answer is lost, copies may exist until their lifetime ends.
func (s *SandboxService) Fork(ctx context.Context, id string, p *ForkParams) ([]ForkResult, error) {
	path, err := sandboxPath(id, "/fork")
	if err != nil {
		return nil, err
	}
	if p == nil {
		p = &ForkParams{}
	}
	if p.Count < 0 {
		return nil, fmt.Errorf("api: fork count %d: want at least 1: %w", p.Count, ErrInvalidArgument)
	}
	// The service's own default is 15 seconds.
	lifetime, err := seconds("lifetime", p.Lifetime)
	if err != nil {
		return nil, err
	}
	var entries []forkAnswer
	if _, err := s.client.do(ctx, call{method: http.MethodPost, path: path, body: forkRequest{lifetime, p.Count}, once: true, saves: true}, &entries); err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, errors.New("api: the service's answer has no copies")
	}
	forks := make([]ForkResult, len(entries))
	for i, entry := range entries {
		forks[i] = entry.fork(path)
	}
	return forks, nil
}

func (a forkAnswer) fork(path string) ForkResult {
	if a.Error != nil {
		return ForkResult{Err: a.Error.asError(http.MethodPost, path)}
	}
	if a.Sandbox == nil {
		return ForkResult{Err: errors.New("api: the service's answer has neither a copy nor an error")}
	}
	if err := a.Sandbox.check(); err != nil {
		return ForkResult{Err: err}
	}
	return ForkResult{Sandbox: a.Sandbox, Memory: a.Memory}
}

// asError converts e to the error of a call with this method and path. A code outside 400 to
// 599 becomes 500.
func (e *forkError) asError(method, path string) *Error {
	status := e.Code
	if status < 400 || status > 599 {
		status = http.StatusInternalServerError
	}
	message := clip.Line(e.Message, maxMessage)
	if message == "" {
		message = strings.ToLower(http.StatusText(status))
	}
	return &Error{Method: method, Path: path, StatusCode: status, Code: clip.Line(e.ErrorCode, 64), Message: message}
}
