package mcpserver

import (
	"bytes"
	"context"
	"crypto/subtle"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// MaxRequestBytes bounds a request over HTTP, and with it the content of a write_file.
const MaxRequestBytes = 4 << 20

// Handler serves clients over HTTP, at any path. Clients must send the token as a bearer
// token. Requests of web pages are refused: those with an Origin of another host, and,
// against DNS rebinding, those that arrive on loopback with a Host that is not loopback.
//
// Since its version of 2026-07-28 the protocol has no sessions over HTTP. Clients of
// earlier versions have one, which ends when it has been unused for [Config.Idle].
func (s *Server) Handler(token string) http.Handler {
	s.sandboxes.warm()
	without, with := s.endpoint(false), s.endpoint(true)
	stateless := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return without }, &sdk.StreamableHTTPOptions{
		Stateless: true, Logger: s.config.Logger, MaxRequestBodyBytes: MaxRequestBytes, PropagateRequestCancellation: true,
	})
	stateful := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return with }, &sdk.StreamableHTTPOptions{
		Logger: s.config.Logger, MaxRequestBodyBytes: MaxRequestBytes, SessionTimeout: s.config.Idle,
	})
	byVersion := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") >= roundTrips {
			stateless.ServeHTTP(w, r)
		} else {
			stateful.ServeHTTP(w, r)
		}
	})
	authorised := auth.RequireBearerToken(func(_ context.Context, given string, _ *http.Request) (*auth.TokenInfo, error) {
		if subtle.ConstantTimeCompare([]byte(given), []byte(token)) != 1 {
			return nil, auth.ErrInvalidToken
		}
		return &auth.TokenInfo{Expiration: time.Now().Add(tokenValidity)}, nil
	}, nil)
	return s.inTime(http.NewCrossOriginProtection().Handler(authorised(withWholeBody(byVersion))))
}

// bodyPatience limits the time for a client to send a request.
const bodyPatience = 30 * time.Second

// inTime limits the time for a client to send the body of a request. This also holds for a refused
// request, whose connection is kept until its body has arrived.
func (s *Server) inTime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.bodyPatience)) // writers without connections have none
		next.ServeHTTP(w, r)
	})
}

// withWholeBody reads the body of a request, and then lifts the limit of its time, which would
// otherwise cancel the call later. A client that sends slowly thus holds no session and no call.
func withWholeBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxRequestBytes))
		if err != nil {
			status := http.StatusRequestTimeout
			if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
				status = http.StatusRequestEntityTooLarge
			}
			http.Error(w, http.StatusText(status), status)
			return
		}
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// tokenValidity is a validity for the library, which refuses tokens without an end. The server's
// token has none.
const tokenValidity = time.Hour
