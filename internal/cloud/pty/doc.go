// Package pty opens pseudo-terminals, for programs on Linux.
package pty
