package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"connectrpc.com/connect"

	"github.com/e2bctl/e2bctl/api"
)

// failed gives the error of a call: what was tried, in which sandbox, and the
// cause, in the words of this package and of api.
func (sb *Sandbox) failed(ctx context.Context, what string, err error) error {
	return fmt.Errorf("sandbox: %s in %s: %w", what, sb.ID(), sb.cause(ctx, err))
}

func (sb *Sandbox) cause(ctx context.Context, err error) error {
	// A call that was given up says so, whatever that broke. The handle's Close
	// shows as ErrClosed here.
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if gone, ok := errors.AsType[*GoneError](err); ok {
		return sb.epitaph(ctx, gone)
	}
	if rpc, ok := errors.AsType[*connect.Error](err); ok {
		err = rpcError(rpc)
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = api.NewError(u.Op, path(u.URL), u.Err)
	}
	// A connection that broke may mean that the sandbox is gone.
	if e, ok := errors.AsType[*api.Error](err); (ok && e.StatusCode == 0 || errors.Is(err, errStreamCut)) && !sb.alive(ctx) {
		return sb.epitaph(ctx, &GoneError{ID: sb.ID(), State: "killed", Reason: "it ended during the call", At: time.Now(), cause: err})
	}
	return err
}

func path(raw string) string {
	if u, err := url.Parse(raw); err == nil {
		return u.Path
	}
	return ""
}

// rpcError translates an error of the daemon's RPCs.
func rpcError(e *connect.Error) error {
	const method = http.MethodPost
	if !connect.IsWireError(e) {
		if _, ok := errors.AsType[*portClosedError](e); ok {
			return e.Unwrap()
		}
		return api.NewError(method, "rpc", e.Unwrap())
	}
	return &api.Error{Method: method, Path: "rpc", StatusCode: rpcStatus[e.Code()], Code: e.Code().String(), Message: shorten(e.Message(), 512)}
}

// rpcStatus is the status that stands for a code of Connect.
var rpcStatus = map[connect.Code]int{
	connect.CodeCanceled:           499,
	connect.CodeUnknown:            http.StatusInternalServerError,
	connect.CodeInvalidArgument:    http.StatusBadRequest,
	connect.CodeDeadlineExceeded:   http.StatusGatewayTimeout,
	connect.CodeNotFound:           http.StatusNotFound,
	connect.CodeAlreadyExists:      http.StatusConflict,
	connect.CodePermissionDenied:   http.StatusForbidden,
	connect.CodeResourceExhausted:  http.StatusTooManyRequests,
	connect.CodeFailedPrecondition: http.StatusBadRequest,
	connect.CodeAborted:            http.StatusConflict,
	connect.CodeOutOfRange:         http.StatusBadRequest,
	connect.CodeUnimplemented:      http.StatusNotImplemented,
	connect.CodeInternal:           http.StatusInternalServerError,
	connect.CodeUnavailable:        http.StatusServiceUnavailable,
	connect.CodeDataLoss:           http.StatusInternalServerError,
	connect.CodeUnauthenticated:    http.StatusUnauthorized,
}

// alive asks the daemon; only a clear no counts.
func (sb *Sandbox) alive(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	daemon := portClient{sb, daemonPort}
	r, err := daemon.request(ctx, http.MethodGet, "/health", nil)
	if err != nil {
		return true
	}
	response, err := daemon.Do(r)
	if err != nil {
		return !errors.Is(err, ErrGone)
	}
	_ = response.Body.Close()
	return true
}

// missing makes the control plane's 404 about this sandbox a [*GoneError].
func (sb *Sandbox) missing(err error) error {
	if errors.Is(err, api.ErrNotFound) {
		return &GoneError{ID: sb.ID(), State: "killed", Reason: "the service does not have it any more", At: time.Now(), cause: err}
	}
	return err
}

// epitaph says as well as can be known what became of the sandbox.
func (sb *Sandbox) epitaph(ctx context.Context, gone *GoneError) *GoneError {
	sb.mu.Lock()
	endAt := sb.endAt
	sb.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	told := *gone
	switch info, err := sb.client.api.Sandboxes.Get(ctx, sb.ID()); {
	case err == nil && info.State == api.StatePaused:
		told.State, told.Reason, told.At = "paused", "it is paused; connect to it to wake it up", info.EndAt
	case !time.Now().Before(endAt):
		told.State, told.Reason, told.At = "expired", "its lifetime ended; ask for more with WithLifetime or SetLifetime", endAt
	}
	return &told
}

// shorten bounds foreign text in a message.
func shorten(s string, limit int) string {
	if len(s) > limit {
		return s[:limit] + "…"
	}
	return s
}
