// Package gvisorenv finds runsc, the program of gVisor, and builds it with the Go of this
// machine. This module does not depend on gVisor: none of it is linked into the program.
package gvisorenv
