// Package tlsdoor lets one port speak both http and https: it tells them apart by
// the first byte of a connection, makes certificates for the requested names, and
// writes the files that make clients trust them.
package tlsdoor
