package tunnel

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/link"
)

// ErrProtocol means that the other end sent data that the protocol does not allow.
var ErrProtocol = errors.New("the other end of the tunnel broke the protocol")

// Bounds of one sandbox.
const (
	maxEgress = 320 // connections out of the sandbox
	// maxStreams bounds the connections that the other end may keep open. This number includes closed
	// connections if the other end has not acknowledged their end.
	maxStreams = 2 * (2*link.MaxStreams + maxEgress)
	// window limits the bytes of one connection that wait in the server for its reader.
	window = 256 << 10
	// closeTimeout limits the time that a closed connection waits until the other end closes it too.
	closeTimeout = 5 * time.Minute
)

// config disables yamux's timers, because a frozen sandbox is alive although it answers nothing
// while it is frozen.
func config() *yamux.Config {
	c := yamux.DefaultConfig()
	c.AcceptBacklog = maxStreams
	c.MaxStreamWindowSize = window
	c.EnableKeepAlive = false
	c.ConnectionWriteTimeout = math.MaxInt64
	c.StreamOpenTimeout = 0
	c.StreamCloseTimeout = closeTimeout
	c.LogOutput = io.Discard // its errors say the same
	return c
}

// open opens a connection. It may have to wait for the other end.
func open(session *yamux.Session) (*Conn, error) {
	stream, err := session.OpenStream()
	if err != nil {
		return nil, fmt.Errorf("open a stream: %w", err)
	}
	return newConn(stream), nil
}
