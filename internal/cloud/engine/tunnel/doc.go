// Package tunnel carries the connections into and out of a sandbox over one stream of bytes,
// for engines whose sandboxes share no sockets with the server: a container of a daemon that
// may be on another machine. The server has one end ([Server]), the daemon inside the other
// ([Guest]); many connections go over the stream at once, by yamux.
//
// The server treats the other end as hijacked: it bounds what it reads and how much waits,
// follows nothing that it is told, and ends a stream that breaks the protocol. It checks
// each frame before yamux sees it, and ends a stream whose other end does not read the
// answer to a frame that was wrong.
package tunnel
