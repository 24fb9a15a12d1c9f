//go:build linux

package reexec

import (
	"errors"
	"net"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/inside"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
)

// relay listens on the port of the cloud, for connections to other sandboxes by their names.
type relay struct {
	guest    *inside.Guest
	ended    chan<- error // receives the error of a listener that fails
	port     int
	listener net.Listener // nil if port is 0
}

// listen makes the relay listen on port alone; 0 means on none. A restored sandbox may continue in a
// cloud with another port than the one that it was saved in.
func (r *relay) listen(port int) error {
	if !r.guest.Egress || port == r.port {
		return nil
	}
	if r.listener != nil {
		_ = r.listener.Close() // nobody connects to it any longer
	}
	r.port, r.listener = 0, nil
	if port == 0 {
		return nil
	}
	listener, err := r.guest.Listen(port)
	if err != nil {
		return err
	}
	r.port, r.listener = port, listener
	serving := &network.Relay{Port: uint16(port), Dial: r.guest.DialEgress}
	go func() {
		if err := serving.Serve(listener); !errors.Is(err, net.ErrClosed) {
			r.ended <- err
		}
	}()
	return nil
}
