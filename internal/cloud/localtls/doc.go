// Package localtls provides TLS for the names of the local cloud. Its listener serves http and
// https on one port. It distinguishes the two protocols by the first byte of a connection. Its
// authority issues certificates for the requested names, and writes the files that make clients
// trust them.
package localtls
