package engine

import (
	"context"
	"net"
)

// Egress connects a sandbox to the outside. Its methods are called concurrently,
// and their arguments cannot be trusted. The connections that Dial and Connect
// return should have CloseWrite, as *net.TCPConn does, to pass on that the inside
// has no more to send.
type Egress interface {
	// Dial connects to a host, a name or an address, on behalf of the proxy inside.
	// An error that has a method Denied() bool is reported to the proxy as denied
	// if the method returns true.
	Dial(ctx context.Context, host string, port uint16) (net.Conn, error)
	// Connect connects to the address that the program at the other end of inside
	// wanted to reach: the local address of inside. It may read what it needs to
	// know from inside, and must then pass that on. After an error inside is reset.
	Connect(ctx context.Context, inside *net.TCPConn) (net.Conn, error)
	// Answer answers a DNS query. Query and answer are in the format of DNS, and
	// the answer fits into 512 bytes; nil means no answer. If ctx has ended it
	// immediately answers that it cannot.
	Answer(ctx context.Context, query []byte) []byte
	// Closed reports whether nothing may be reached, so that connections are
	// refused before they are made.
	Closed() bool
}
