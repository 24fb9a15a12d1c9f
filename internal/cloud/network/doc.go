// Package network is the way out of a sandbox. A sandbox has no network of its
// own but its loopback: inside it a [Proxy] listens there, and asks the server
// for each connection. The server's [Dialer] resolves the name, checks what it
// resolved to, and dials that address; so a name that resolves differently the
// next time reaches nothing that was not checked.
package network
