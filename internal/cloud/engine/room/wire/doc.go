// Package wire is what the server, the room and its sandboxes say to each other: JSON
// over SOCK_SEQPACKET Unix sockets, with descriptors, and streams that such messages
// carry.
package wire
