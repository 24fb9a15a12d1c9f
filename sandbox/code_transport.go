package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
)

// CodeTransport is the protocol for running code in the kernels.
type CodeTransport string

// These are the transports.
const (
	// CodeTransportAuto tries the websocket and falls back to HTTP.
	CodeTransportAuto CodeTransport = ""
	// CodeTransportWebsocket is the kernel's own protocol. It supports input, updates of
	// displays and interrupts.
	CodeTransportWebsocket CodeTransport = "websocket"
	// CodeTransportHTTP sends one request for each call. It does not transmit updates of
	// displays. Features that need the websocket fail with [ErrNeedsWebsocket].
	//
	// If the ctx of a call ends, the next call in the same code context waits at least half a second,
	// so that the interrupt can arrive. Code that ignores interrupts keeps its code context busy until
	// Contexts.Restart. Until then, the next call fails after half a minute with [ErrRetryable] and
	// does not send its code. If E2B's service has lost track of a kernel, a call in the context of
	// this kernel waits until ctx ends.
	CodeTransportHTTP CodeTransport = "http"
)

// codeRunner runs code in a sandbox's kernels.
type codeRunner struct {
	sb      *Sandbox
	dialer  *websocket.Dialer
	kernels *kernelconn.Kernels

	mu        sync.Mutex
	transport CodeTransport
}

func newCodeRunner(sb *Sandbox, cfg sandboxConfig) *codeRunner {
	r := &codeRunner{sb: sb, transport: cfg.code, dialer: newDialer(sb.client.http.Transport)}
	options := kernelconn.Options{SandboxID: sb.ID(), Server: codeServer{r}, Logger: sb.client.api.Logger(), Background: sb.background}
	if sb.created {
		options.Envs = merge(nil, cfg.envs)
	}
	r.kernels = kernelconn.New(options)
	return r
}

// CodeTransport returns the transport that RunCode uses. It returns [CodeTransportAuto] until
// the transport has been determined.
func (sb *Sandbox) CodeTransport() CodeTransport { return sb.code.way() }

func (r *codeRunner) way() CodeTransport {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.transport
}

// choose returns the transport to use after an attempt to connect the websocket. err is the result
// of the attempt. choose decides once, and logs the decision if it is HTTP.
func (r *codeRunner) choose(ctx context.Context, err error) CodeTransport {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.transport == CodeTransportAuto {
		if err == nil {
			r.transport = CodeTransportWebsocket
		} else if closed(err) {
			r.transport = CodeTransportHTTP
			r.sb.client.api.Logger().InfoContext(ctx, "code runs over HTTP: the kernels' websockets are unavailable", "sandbox", r.sb.ID(), "error", err)
		}
	}
	return r.transport
}

// websocket returns the connection to a context's kernel. If there is no connection, the error
// contains the reason.
func (r *codeRunner) websocket(ctx context.Context, id string) (*kernelconn.Kernel, error) {
	if r.way() == CodeTransportHTTP {
		return nil, ErrNeedsWebsocket
	}
	k, err := r.kernels.Open(ctx, id, "")
	r.choose(ctx, err)
	if err != nil && closed(err) {
		return nil, fmt.Errorf("%w: %w", ErrNeedsWebsocket, err)
	}
	return k, err
}

// closed reports whether an error means that this sandbox has no websocket. Other errors mean
// that the attempt failed.
func closed(err error) bool {
	if _, ok := errors.AsType[*portClosedError](err); ok {
		return true
	}
	refused, ok := errors.AsType[*jupyter.DialError](err)
	return ok && (refused.StatusCode == http.StatusUnauthorized || refused.StatusCode == http.StatusForbidden || refused.StatusCode == http.StatusNotFound)
}

// overHTTP runs code with one HTTP request.
func (r *codeRunner) overHTTP(ctx context.Context, code string, p *RunCodeParams, c *collector) (started bool, err error) {
	if p.Silent || p.NoHistory {
		return false, fmt.Errorf("RunCodeParams.Silent and NoHistory: %w", ErrNeedsWebsocket)
	}
	started, err = r.kernels.ExecuteOverHTTP(ctx, kernelconn.HTTPCall{
		Code: code, Context: string(p.Context), Language: p.Language, Envs: p.Envs, Queued: c.queued, Line: c.line,
	})
	began := c.execution.Timing.Started
	if interrupted, ok := errors.AsType[*kernelconn.InterruptedError](err); ok && !began.IsZero() {
		interrupted.Ran = time.Since(began)
	}
	if e := c.execution.Error; err == nil && p.Stdin != nil && e != nil && e.Name == "StdinNotImplementedError" {
		err = fmt.Errorf("RunCodeParams.Stdin: %w: %w", ErrNeedsWebsocket, e)
	}
	return started, err
}
