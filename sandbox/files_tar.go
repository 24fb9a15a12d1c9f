package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"
)

// TarParams sets how a tar stream is copied.
type TarParams struct {
	// User is the user at whose home a relative path starts, with whose rights files are
	// read, and who owns new files. Empty means the sandbox's default user.
	User string
	// IdleTimeout is that of [FileParams], for [Files.WriteTar].
	IdleTimeout time.Duration
	// Progress is called with the number of bytes of the stream moved so far, as often as
	// that of [FileParams]. May be nil.
	Progress func(bytes int64)
}

// ReadTar writes a file or directory of the sandbox to w as a tar stream, made by the
// sandbox's tar. Names in it begin with the last name of path; of "dir/." it has the
// content alone. Symbolic links are kept, and not followed. If ReadTar fails, w may have
// got the beginning of a stream.
//
// The stream comes from the sandbox and is not checked: it may be no archive, and unpacking
// it without care may write anywhere. [Files.DownloadDir] unpacks with care.
func (f *Files) ReadTar(ctx context.Context, path string, w io.Writer, p *TarParams) error {
	p = cmp.Or(p, &TarParams{})
	ctx, end, err := f.sb.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	progress := newProgress(p.Progress)
	path = cmp.Or(strings.TrimRight(path, "/"), path)
	err = f.dirCommand(ctx, p.User, packLine, map[string]string{"SOURCE": path}, counted{w, progress})
	if exit, ok := errors.AsType[*ExitError](err); ok && exit.Result.ExitCode == 102 {
		err = fs.ErrNotExist
	}
	if err != nil {
		return f.failed(ctx, "download", path, err)
	}
	progress.finish()
	return nil
}

// packLine packs a file or directory under its last name.
const packLine = `[ -e "$SOURCE" ] || [ -L "$SOURCE" ] || exit 102
last=${SOURCE##*/}
case $last in
'' | . | ..) exec tar -c -f - -C "$SOURCE" . ;;
esac
exec tar -c -f - -C "${SOURCE%/*}/" -- "$last"`

// WriteTar unpacks a tar stream, which is not compressed, into a directory of the sandbox,
// which is created if it is missing. Existing files of the same name are replaced and
// others stay. The stream is sent and unpacked as [Files.UploadDir] does it; modes, times
// and links are those of the archive. A stream that was cut off, so that it lacks the two
// blocks of zeros at its end, is [io.ErrUnexpectedEOF], and nothing of it is unpacked.
func (f *Files) WriteTar(ctx context.Context, dir string, r io.Reader, p *TarParams) error {
	p = cmp.Or(p, &TarParams{})
	ctx, end, err := f.sb.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	return f.unpackInto(ctx, dir, p.User, func(ctx context.Context, file string) error {
		return f.WriteFrom(ctx, file, &wholeTar{r: r}, &FileParams{User: p.User, IdleTimeout: p.IdleTimeout, Progress: p.Progress})
	})
}

// wholeTar is a tar stream whose end is an error if it was cut off, which tar itself does
// not notice between two files.
type wholeTar struct {
	r     io.Reader
	zeros int // the number of zero bytes that came last
}

// tarEnd is the least number of zero bytes at the end of a tar stream.
const tarEnd = 2 * 512

func (w *wholeTar) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	rest := bytes.TrimRight(p[:n], "\x00")
	if len(rest) > 0 {
		w.zeros = 0
	}
	w.zeros = min(w.zeros+n-len(rest), tarEnd)
	if errors.Is(err, io.EOF) && w.zeros < tarEnd {
		err = fmt.Errorf("the tar stream was cut off: %w", io.ErrUnexpectedEOF)
	}
	return n, err
}
