//go:build linux

package room

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"golang.org/x/sys/unix"
)

// An exit has one socket for TCP and one for UDP.
const (
	exitSockets = 2
	exitBacklog = 128
)

// exit is the outer end of a sandbox's egress path: sockets in the sandbox's network
// namespace. The first stage of the sandbox makes them before any of the sandbox's code runs.
type exit struct {
	tcp *net.TCPListener
	udp *net.UDPConn

	accept  func()        // accepts connections until the socket stops listening
	lookups chan struct{} // has an element for each query that is being answered

	mu        sync.Mutex
	listening bool
	closed    bool
	accepting sync.WaitGroup
}

// newExit takes over the descriptors that the first stage sent: none, or both sockets.
func newExit(sockets []*os.File) (*exit, error) {
	defer wire.CloseAll(sockets)
	if len(sockets) == 0 {
		return nil, nil
	}
	if len(sockets) != exitSockets {
		return nil, fmt.Errorf("%w: %d sockets", wire.ErrProtocol, len(sockets))
	}
	l, err := net.FileListener(sockets[0])
	if err != nil {
		return nil, err
	}
	p, err := net.FilePacketConn(sockets[1])
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	tcp, isTCP := l.(*net.TCPListener)
	udp, isUDP := p.(*net.UDPConn)
	if !isTCP || !isUDP {
		return nil, errors.Join(fmt.Errorf("%w: not a TCP and a UDP socket", wire.ErrProtocol), l.Close(), p.Close())
	}
	return &exit{tcp: tcp, udp: udp, lookups: make(chan struct{}, maxLookups)}, nil
}

// close ends all connections and queries. It does nothing if the sandbox has no exit.
func (e *exit) close() {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	_ = e.tcp.Close() // both fail if they are already closed
	_ = e.udp.Close()
	e.accepting.Wait()
}

// listen makes the TCP socket listen and accepts connections, or stops both. The
// kernel refuses connections to a socket that does not listen.
func (e *exit) listen(on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || on == e.listening {
		return
	}
	e.listening = on
	raw, err := e.tcp.SyscallConn()
	if err != nil {
		return // it is closed
	}
	if !on {
		// The socket stays bound, so nothing inside can take its place.
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RD) })
		e.accepting.Wait()
		return
	}
	_ = raw.Control(func(fd uintptr) { _ = unix.Listen(int(fd), exitBacklog) })
	e.accepting.Go(e.accept)
}
