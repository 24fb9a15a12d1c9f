package network

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
)

// Relay passes connections at one port on to the names that they show: as the server name
// of TLS, or as the Host of HTTP. It runs inside a sandbox at the port of the cloud, for
// programs that resolve the name of another sandbox to their own machine, as curl does with
// all names below localhost. It reaches only hosts that Dial reaches.
type Relay struct {
	Port uint16
	// Dial connects to a host. The relay tells its clients the reason of an error.
	Dial func(ctx context.Context, host string, port uint16) (net.Conn, error)

	open atomic.Int64
}

// Serve accepts connections until the listener fails, and returns its error.
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

// relay connects one connection. Only the client is told about errors.
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

// listenAny is listen for a port with both HTTP and TLS. Its result is never nil.
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
