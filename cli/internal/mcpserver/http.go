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

// MaxRequestBytes bounds a request over HTTP, and with it the content of a write_file.
const MaxRequestBytes = 4 << 20

// Handler serves clients over HTTP, at any path. Clients must send the token as a bearer
// token. Requests of web pages are refused: those with an Origin of another host, and,
// against DNS rebinding, those that arrive on loopback with a Host that is not loopback.
//
// Since its version of 2026-07-28 the protocol has no sessions over HTTP. Clients of
// earlier versions have one, which ends when it has been unused for [Config.Idle],
// or earlier to make room for another session.
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

// stateful returns the handler of the protocol's versions with sessions. At most limit sessions
// are open.
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

// admitted marks the connection of a request as in use.
func admitted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connlimit.Admit(r.Context())
		next.ServeHTTP(w, r)
	})
}

const (
	// bodyPatience limits the time for a client to send a request.
	bodyPatience = 30 * time.Second
	// readPatience limits the time for a client to read the next readBytes of an answer. It is longer
	// than bodyPatience: net/http sends a refusal only when the body has come or its time is over.
	readPatience = 2 * bodyPatience
	readBytes    = 64 << 10
)

// inTime limits the time for a client to send the body of a request, also of one that
// is refused: its connection is kept until then. It also limits the time for a client
// to read an answer: a client that does not read holds no call and no connection.
func inTime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyPatience)) // writers without connections have none
		answer := &timedWriter{w}
		answer.extend()
		next.ServeHTTP(answer, r)
	})
}

// timedWriter is the answer to a request. Each part of it that is written gets the whole time.
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
