package cmdutil

import (
	"context"
	"io"
	"os"
)

// Reading returns a reader of In whose reads return when ctx ends. A read of a terminal or a pipe
// cannot be cancelled: a read that has begun continues in the background until the process ends,
// which is expected soon. If In is a regular file, Reading returns the file itself, so that its
// length can be determined. Close ends reads, and leaves In open.
func (ios *IOStreams) Reading(ctx context.Context) io.ReadCloser {
	if file, ok := ios.In.(*os.File); ok {
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			return keptOpen{file}
		}
	}
	r, w := io.Pipe()
	stop := context.AfterFunc(ctx, func() { _ = w.CloseWithError(context.Cause(ctx)) })
	go func() {
		defer stop()
		_, err := io.Copy(w, ios.In)
		_ = w.CloseWithError(err) // nil is the end of the input
	}()
	return r
}

// keptOpen is a file that Close leaves open.
type keptOpen struct{ *os.File }

func (keptOpen) Close() error { return nil }
