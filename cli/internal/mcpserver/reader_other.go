//go:build !unix

package mcpserver

import "io"

// watchReader watches nothing: this system does not report that the reader of a pipe has closed its end.
func watchReader(io.Writer, func()) (stop func()) { return func() {} }
