// Package network is the way out of a sandbox: the server that resolves, checks
// and dials, and the proxy inside that asks it to.
package network
