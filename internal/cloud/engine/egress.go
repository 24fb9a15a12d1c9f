package engine

import (
	"context"
	"net"
)

// Egress connects a sandbox to the outside. Its methods are called concurrently, and their
// arguments cannot be trusted. The connections that Dial and Connect return should have CloseWrite,
// as *net.TCPConn does, to pass on an end of input from inside.
type Egress interface {
	// Dial connects to a host, a name or an address, on behalf of the proxy inside. The proxy
	// reports an error as denied if it has a method Denied() bool that returns true.
	Dial(ctx context.Context, host string, port uint16) (net.Conn, error)
	// Connect connects to the destination of inside, a connection of a program in the sandbox: its destination
	// is its local address. Connect may read from inside to decide, and must then pass on the bytes read. If
	// Connect fails the caller resets inside.
	Connect(ctx context.Context, inside *net.TCPConn) (net.Conn, error)
	// Answer answers a DNS query. Query and answer are DNS messages, and the answer fits into 512
	// bytes; nil means no answer. If ctx has ended it immediately answers with a failure.
	Answer(ctx context.Context, query []byte) []byte
	// Closed reports whether everything is denied, so that connections are refused before they are
	// made.
	Closed() bool
}
