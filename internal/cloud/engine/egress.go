package engine

import (
	"context"
	"net"
)

// Egress connects a sandbox to the outside. Its methods are called concurrently, and their
// arguments cannot be trusted. The connections that Dial and Connect return should have a method
// CloseWrite, as *net.TCPConn does. The engine calls CloseWrite when a program in the sandbox ends
// its output.
type Egress interface {
	// Dial connects to a host for the proxy in the sandbox. The host is a name or an address. If the
	// error has a method Denied() bool that returns true, the proxy reports that the connection was
	// denied.
	Dial(ctx context.Context, host string, port uint16) (net.Conn, error)
	// Connect connects to the destination of inside, a connection of a program in the sandbox. The
	// destination is the local address of inside. Connect may read from inside before it decides; it
	// must then send the bytes that it read to the destination. If Connect fails, the caller resets
	// inside.
	Connect(ctx context.Context, inside *net.TCPConn) (net.Conn, error)
	// Answer answers a DNS query. The query and the answer are DNS messages. The answer has at most
	// 512 bytes; nil means no answer. If ctx has ended, Answer returns a failure at once.
	Answer(ctx context.Context, query []byte) []byte
	// Closed reports whether everything is denied, so that connections are refused before they are
	// made.
	Closed() bool
}
