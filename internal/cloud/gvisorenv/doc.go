// Package gvisorenv finds runsc, the program of gVisor, or builds it with the Go of this
// machine. This module does not depend on gVisor, and the program does not link any part of it.
package gvisorenv
