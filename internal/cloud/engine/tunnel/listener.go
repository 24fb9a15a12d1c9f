package tunnel

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net"
	"sync"
	"time"
)

// maxUnproved bounds the number of connections whose other end has not yet proved that it is the
// server. Further connections are closed at once.
const maxUnproved = 32

// Listener accepts the servers of one sandbox, one after the other. Each server takes over from the
// server before it, and the Listener closes the connection of that earlier server. A Listener is
// safe for concurrent use, but only one goroutine may call Accept.
type Listener struct {
	listener net.Listener
	key      ed25519.PublicKey
	identity string

	unproved chan struct{} // has an element for each connection whose proof is still missing
	work     sync.WaitGroup
	life     context.Context //nolint:containedctx // it ends with the listener, not with a call
	end      context.CancelFunc

	next  chan net.Conn // the newest server that Accept has not returned yet
	close func() error

	mu      sync.Mutex
	current net.Conn // the newest server
}

// Listen makes a Listener of l, which it takes over. A server proves itself with the private half
// of key and the sandbox's identity, see [Prove].
func Listen(l net.Listener, key ed25519.PublicKey, identity string) *Listener {
	s := &Listener{listener: l, key: key, identity: identity, unproved: make(chan struct{}, maxUnproved), next: make(chan net.Conn, 1)}
	s.life, s.end = context.WithCancel(context.Background())
	s.close = sync.OnceValue(s.shutDown)
	s.work.Go(s.serve)
	return s
}

// acceptPause is the pause after an error of accepting. The most likely error is a lack of
// descriptors.
const acceptPause = 100 * time.Millisecond

func (s *Listener) serve() {
	for {
		conn, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			select {
			case <-s.life.Done():
			case <-time.After(acceptPause):
			}
			continue
		}
		select {
		case s.unproved <- struct{}{}:
			s.work.Go(func() { s.admit(conn) })
		default:
			_ = conn.Close()
		}
	}
}

// admit waits for the proof of a connection. It then makes the server at the other end the newest
// server.
func (s *Listener) admit(conn net.Conn) {
	err := verify(s.life, conn, s.key, s.identity)
	<-s.unproved
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || s.life.Err() != nil {
		_ = conn.Close()
		return
	}
	if s.current != nil {
		_ = s.current.Close()
	}
	s.current = conn
	select {
	case <-s.next: // it is closed
	default:
	}
	s.next <- conn // only here, and with s.mu
}

// Accept waits for the next server that proves itself, and returns its connection. The caller must
// close the connection. After Close, Accept returns [net.ErrClosed].
func (s *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-s.next:
		return conn, nil
	case <-s.life.Done():
		return nil, net.ErrClosed
	}
}

// Close ends the listener and the connection of the newest server. It is idempotent.
func (s *Listener) Close() error { return s.close() }

func (s *Listener) shutDown() error {
	s.end()
	err := s.listener.Close()
	s.work.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		_ = s.current.Close()
	}
	return err
}
