// Package hello finds out whether the local cloud re-executed this process, and if so sends hello to
// the server. It imports almost no packages, so it is initialised before almost all other packages of
// the program. Therefore the server can answer while the other packages are initialised.
package hello
