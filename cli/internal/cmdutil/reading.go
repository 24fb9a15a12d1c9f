package cmdutil

import (
	"context"
	"io"
	"os"
)

// Reading returns In, whose reads end with ctx. A read of a terminal or a pipe cannot be
// cancelled: one that has begun continues until the process ends, soon after. A regular file is
// returned as it is, so that its length can be asked for. Close ends reads; In stays open.
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
