// Package tlsdoor serves http and https on one port. It distinguishes them by the first byte of
// a connection. It issues certificates for the requested names, and writes the files that make
// clients trust these certificates.
package tlsdoor
