// Package hello finds out whether this process was re-executed by the local cloud, and if so says
// hello to the server. It imports next to nothing, so it is initialised before nearly all of the
// program: the server can already answer while the rest is initialised.
package hello
