// Package wire defines the messages between the server, the room and its sandboxes: JSON over
// SOCK_SEQPACKET Unix sockets, with descriptors, and streams that such messages carry.
package wire
