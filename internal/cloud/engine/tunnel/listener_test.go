package tunnel

import (
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"

	"github.com/e2bctl/e2bctl/internal/must"
)

const podUID = "8d6a1b52-6f0e-4c11-9a57-0d0f6f4b2c11"

// listening returns a listener of a sandbox, the key of its servers, and its address.
func listening(t *testing.T) (*Listener, ed25519.PrivateKey, string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	must.Do(t, err)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	must.Do(t, err)
	s := Listen(l, public, podUID)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s, private, l.Addr().String()
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp4", address)
	must.Do(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// prove connects to the address and proves to be the server.
func prove(t *testing.T, address string, key ed25519.PrivateKey) net.Conn {
	t.Helper()
	conn := dial(t, address)
	must.Do(t, Prove(t.Context(), conn, key, podUID))
	return conn
}

// TestUnproved checks that the listener sends nothing but a challenge to a client that is no
// server, and that a server is accepted after all of them.
func TestUnproved(t *testing.T) {
	t.Parallel()
	s, key, address := listening(t)
	_, foreign, err := ed25519.GenerateKey(nil)
	must.Do(t, err)
	for name, answer := range map[string]func(challenge []byte) []byte{
		"another key":            func(c []byte) []byte { return ed25519.Sign(foreign, proved(podUID, c)) },
		"another sandbox":        func(c []byte) []byte { return ed25519.Sign(key, proved("other", c)) },
		"no purpose":             func(c []byte) []byte { return ed25519.Sign(key, c) },
		"zero bytes":             func([]byte) []byte { return make([]byte, ed25519.SignatureSize) },
		"half a proof":           func(c []byte) []byte { return ed25519.Sign(key, proved(podUID, c))[:32] },
		"an old proof":           func([]byte) []byte { return ed25519.Sign(key, proved(podUID, make([]byte, challengeSize))) },
		"the challenge and more": func(c []byte) []byte { return append(c, c...) },
	} {
		conn := dial(t, address)
		challenge := make([]byte, challengeSize)
		_, err := io.ReadFull(conn, challenge)
		must.Do(t, err)
		_, err = conn.Write(answer(challenge))
		must.Do(t, err)
		must.Do(t, conn.(*net.TCPConn).CloseWrite())
		if rest, _ := io.ReadAll(conn); len(rest) > 0 { // an error is a reset, which is an end too
			t.Errorf("%s: it answered %q", name, rest)
		}
	}
	ours := prove(t, address, key)
	theirs, err := s.Accept()
	must.Do(t, err)
	defer theirs.Close()
	_, err = ours.Write([]byte("hello"))
	must.Do(t, err)
	got := make([]byte, 5)
	if _, err := io.ReadFull(theirs, got); err != nil || string(got) != "hello" {
		t.Errorf("read %q, %v", got, err)
	}
}

// TestManyUnproved checks that silent clients neither keep a server out for ever nor grow without
// bound.
func TestManyUnproved(t *testing.T) {
	t.Parallel()
	s, key, address := listening(t)
	silent := make([]net.Conn, maxUnproved)
	for i := range silent {
		silent[i] = dial(t, address)
		_, err := io.ReadFull(silent[i], make([]byte, challengeSize))
		must.Do(t, err)
	}
	more := dial(t, address)
	if got, _ := io.ReadAll(more); len(got) > 0 {
		t.Errorf("one more client was sent %d bytes", len(got))
	}
	must.Do(t, silent[0].Close())
	for { // until the listener has seen that it is closed
		conn := dial(t, address)
		if Prove(t.Context(), conn, key, podUID) == nil {
			break
		}
	}
	theirs, err := s.Accept()
	must.Do(t, err)
	must.Do(t, theirs.Close())
}

// pipes is a listener whose connections are pipes in memory, so that a test can wait until the
// other end has dealt with everything.
type pipes struct {
	conns chan net.Conn
	end   chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.end:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error {
	close(p.end)
	return nil
}

func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

// TestServers checks that servers are connected at the same time, and that one more than the bound
// takes the place of the oldest, accepted or not. Servers that prove themselves at the same time
// are admitted in any order: each waits for the one before it.
func TestServers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		public, key, err := ed25519.GenerateKey(nil)
		must.Do(t, err)
		listener := pipes{conns: make(chan net.Conn), end: make(chan struct{})}
		s := Listen(listener, public, podUID)
		connect := func() net.Conn {
			ours, theirs := net.Pipe()
			listener.conns <- theirs
			must.Do(t, Prove(t.Context(), ours, key, podUID))
			synctest.Wait() // until it is admitted
			return ours
		}
		var ours []net.Conn
		for range maxServers {
			ours = append(ours, connect())
		}
		accepted, err := s.Accept()
		must.Do(t, err)
		got := make([]byte, 1)
		for range 2 { // the first is accepted, and the second never will be
			ours = append(ours, connect())
			if _, err := ours[0].Read(got); err == nil {
				t.Error("the oldest server was not closed")
			}
			ours = ours[1:]
		}
		if _, err := accepted.Read(got); err == nil {
			t.Error("the daemon's end of the oldest server was not closed")
		}
		for i, conn := range ours {
			theirs, err := s.Accept()
			must.Do(t, err)
			go func() { _, _ = theirs.Write([]byte{byte(i)}) }()
			if _, err := conn.Read(got); err != nil || got[0] != byte(i) {
				t.Errorf("server %d read %q, %v", i, got, err)
			}
		}
		must.Do(t, s.Close())
		for _, conn := range ours {
			if _, err := conn.Read(got); err == nil {
				t.Error("a server was not closed")
			}
		}
		if _, err := s.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept after close: %v", err)
		}
	})
}

// TestProveEnds checks that a proof ends with its context, and closes the connection.
func TestProveEnds(t *testing.T) {
	t.Parallel()
	_, key, err := ed25519.GenerateKey(nil)
	must.Do(t, err)
	ours, theirs := net.Pipe()
	defer theirs.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	if err := Prove(ctx, ours, key, podUID); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	if _, err := theirs.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection was not closed: %v", err)
	}
}
