package tunnel

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net"
	"slices"
	"sync"
	"time"
)

// maxUnproved bounds the number of connections whose other end has not yet proved that it is the
// server. Further connections are closed at once.
const maxUnproved = 32

// maxServers bounds the servers of a sandbox. A further server replaces the oldest server, and the
// connection of the oldest server is closed: most likely that connection is already broken.
const maxServers = 16

// Listener accepts the servers of one sandbox. It is safe for concurrent use, but only one goroutine may
// call Accept.
type Listener struct {
	listener net.Listener
	key      ed25519.PublicKey
	identity string

	unproved chan struct{} // has an element for each connection with an outstanding proof
	work     sync.WaitGroup
	life     context.Context //nolint:containedctx // it ends with the listener, not with a call
	end      context.CancelFunc

	next  chan net.Conn // servers that Accept did not return yet
	close func() error

	mu      sync.Mutex
	servers []net.Conn // the newest servers, at most maxServers, sorted from oldest to newest
}

// Listen returns a Listener that accepts connections from l. It takes over l. A server proves
// itself with the private half of key and the sandbox's identity; see [Prove].
func Listen(l net.Listener, key ed25519.PublicKey, identity string) *Listener {
	s := &Listener{listener: l, key: key, identity: identity, unproved: make(chan struct{}, maxUnproved), next: make(chan net.Conn, maxServers)}
	s.life, s.end = context.WithCancel(context.Background())
	s.close = sync.OnceValue(s.shutDown)
	s.work.Go(s.serve)
	return s
}

// acceptPause is the pause after accepting a connection has failed. The most likely error is a lack
// of descriptors.
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

// admit waits for the proof of a connection. After the proof, the connection counts as a server's.
func (s *Listener) admit(conn net.Conn) {
	err := verify(s.life, conn, s.key, s.identity)
	<-s.unproved
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || s.life.Err() != nil {
		_ = conn.Close()
		return
	}
	if len(s.servers) == maxServers {
		_ = s.servers[0].Close()
		s.servers = slices.Delete(s.servers, 0, 1)
	}
	s.servers = append(s.servers, conn)
	if len(s.next) == maxServers {
		<-s.next // the oldest, which is closed
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

// Close ends the listener and the connections of its servers. It is idempotent.
func (s *Listener) Close() error { return s.close() }

func (s *Listener) shutDown() error {
	s.end()
	err := s.listener.Close()
	s.work.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, server := range s.servers {
		_ = server.Close()
	}
	return err
}
