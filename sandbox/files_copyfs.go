package sandbox

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/e2bctl/e2bctl/internal/archive"
)

// CopyFS copies a file system, such as an [embed.FS], into a directory of the sandbox, as
// [os.CopyFS] does: the directory is created if it is missing, and a file that exists is not
// replaced but an [fs.ErrExist]. Everything else is copied then, too; after other errors a part
// may have been. All files are the default user's, executable where they were, otherwise with the
// modes of new files. Symbolic links are copied as they are, wherever they lead. Anything else,
// such as a device, is an [fs.ErrInvalid].
//
// The content is sent as an archive, through a file in the user's home, and unpacked by
// the sandbox's tar. It is not held in memory. A file that changes its length meanwhile is
// an error. The limits of time are ctx and [DefaultIdleTimeout]. [Files.UploadDir] has
// more settings.
func (f *Files) CopyFS(ctx context.Context, fsys fs.FS, dir string) error {
	ctx, end, err := f.sb.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	file := ".e2bctl-" + rand.Text() + ".tar"
	pack := func(ctx context.Context, w io.Writer) error { return archive.PackFS(ctx, fsys, w) }
	if err := f.sendArchive(ctx, pack, file, &FileParams{}); err != nil {
		f.discard(ctx, file, "")
		return f.failed(ctx, "copy", dir, err)
	}
	err = f.dirCommand(ctx, "", copyLine, map[string]string{"DIR": dir, "ARCHIVE": file}, nil)
	if err == nil {
		return nil
	}
	exit, ran := errors.AsType[*ExitError](err)
	switch {
	case !ran:
		f.discard(ctx, file, "")
	case slices.ContainsFunc(strings.Split(exit.Result.Stderr, "\n"), saysExists):
		err = &existsError{exit}
	}
	return f.failed(ctx, "copy", dir, err)
}

// copyLine unpacks the archive, which needs no name once it is open, and replaces nothing.
const copyLine = `{ rm -f -- "$ARCHIVE"; export LC_ALL=C; mkdir -p -- "$DIR" && exec tar -x -k -m -o -f - -C "$DIR"; } <"$ARCHIVE"`

// saysExists reports whether a line of mkdir or tar ends with this reason. A file's name, which
// comes before the reason, may contain the same words.
func saysExists(line string) bool { return strings.HasSuffix(line, ": File exists") }

// existsError is a copy that found files in its way: what tar says names them.
type existsError struct{ *ExitError }

func (*existsError) Is(target error) bool { return target == fs.ErrExist }
func (e *existsError) Unwrap() error      { return e.ExitError }
