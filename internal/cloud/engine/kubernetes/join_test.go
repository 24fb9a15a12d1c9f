package kubernetes

import (
	"crypto/ed25519"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	gorilla "github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/tunnel"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// carry carries the bytes between the port-forward of a client and envd. Those of envd arrive one by one.
func carry(forward *gorilla.Conn, envd net.Conn) {
	hear(forward)
	go func() {
		defer envd.Close()
		for {
			_, message, err := forward.ReadMessage()
			if err != nil || len(message) == 0 {
				return
			}
			if _, err := envd.Write(message[1:]); err != nil {
				return
			}
		}
	}()
	one := []byte{channelData, 0}
	for {
		if _, err := io.ReadFull(envd, one[1:]); err != nil {
			return
		}
		if err := forward.WriteMessage(gorilla.BinaryMessage, one); err != nil {
			return
		}
	}
}

// TestJoinSlowly checks that a start goes on until the port-forward leads to envd, however slowly its bytes
// arrive: the API server is busy at first, and then nothing listens in the pod yet.
func TestJoinSlowly(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	must.Do(t, err)
	var attempts atomic.Int32
	upgrader := gorilla.Upgrader{Subprotocols: []string{forwardProtocol}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := attempts.Add(1)
		if n == 1 {
			refuse(w, http.StatusServiceUnavailable, "ServiceUnavailable", "dial tcp: i/o timeout")
			return
		}
		forward, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer forward.Close()
		if n == 2 {
			hear(forward)
			say(forward, "\x01connection refused")
			return
		}
		envd, err := (&net.Dialer{}).DialContext(t.Context(), "tcp4", listener.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		defer envd.Close()
		carry(forward, envd)
	}))
	t.Cleanup(server.Close)
	e := engineOn(t, server.URL, longSecret)
	e.watch.pods.see(podOne("node", corev1.ContainerState{}, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}), false)
	public, ok := e.keys.proof.Public().(ed25519.PublicKey)
	if !ok {
		t.Fatal("the key of servers has another public half")
	}
	envd := tunnel.Listen(listener, public, "1")
	t.Cleanup(func() { must.Do(t, envd.Close()) })
	guests := make(chan string, 1)
	go func() {
		conn, err := envd.Accept()
		if err != nil {
			return
		}
		guest, err := tunnel.NewLink(conn).Join()
		if err == nil {
			err = guest.Ready()
		}
		if err != nil {
			t.Error(err)
			return
		}
		guests <- guest.Hello.ID
		_, _ = guest.Accept() // until the end of the tunnel
	}()
	s, err := e.unconnected(engine.SandboxOptions{ID: "one"}, "sandbox-one")
	must.Do(t, err)
	t.Cleanup(s.end)
	must.Do(t, s.start(patience.Context(t)))
	if got := patience.Receive(t, "envd has a server", guests); got != "one" || attempts.Load() != 3 {
		t.Errorf("the sandbox %q was reached in %d attempts, want one in 3", got, attempts.Load())
	}
	s.tunnel.Close()
}
