package edge

import (
	"context"
	"crypto/subtle"
	"errors"
	"net/http"
	"time"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

const (
	healthPath = "/health"
	// maxWakes bounds the number of times that one request wakes its sandbox. A sandbox may be
	// paused again before the request is forwarded.
	maxWakes = 3
)

// enter returns the spell in which to forward a request, or the answer that refuses the request. If
// the sandbox is paused and the request may wake it, enter wakes it first. After
// that, the spell may belong to another upstream.
func (rt *Router) enter(r *http.Request, u *upstream, port int) (*spell, *sandboxError) {
	if s := u.spell(); s != nil {
		return s, nil
	}
	if refusal := u.mayWake(r, port); refusal != nil {
		return nil, refusal
	}
	for range maxWakes {
		if refusal := rt.wake(r, u); refusal != nil {
			return nil, refusal
		}
		if woken := rt.lookup(u.ID); woken != nil { // waking may have added the sandbox anew
			u = woken
		}
		if s := u.spell(); s != nil {
			return s, nil
		}
	}
	return nil, u.refusal(http.StatusConflict, messageBusy)
}

// mayWake returns nil if a request may wake the paused sandbox. The request must have the token
// for the port, so that nobody without the token can make the sandbox run. The token for private
// ports has been checked already.
//
// Two kinds of requests never wake a sandbox. With GET /health of envd, a client checks whether the
// sandbox runs, so waking it would change the answer. A browser's preflight request has no token.
func (u *upstream) mayWake(r *http.Request, port int) *sandboxError {
	if isPreflight(r) {
		return u.refusal(http.StatusBadGateway, messageNotFound)
	}
	if port != protocol.PortEnvd {
		return nil
	}
	if r.URL.Path == healthPath {
		return u.refusal(http.StatusBadGateway, messageNotFound)
	}
	if u.authorized(r) {
		return nil
	}
	return u.refusal(http.StatusForbidden, messageAsleep)
}

// authorized reports whether a request has the sandbox's access token, or is for a file URL
// signed with it. If the sandbox has no token, every request is authorized.
func (u *upstream) authorized(r *http.Request) bool {
	if u.AccessToken == "" || subtle.ConstantTimeCompare([]byte(r.Header.Get(protocol.HeaderAccess)), []byte(u.AccessToken)) == 1 {
		return true
	}
	query := r.URL.Query()
	if r.URL.Path != filesPath || !query.Has("signature") {
		return false
	}
	url := signedURL(r.Method, query)
	return url != nil && url.signedBy(u.AccessToken) && !url.expired(time.Now())
}

// wake wakes a sandbox, and waits until requests can be forwarded to the sandbox.
func (rt *Router) wake(r *http.Request, u *upstream) *sandboxError {
	if rt.options.Wake == nil {
		return u.refusal(http.StatusBadGateway, messageNotFound)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(u.gone, cancel)()
	err := rt.options.Wake(ctx, u.ID)
	switch {
	case u.isGone(), errors.Is(err, ErrAsleep):
		return u.refusal(http.StatusBadGateway, messageNotFound)
	case err == nil:
		return nil
	case r.Context().Err() != nil:
		panic(http.ErrAbortHandler) // the client has gone
	case errors.Is(err, ErrBusy):
		return u.refusal(http.StatusConflict, messageBusy)
	case errors.Is(err, ErrLimit):
		return u.refusal(http.StatusTooManyRequests, messageLimit)
	}
	rt.options.Logger.WarnContext(r.Context(), "a request did not resume a sandbox", "sandbox", u.ID, "error", err)
	return u.refusal(http.StatusServiceUnavailable, messageNoWake)
}

func (u *upstream) refusal(status int, message string) *sandboxError {
	return &sandboxError{SandboxID: u.ID, Message: message, Code: status}
}
