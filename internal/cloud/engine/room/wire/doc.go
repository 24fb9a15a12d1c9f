// Package wire defines the messages between the server, the room and its sandboxes. Messages are
// JSON over SOCK_SEQPACKET Unix sockets, and may come with descriptors. Some of these descriptors
// are streams.
package wire
