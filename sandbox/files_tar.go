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

// TarParams sets how to copy a tar stream.
type TarParams struct {
	// User is the owner of new files, and the user whose rights apply to reading. Relative
	// paths begin at this user's home. Empty means the sandbox's default user.
	User string
	// IdleTimeout has the meaning of [FileParams].IdleTimeout. Only [Files.WriteTar] uses it.
	IdleTimeout time.Duration
	// Progress is called with the number of bytes of the stream moved so far, as often as
	// [FileParams].Progress. Progress may be nil.
	Progress func(bytes int64)
}

// ReadTar writes a file or directory of the sandbox to w as a tar stream, which the sandbox's tar
// creates. Names in the stream begin with the last element of path. For "dir/." the stream contains
// only the content of the directory. Symbolic links are kept, and not followed. If ReadTar fails, w
// may have received the beginning of a stream.
//
// The stream comes from the sandbox and is not checked. It may be something other than an archive,
// and a program that unpacks it carelessly may write anywhere. [Files.DownloadDir] unpacks safely.
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

// packLine packs a file or directory under the last element of its path.
const packLine = `[ -e "$SOURCE" ] || [ -L "$SOURCE" ] || exit 102
last=${SOURCE##*/}
case $last in
'' | . | ..) exec tar -c -f - -C "$SOURCE" . ;;
esac
exec tar -c -f - -C "${SOURCE%/*}/" -- "$last"`

// WriteTar unpacks an uncompressed tar stream into a directory of the sandbox. It creates dir if it
// is missing, replaces existing files that have the same name, and keeps other files. It sends and
// unpacks the stream like [Files.UploadDir]. Modes, times and links are those of the stream. The
// error is [io.ErrUnexpectedEOF] if the stream was cut off and lacks the two blocks of zeros at its
// end. In that case nothing is unpacked.
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

// wholeTar reads a tar stream and returns an error if it was cut off. The program tar does not
// notice a cut between two files.
type wholeTar struct {
	r     io.Reader
	zeros int // the number of consecutive zero bytes at the end of the bytes read so far
}

// tarEnd is the minimum number of zero bytes at the end of a tar stream.
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
