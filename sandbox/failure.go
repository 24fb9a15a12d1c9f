package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/gorilla/websocket"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// failed returns the error of a call: what was tried, in which sandbox, and the
// cause, as an error of this package or of api.
func (sb *Sandbox) failed(ctx context.Context, what string, err error) error {
	return fmt.Errorf("sandbox: %s in %s: %w", what, sb.ID(), sb.cause(ctx, err))
}

func (sb *Sandbox) cause(ctx context.Context, err error) error {
	interrupted, ok := errors.AsType[*kernelconn.InterruptedError](err)
	sent := !errors.Is(err, kernelconn.ErrNotSent)
	switch {
	case ok && sent:
		return sb.interrupted(interrupted)
	case ctx.Err() == nil:
	case !ok && !sent && errors.Is(err, context.Cause(ctx)):
		return err // it names what the code waited for
	default:
		// A call that was given up reports that, whatever else broke because of it.
		// Close of the handle appears as ErrClosed here.
		return context.Cause(ctx)
	}
	return uncancelled(sb.explained(ctx, err))
}

// interrupted returns the error of code that was given up. A kernel that is silent for a
// handle which only connected may be busy with the code of another one.
func (sb *Sandbox) interrupted(err *kernelconn.InterruptedError) *InterruptedError {
	return &InterruptedError{
		Context: ContextID(err.Context), Ran: err.Ran, Cause: err.Cause, Ended: err.Ended, Starting: err.Starting && sb.created,
	}
}

// explained returns the error of a call whose context has not ended.
func (sb *Sandbox) explained(ctx context.Context, err error) error {
	if gone, ok := errors.AsType[*GoneError](err); ok {
		return lostIn(sb.epitaph(ctx, gone), err)
	}
	err = translated(err)
	if errors.Is(err, ErrGone) { // the transport knows that all of the service has ended
		return err
	}
	// A broken connection may mean that the sandbox is gone.
	e, ok := errors.AsType[*api.Error](err)
	lost := errors.Is(err, ErrCommandLost) || errors.Is(err, ErrKernelLost)
	if !lost && (!ok || e.StatusCode != 0) {
		return err
	}
	answer := sb.probe(ctx)
	switch _, known := errors.AsType[*GoneError](answer); {
	case known:
		return lostIn(sb.epitaph(ctx, &GoneError{ID: sb.ID(), State: GoneKilled, Reason: "it ended during the call", At: time.Now(), cause: err}), err)
	case errors.Is(answer, ErrGone):
		return fmt.Errorf("%w: %w", err, translated(answer))
	case lost && answer != nil:
		return fmt.Errorf("%w; its daemon does not answer: %w", err, translated(answer))
	}
	return err
}

// lostIn returns the error of a call that err ended. What was lost from sight in a
// sandbox that is only paused is still there.
func lostIn(gone *GoneError, err error) error {
	for _, lost := range []error{ErrCommandLost, ErrKernelLost} {
		if gone.State == GonePaused && errors.Is(err, lost) {
			return fmt.Errorf("%w: %w", lost, gone)
		}
	}
	return gone
}

// translated turns an error of the libraries that carry a call into one of
// package api.
func translated(err error) error {
	if errors.Is(err, ErrCommandLost) || errors.Is(err, ErrKernelLost) || errors.Is(err, ErrNeedsWebsocket) || errors.Is(err, ErrUnknownLanguage) {
		return err
	}
	if e, ok := errors.AsType[*jupyter.DialError](err); ok {
		return api.ResponseError(http.MethodGet, "/api/kernels", e.StatusCode, e.Header, e.Body)
	}
	if errors.Is(err, websocket.ErrBadHandshake) {
		return err // it has the answer
	}
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*portClosedError](err); ok {
		return e
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		at, _ := url.Parse(u.URL)
		if at == nil {
			at = &url.URL{}
		}
		return api.NewError(strings.ToUpper(u.Op), at.Path, u.Err)
	}
	rpc, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return err
	}
	if !connect.IsWireError(rpc) {
		return api.NewError(http.MethodPost, "/process.Process", rpc.Unwrap())
	}
	return wireError("/process.Process", rpc)
}

// wireError returns the error with which a service of envd answered.
func wireError(service string, rpc *connect.Error) *api.Error {
	return &api.Error{
		Method: http.MethodPost, Path: service, StatusCode: rpcStatus[rpc.Code()],
		Code: rpc.Code().String(), Message: clip.Line(rpc.Message(), 512),
	}
}

// rpcStatus maps Connect's codes to HTTP statuses.
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

// probe asks envd whether it is there; only [ErrGone] is a definite no.
func (sb *Sandbox) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := sb.health(ctx)
	return err
}

// health returns the status with which envd answers when it is asked how it is.
func (sb *Sandbox) health(ctx context.Context) (status int, err error) {
	daemon := portClient{sb, protocol.PortEnvd}
	r, err := daemon.request(ctx, http.MethodGet, "/health", nil)
	if err != nil {
		return 0, err
	}
	response, err := daemon.Do(r)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// missing turns the control plane's 404 about a sandbox into a [*GoneError]. The
// service may know what happened to the sandbox.
func missing(id string, err error) error {
	if e, ok := errors.AsType[*api.Error](err); ok && errors.Is(e, api.ErrNotFound) {
		gone := &GoneError{ID: id, State: GoneKilled, Reason: e.Message, At: time.Now(), cause: err}
		gone.tell(e)
		return gone
	}
	return err
}

// epitaph adds what can be found out about why the sandbox is gone.
func (sb *Sandbox) epitaph(ctx context.Context, gone *GoneError) *GoneError {
	endAt := sb.end()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	told := *gone
	info, err := sb.client.api.Sandboxes.Get(ctx, sb.ID())
	answer, answered := errors.AsType[*api.Error](err)
	switch {
	case err == nil && info.State == api.StatePaused:
		told.paused(info.EndAt)
	case answered && told.tell(answer):
	case !time.Now().Before(endAt):
		told.State, told.Reason, told.At = GoneExpired, lifetimeEnded, endAt
	}
	return &told
}
