package main

import (
	"context"
	"crypto/rand"
	"io"
	"net"
	"net/http"
	"time"
)

// madeUp is an API of issues in this process, so that the example runs without an account. Like
// the real API it refuses requests without the token.
type madeUp struct {
	*http.Server
	URL, token string
}

func serveIssues(ctx context.Context) (*madeUp, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &madeUp{URL: "http://" + listener.Addr().String(), token: "made-up-" + rand.Text()}
	m.Server = &http.Server{Handler: http.HandlerFunc(m.answer), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = m.Serve(listener) }() // until Close
	return m, nil
}

func (m *madeUp) answer(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("Authorization") != "Bearer "+m.token:
		w.WriteHeader(http.StatusUnauthorized)
	case r.Method == http.MethodPost:
		w.WriteHeader(http.StatusCreated)
	case r.FormValue("page") == "1":
		_, _ = io.WriteString(w, `[{"number":3,"title":"How do I install it?","labels":[{"name":"question"}]},
			{"number":2,"title":"It crashes","labels":[{"name":"bug"}]}]`)
	default:
		_, _ = io.WriteString(w, "[]")
	}
}
