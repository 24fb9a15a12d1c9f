// Package localtls provides TLS for the names of the local cloud. A [Listener] serves http and
// https on one port, and distinguishes the two protocols by the first byte of a connection. An
// [Authority] issues certificates for the requested names, and writes the files that make clients
// trust these certificates.
package localtls
