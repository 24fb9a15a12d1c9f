// Package gvisorenv finds runsc, the program of gVisor, and builds it with the Go of this
// machine. It is no dependency of this module: nothing of it is linked into the program.
package gvisorenv
