// Package pty opens pseudo-terminals on Linux.
package pty
