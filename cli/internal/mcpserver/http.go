package mcpserver

import (
	"bytes"
	"context"
	"crypto/subtle"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/internal/cloud/connlimit"
)

// MaxRequestBytes bounds a request over HTTP. It thus also bounds the content that the tool
// write_file can write.
const MaxRequestBytes = 4 << 20

// Handler serves clients over HTTP, at any path. Clients must send the token as a bearer token.
// Requests from web pages are refused. These are requests with an Origin of another host. Against
// DNS rebinding, a request that arrives on loopback is also refused if its Host is not loopback.
//
// Since its version 2026-07-28 the protocol has no sessions over HTTP. A client of an earlier
// version has a session. The session ends when it has been unused for [Config.Idle], or earlier to
// make room for another session.
//
// With a [connlimit.Listener], a connection counts as in use while a request with the token is served.
func (s *Server) Handler(token string) http.Handler {
	s.sandboxes.warm()
	without := s.endpoint(false)
	stateless := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return without }, &sdk.StreamableHTTPOptions{
		Stateless: true, Logger: s.config.Logger, MaxRequestBodyBytes: MaxRequestBytes, PropagateRequestCancellation: true,
	})
	stateful := s.stateful(maxSessions)
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
	return inTime(http.NewCrossOriginProtection().Handler(authorised(admitted(withWholeBody(byVersion)))))
}

// stateful returns the handler of the protocol's versions with sessions. It keeps at most limit
// sessions open.
func (s *Server) stateful(limit int) http.Handler {
	open := newSessions(s.endpoint(true), limit)
	return open.handler(s.streamable(open.server))
}

// streamable returns the library's handler of the sessions of server.
func (s *Server) streamable(server *sdk.Server) http.Handler {
	return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, &sdk.StreamableHTTPOptions{
		Logger: s.config.Logger, MaxRequestBodyBytes: MaxRequestBytes, SessionTimeout: s.config.Idle,
	})
}

// admitted returns a handler that marks the connection of a request as in use while next serves the
// request.
func admitted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connlimit.Admit(r.Context())
		next.ServeHTTP(w, r)
	})
}

const (
	// bodyPatience limits the time for a client to send a request.
	bodyPatience = 30 * time.Second
	// readPatience limits the time in which a client must read the next readBytes of an answer. It is
	// longer than bodyPatience, because net/http sends a refusal only when the body has arrived or its
	// time is over.
	readPatience = 2 * bodyPatience
	readBytes    = 64 << 10
)

// inTime limits the time in which a client must send the body of a request. The limit applies to a
// refused request, too, because its connection is kept until the body has arrived. inTime also
// limits the time in which a client must read an answer, so that a client that does not read cannot
// occupy a call or a connection.
func inTime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyPatience)) // writers without connections have none
		answer := &timedWriter{w}
		answer.extend()
		next.ServeHTTP(answer, r)
	})
}

// timedWriter is a response writer with a time limit. The limit begins anew with each part of the
// answer that is written.
type timedWriter struct{ http.ResponseWriter }

func (w *timedWriter) extend() {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(readPatience)) // writers without connections have none
}

// Write implements [io.Writer].
func (w *timedWriter) Write(data []byte) (n int, err error) {
	for part := range slices.Chunk(data, readBytes) {
		w.extend()
		written, err := w.ResponseWriter.Write(part)
		n += written
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// WriteHeader implements [http.ResponseWriter].
func (w *timedWriter) WriteHeader(status int) {
	w.extend()
	w.ResponseWriter.WriteHeader(status)
}

// FlushError is called by [http.ResponseController].
func (w *timedWriter) FlushError() error {
	w.extend()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap is called by [http.ResponseController].
func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// withWholeBody reads the whole body of a request before it calls next, so that a client that sends
// slowly occupies no session and no call. It then removes the time limit of the body, because that
// limit would otherwise cancel the call later.
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

// tokenValidity is the validity of the token that is reported to the library. The server's token
// never expires, but the library refuses tokens without an expiry.
const tokenValidity = time.Hour
