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

// failed returns the error of a call. Its text names the action, the sandbox and the cause. The
// cause is an error of this package or of api.
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
		return err // the error names the thing that the code waited for
	default:
		// A call whose context has ended returns the context's error, even if other things
		// broke because of that. Closing the handle appears as ErrClosed here.
		return context.Cause(ctx)
	}
	return uncancelled(sb.explained(ctx, err))
}

// interrupted returns the error of interrupted code. It sets Starting only if this handle created
// the sandbox. If another handle created it, a silent kernel may be busy with the code of that
// handle.
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
	if errors.Is(err, ErrGone) { // the transport knows that the whole service has ended
		return err
	}
	// A broken connection may mean that the sandbox has ended.
	e, ok := errors.AsType[*api.Error](err)
	lost := errors.Is(err, ErrCommandLost) || errors.Is(err, ErrKernelLost)
	if !lost && (!ok || e.StatusCode != 0) {
		return err
	}
	answer := sb.probe(ctx)
	switch _, known := errors.AsType[*GoneError](answer); {
	case known:
		return lostIn(sb.epitaph(ctx, &GoneError{ID: sb.ID(), State: GoneKilled, Reason: endedDuringCall, At: time.Now(), cause: err}), err)
	case errors.Is(answer, ErrGone):
		return fmt.Errorf("%w: %w", err, translated(answer))
	case lost && answer != nil:
		return fmt.Errorf("%w; its daemon does not answer: %w", err, translated(answer))
	}
	return err
}

const endedDuringCall = "it ended during the call"

// lostIn returns the error of a call that failed with err because of gone. A command or kernel
// whose connection was lost still exists if the sandbox is only paused.
func lostIn(gone *GoneError, err error) error {
	for _, lost := range []error{ErrCommandLost, ErrKernelLost} {
		if gone.State == GonePaused && errors.Is(err, lost) {
			return fmt.Errorf("%w: %w", lost, gone)
		}
	}
	return gone
}

// translated converts an error of the transport libraries to an error of package api.
func translated(err error) error {
	if errors.Is(err, ErrCommandLost) || errors.Is(err, ErrKernelLost) || errors.Is(err, ErrNeedsWebsocket) || errors.Is(err, ErrUnknownLanguage) {
		return err
	}
	if e, ok := errors.AsType[*jupyter.DialError](err); ok {
		return api.ResponseError(http.MethodGet, "/api/kernels", e.StatusCode, e.Header, e.Body)
	}
	if errors.Is(err, websocket.ErrBadHandshake) {
		return err // the error contains the answer
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

// wireError returns the error for an error answer of an envd service.
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

// probe checks whether envd answers. Only [ErrGone] means that the sandbox certainly does not
// run.
func (sb *Sandbox) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := sb.health(ctx)
	return err
}

// health returns the status of envd's answer to a health request.
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

// ended asks the control plane about the sandbox, because a request to the control plane does not
// resume the sandbox. The error is a [*GoneError] if the sandbox has ended or is paused.
func (sb *Sandbox) ended(ctx context.Context) error {
	info, err := sb.client.api.Sandboxes.Get(ctx, sb.ID())
	if errors.Is(err, api.ErrNotFound) || err == nil && info.State == api.StatePaused {
		return sb.epitaph(ctx, &GoneError{ID: sb.ID(), State: GoneKilled, Reason: endedDuringCall, At: time.Now()})
	}
	return err
}

// missing converts the control plane's 404 for a sandbox to a [*GoneError]. The service may
// report what happened to the sandbox.
func missing(id string, err error) error {
	if e, ok := errors.AsType[*api.Error](err); ok && errors.Is(e, api.ErrNotFound) {
		gone := &GoneError{ID: id, State: GoneKilled, Reason: e.Message, At: time.Now(), cause: err}
		gone.fill(e)
		return gone
	}
	return err
}

// epitaph adds to gone the known reason for the end of the sandbox.
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
	case answered && told.fill(answer):
	case !time.Now().Before(endAt):
		told.State, told.Reason, told.At = GoneExpired, lifetimeEnded, endAt
	}
	return &told
}
