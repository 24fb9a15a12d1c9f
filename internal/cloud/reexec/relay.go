//go:build linux

package reexec

import (
	"errors"
	"net"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/inside"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
)

// relay listens on the port of the cloud. It accepts connections of the sandbox to the names of
// other sandboxes.
type relay struct {
	guest    *inside.Guest
	ended    chan<- error // receives the error of a listener that fails
	port     int
	listener net.Listener // nil if port is 0
}

// listen makes the relay listen on port, and no longer on its previous port. If port is 0, the
// relay listens on no port. The port can change because a sandbox that was saved in one cloud may
// be restored in a cloud with another port.
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
