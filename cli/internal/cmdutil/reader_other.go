//go:build !unix

package cmdutil

import "io"

// WatchReader watches nothing: this system does not report that the reader of a pipe has closed its end.
func WatchReader(io.Writer, func()) (stop func()) { return func() {} }
