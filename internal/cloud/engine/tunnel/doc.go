// Package tunnel carries the connections into and out of a sandbox over one stream of bytes. It is
// for engines whose sandboxes share no sockets with the server, because the daemon of a container
// may be on another machine. The server has one end of the stream ([Server]). The daemon inside the
// sandbox has the other end ([Guest]). yamux multiplexes many connections over the stream.
//
// The server treats the other end as hijacked: it bounds the data that it reads and buffers, trusts
// no message, and ends a stream that breaks the protocol. It checks each frame before it passes the
// frame to yamux. It ends a stream if the other end does not read the answer to a wrong frame.
package tunnel
