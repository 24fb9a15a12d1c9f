package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	gorilla "github.com/gorilla/websocket"
	"k8s.io/client-go/rest"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// forwarding connects to an API server whose forwarded port serve plays.
func forwarding(t *testing.T, serve func(*gorilla.Conn)) (*forwarded, error) {
	t.Helper()
	upgrader := gorilla.Upgrader{Subprotocols: []string{forwardProtocol}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if want := "/api/v1/namespaces/agents/pods/one/portforward?ports=7"; r.URL.String() != want {
			t.Errorf("asked for %s, want %s", r.URL, want)
		}
		if r.Header.Get("Authorization") != "Bearer token" {
			http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"who are you?","code":401}`, http.StatusUnauthorized)
			return
		}
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		serve(conn)
	}))
	t.Cleanup(server.Close)
	e := &Engine{options: Options{Namespace: "agents"}, config: &rest.Config{Host: server.URL, BearerToken: "token"}}
	f, err := e.forward(patience.Context(t), "one", 7)
	if err == nil {
		t.Cleanup(func() { _ = f.Close() })
	}
	return f, err
}

func say(conn *gorilla.Conn, message string) {
	_ = conn.WriteMessage(gorilla.BinaryMessage, []byte(message))
}

// hear opens both channels, as the kubelet does.
func hear(conn *gorilla.Conn) {
	say(conn, "\x00\x07\x00")
	say(conn, "\x01\x07\x00")
}

// TestForward checks that data arrives whole in both directions.
func TestForward(t *testing.T) {
	t.Parallel()
	data := bytes.Repeat([]byte("0123456789"), 10_000)
	f, err := forwarding(t, func(conn *gorilla.Conn) {
		hear(conn)
		for got := 0; got < len(data); {
			_, message, err := conn.ReadMessage()
			if err != nil || len(message) < 2 || message[0] != channelData || len(message) > maxWritten+1 {
				t.Errorf("received %d bytes, %v", len(message), err)
				return
			}
			got += len(message) - 1
			say(conn, string(message))
		}
		_ = conn.WriteMessage(gorilla.CloseMessage, gorilla.FormatCloseMessage(gorilla.CloseNormalClosure, ""))
	})
	must.Do(t, err)
	go func() { _, _ = f.Write(data) }()
	got, err := io.ReadAll(f)
	must.Do(t, err)
	if !bytes.Equal(got, data) {
		t.Errorf("%d bytes came back, want %d", len(got), len(data))
	}
}

// TestForwardFails checks the errors of a forwarded connection.
func TestForwardFails(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		serve func(*gorilla.Conn)
		want  string
	}{
		"the port is closed": {func(conn *gorilla.Conn) {
			hear(conn)
			say(conn, "\x01connection refused")
		}, "the kubelet said: connection refused"},
		"a channel of its own":   {func(conn *gorilla.Conn) { hear(conn); say(conn, "\x05what") }, "a message of channel 5"},
		"no channel":             {func(conn *gorilla.Conn) { say(conn, "") }, "a message without a channel"},
		"text":                   {func(conn *gorilla.Conn) { _ = conn.WriteMessage(gorilla.TextMessage, []byte("\x00text")) }, "a message without a channel"},
		"too long":               {func(conn *gorilla.Conn) { hear(conn); say(conn, "\x01"+strings.Repeat("x", maxForwarded)) }, "read limit"},
		"cut in the port number": {func(conn *gorilla.Conn) { say(conn, "\x00\x07") }, "EOF"},
	} {
		f, err := forwarding(t, tt.serve)
		must.Do(t, err)
		if got, err := io.ReadAll(f); len(got) > 0 || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %d bytes, %v, want %q", name, len(got), err, tt.want)
		}
	}
}

// TestForwardRefused checks that the API server's refusal reaches the caller.
func TestForwardRefused(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"pods/portforward is forbidden","code":403}`)
	}))
	defer server.Close()
	e := &Engine{options: Options{Namespace: "agents"}, config: &rest.Config{Host: server.URL}}
	_, err := e.forward(t.Context(), "one", 7)
	if err == nil || !strings.Contains(err.Error(), "pods/portforward is forbidden") {
		t.Errorf("got %v", err)
	}
}

// TestForwardSlow checks that nobody waits forever for an API server that does not answer, or that takes
// no data, and that data which comes in pieces arrives whole.
func TestForwardSlow(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(asked)
		<-r.Context().Done()
	}))
	defer silent.Close()
	defer silent.CloseClientConnections()
	e := &Engine{options: Options{Namespace: "agents"}, config: &rest.Config{Host: silent.URL}}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	if _, err := e.forward(ctx, "one", 7); !errors.Is(err, context.Canceled) {
		t.Errorf("an API server that does not answer: %v", err)
	}

	over := make(chan struct{})
	stuck, err := forwarding(t, func(conn *gorilla.Conn) {
		hear(conn)
		<-over // and reads nothing
	})
	must.Do(t, err)
	defer close(over)
	written := make(chan error, 1)
	go func() {
		for {
			if _, err := stuck.Write(make([]byte, maxWritten)); err != nil {
				written <- err
				return
			}
		}
	}()
	must.Do(t, stuck.Close())
	if err := patience.Receive(t, "the end of a blocked write", written); err == nil {
		t.Error("a closed connection took data")
	}

	slow, err := forwarding(t, func(conn *gorilla.Conn) {
		for _, message := range []string{"\x00\x07", "\x01\x07", "\x01\x00", "\x00\x00", "\x00a", "\x00", "\x00b"} {
			say(conn, message)
		}
		_ = conn.WriteMessage(gorilla.CloseMessage, gorilla.FormatCloseMessage(gorilla.CloseNormalClosure, ""))
	})
	must.Do(t, err)
	if got, err := io.ReadAll(slow); err != nil || string(got) != "ab" {
		t.Errorf("got %q, %v", got, err)
	}
}
