package network

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
)

// Relay forwards each connection on one port to the name in the client's first message: the server
// name of a TLS connection, or the Host of an HTTP request. Relay runs inside a sandbox on the port
// of the cloud. It is for programs that resolve the name of another sandbox to their own machine.
// For example, curl does so with all names below localhost. Relay reaches only hosts that Dial
// reaches.
type Relay struct {
	Port uint16
	// Dial connects to a host. The relay sends the text of its error to the client.
	Dial func(ctx context.Context, host string, port uint16) (net.Conn, error)

	open atomic.Int64
}

// Serve accepts connections until the listener fails, and returns the error of the listener.
func (r *Relay) Serve(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		if r.open.Add(1) > maxTunnels {
			r.open.Add(-1)
			_ = conn.Close()
			continue
		}
		go func() {
			defer r.open.Add(-1)
			defer conn.Close()
			r.relay(context.Background(), conn)
		}()
	}
}

// relay serves one connection. It reports errors only to the client.
func (r *Relay) relay(ctx context.Context, conn net.Conn) {
	heard, err := listenAny(ctx, conn)
	if err != nil {
		if errors.Is(err, errNoName) {
			heard.refuse(conn, &DeniedError{Host: conn.LocalAddr().String(), Rule: ruleNoPeer})
		}
		return
	}
	outside, err := r.Dial(ctx, heard.name, r.Port)
	if err != nil {
		heard.refuse(conn, err)
		return
	}
	if outside, err = forward(conn, outside, heard); err == nil {
		join(ctx, outside, conn)
	}
}

// listenAny reads the first bytes like [listen], for a port with both HTTP and TLS. The returned
// *said is never nil.
func listenAny(ctx context.Context, conn net.Conn) (*said, error) {
	first := make([]byte, 1)
	stop, err := listenFor(ctx, conn)
	if err != nil {
		return &said{port: portHTTP}, err
	}
	_, err = conn.Read(first)
	stop()
	if err != nil {
		return &said{port: portHTTP}, err
	}
	port := uint16(portHTTP)
	if first[0] == recordHandshake {
		port = portHTTPS
	}
	return listen(ctx, &replayed{conn, first}, port)
}
