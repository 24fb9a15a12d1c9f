//go:build linux

package room

import (
	"context"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/link"
)

// traffic contains the connections into a sandbox and out of it.
type traffic struct {
	slots    link.PortSlots // count the open streams
	sockets  chan sockets   // the room's answers to requests for sockets
	entrance link.Entrance  // the connections into the sandbox

	budget   *flowBudget    // divides the connections out of sandboxes among the sandboxes of the room
	dialling link.Dialling  // counts the connections out of the sandbox that are not established yet
	carried  flowCount      // counts the connections out of the sandbox
	exit     *exit          // outer end of the egress path; nil: the only way out is envd's proxy
	noExit   string         // the reason why the sandbox has no exit, if an exit was tested
	access   *link.Access   // connects the sandbox to the network
	refusing atomic.Bool    // true once refused connections have been logged
	flows    sync.WaitGroup // the goroutines that serve envd and the connections

	// warn logs that connections out of the sandbox are refused.
	warn func(ctx context.Context, err error)
}

// newTraffic returns the traffic of a sandbox without connections.
func newTraffic(budget *flowBudget, warn func(ctx context.Context, err error)) traffic {
	return traffic{
		slots:    link.NewPortSlots(link.MaxStreams, link.MaxStreams),
		sockets:  make(chan sockets, link.MaxStreams),
		budget:   budget,
		dialling: link.NewDialling(),
		warn:     warn,
	}
}

// sockets are the room's answer to a request for sockets: one for IPv4, and maybe one for IPv6. No
// program of the sandbox has had access to these sockets.
type sockets struct {
	files []*os.File
	err   error
}

// enter counts a connection into the sandbox. A freeze cuts the counted connections.
func (t *traffic) enter(conn halfCloser, release func()) (*stream, error) {
	leave, err := t.entrance.Enter(func() { _ = conn.Close() }) // its user still has to close the stream
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &stream{conn, func() {
		leave()
		release()
	}}, nil
}

// stream is a connection that is counted until it is closed.
type stream struct {
	halfCloser
	release func()
}

// halfCloser is a connection that can be closed in one direction.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

func (s *stream) Close() error {
	defer s.release()
	return s.halfCloser.Close()
}

// tooMany logs once per sandbox that its connections are refused.
func (t *traffic) tooMany(ctx context.Context, err error) {
	if t.refusing.CompareAndSwap(false, true) {
		t.warn(ctx, err)
	}
}

// end closes the way out of the sandbox, and waits until nothing serves its connections.
func (t *traffic) end() {
	t.exit.close()
	t.flows.Wait()
}
