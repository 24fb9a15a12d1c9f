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

// CopyFS copies a file system, such as an [embed.FS], into a directory of the sandbox, like
// [os.CopyFS]. It creates a missing directory. It does not replace existing files: if there are
// any, it copies all other files and returns an [fs.ErrExist]. After other errors, some of the
// files may have been copied. All files belong to the default user. They have the default mode of
// new files, and are executable if the originals are. Symbolic links are copied unchanged, wherever
// they lead. For other kinds of files, such as a device, the error is [fs.ErrInvalid].
//
// The content is sent as an archive, which is stored in the user's home and unpacked by the
// sandbox's tar. The archive is not kept in memory. CopyFS returns an error if the length of a file
// changes during the copy. ctx and [DefaultIdleTimeout] limit the time. [Files.UploadDir] has more
// settings.
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

// copyLine unpacks the archive without replacing files. It deletes the archive file as soon as it
// has opened it.
const copyLine = `{ rm -f -- "$ARCHIVE"; export LC_ALL=C; mkdir -p -- "$DIR" && exec tar -x -k -m -o -f - -C "$DIR"; } <"$ARCHIVE"`

// saysExists reports whether a line that mkdir or tar printed ends with the reason "File exists".
// It checks only the end, because a file's name may contain the same words.
func saysExists(line string) bool { return strings.HasSuffix(line, ": File exists") }

// existsError reports that a copy found existing files. The output of tar names these files.
type existsError struct{ *ExitError }

func (*existsError) Is(target error) bool { return target == fs.ErrExist }
func (e *existsError) Unwrap() error      { return e.ExitError }
