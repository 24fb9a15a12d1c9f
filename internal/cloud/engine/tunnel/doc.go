// Package tunnel carries the connections into and out of a sandbox over one stream of bytes. It is
// for engines whose sandboxes share no sockets with the server: a container's daemon may be on
// another machine. The server has one end ([Server]), the daemon inside has the other ([Guest]);
// yamux multiplexes many connections over the stream.
//
// The server treats the other end as hijacked: it bounds the data that it reads and buffers, trusts
// no message, and ends a stream that breaks the protocol. It checks each frame before yamux sees
// it, and ends a stream whose other end does not read the answer to a wrong frame.
package tunnel
