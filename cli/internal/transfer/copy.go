package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

// stream is the path that means stdin or stdout in place of a file of this machine.
const stream = "-"

// End is the source or the destination of a copy.
type End struct {
	// Store is the store that has Path; nil means this machine, on which the path - is stdin or
	// stdout.
	Store Store
	Path  string
}

// Copy copies one file, or one directory with all of its content.
//
// One rule decides the destination: if it ends in a slash, or is a directory, the source is copied
// into it, under the name of the source. Otherwise the copy gets the path of the destination
// itself. A source that ends in /. means the content of a directory. The content has no name, so it
// is copied directly into the destination.
type Copy struct {
	// IO contains the streams for the path -. The names of skipped files are written to IO.Err.
	IO *cmdutil.IOStreams
	// Command is the command that usage errors about the arguments refer to.
	Command *cobra.Command
	// Recursive copies directories, too.
	Recursive bool
	// OnlyContent copies the content of a directory, as if every source ended in "/.".
	OnlyContent bool
	// MaxBytes and MaxFiles bound a directory that is copied out of a store.
	MaxBytes cmdutil.Size
	MaxFiles cmdutil.Count
	// BoundFiles makes MaxBytes bound a single file, too.
	BoundFiles bool
	// Progress is called with the number of bytes moved so far in one transfer. May be nil.
	Progress func(bytes int64)
}

// Run copies from one end to the other.
func (c *Copy) Run(ctx context.Context, from, to End) error {
	mode, err := from.mode(ctx)
	if err != nil {
		return err
	}
	if mode.IsDir() && !c.Recursive {
		return cmdutil.Usagef(c.Command, "%s is a directory: copy it with -r", from.Path)
	}
	if mode.IsDir() && to.isStream() {
		return cmdutil.Usagef(c.Command, "%s is a directory: name one to copy it to", from.Path)
	}
	if to.Path, err = c.destination(ctx, from, mode.IsDir(), to); err != nil {
		return err
	}
	if mode.IsDir() {
		return c.bounded(c.directory(ctx, from.Path, from.Store, to.Path, to.Store))
	}
	return c.bounded(c.file(ctx, from, to, mode))
}

// destination returns the path of the copy.
func (c *Copy) destination(ctx context.Context, from End, isDir bool, to End) (string, error) {
	name := from.name()
	switch {
	case to.isStream(), name == "" && !from.isStream(), isDir && c.OnlyContent:
		return to.Path, nil
	case !to.endsInSlash() && !to.isDir(ctx):
		return to.Path, nil
	case from.isStream():
		return "", cmdutil.Usagef(c.Command, "stdin has no name: name the file to copy it to")
	case to.Store == nil:
		return filepath.Join(to.Path, name), nil
	}
	return path.Join(to.Path, name), nil
}

// directory copies the content of a directory into another one. Between sandboxes it sends the
// content as a stream. Between other stores it copies through a temporary directory of this
// machine, and leaves out links to targets outside of the directory.
func (c *Copy) directory(ctx context.Context, source string, from Store, target string, to Store) (err error) {
	switch {
	case from == nil:
		return to.UploadDir(ctx, source, target, c)
	case to == nil:
		return from.DownloadDir(ctx, source, target, c)
	}
	if a, ok := from.(*sandboxStore); ok {
		if b, ok := to.(*sandboxStore); ok {
			return c.stream(ctx, a, source, b, target)
		}
	}
	between, err := os.MkdirTemp("", "e2bctl-copy-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(between)) }()
	if err := from.DownloadDir(ctx, source, between, c); err != nil {
		return err
	}
	return to.UploadDir(ctx, between, target, c)
}

// stream copies the content of a directory from one sandbox to another, without using the disk of
// this machine.
func (c *Copy) stream(ctx context.Context, from *sandboxStore, source string, to *sandboxStore, target string) error {
	r, w := io.Pipe()
	reading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	read := make(chan error, 1)
	go func() {
		err := from.readTar(reading, source, w)
		w.CloseWithError(err)
		read <- err
	}()
	err := to.writeTar(ctx, target, r, c)
	r.CloseWithError(err)
	if err != nil {
		stop(err) // a source that sends nothing does not notice that its pipe is closed
	}
	// If both failed because reading did, the second error contains the first.
	if readErr := <-read; readErr != nil && (err == nil || errors.Is(err, readErr)) {
		return readErr
	}
	return err
}

// file copies one file.
func (c *Copy) file(ctx context.Context, from, to End, mode fs.FileMode) error {
	r, end, err := c.open(ctx, from)
	if err != nil {
		return err
	}
	defer end()
	if c.BoundFiles && from.Store != nil {
		r = &bounded{r: r, left: int64(c.MaxBytes), limit: c.MaxBytes}
	}
	switch {
	case to.isStream():
		_, err = io.Copy(c.IO.Out, Counted(r, c.Progress))
		return err
	case to.Store == nil:
		return writeLocal(to.Path, Counted(r, c.Progress), mode)
	}
	return to.Store.Write(ctx, to.Path, r, mode, c.Progress)
}

// open opens a file. end closes the file. The reader is the file itself, so that the sender can
// determine its length.
func (c *Copy) open(ctx context.Context, from End) (r io.Reader, end func(), err error) {
	if from.isStream() {
		in := c.IO.Reading(ctx)
		return in, func() { _ = in.Close() }, nil
	}
	var file io.ReadCloser
	if from.Store == nil {
		file, err = os.Open(from.Path)
	} else {
		file, err = from.Store.Open(ctx, from.Path)
	}
	if err != nil {
		return nil, nil, err
	}
	return file, func() { _ = file.Close() }, nil // it was read only
}

// bounded returns err. If err is about a bound, it adds the names of the flags that raise the
// bound.
func (c *Copy) bounded(err error) error {
	if errors.Is(err, sandbox.ErrTooLarge) {
		return fmt.Errorf("%w (--max-download %v, --max-files %v)", err, &c.MaxBytes, &c.MaxFiles)
	}
	return err
}

// skipped reports that a file was left out.
func (c *Copy) skipped(name, why string) {
	fmt.Fprintf(c.IO.Err, "skipped %s: %s\n", cmdutil.Printable(name), cmdutil.Printable(why))
}

func (e End) isStream() bool { return e.Store == nil && e.Path == stream }

// mode returns the mode of the file at the path, and follows links. It returns 0 for a stream.
func (e End) mode(ctx context.Context) (fs.FileMode, error) {
	switch {
	case e.isStream():
		return 0, nil
	case e.Store != nil:
		return e.Store.Mode(ctx, e.Path)
	}
	info, err := os.Stat(e.Path)
	if err != nil {
		return 0, err
	}
	return info.Mode(), nil
}

// isDir reports whether the end is known to be a directory. If isDir cannot determine that, it
// returns false, and the later write reports the reason.
func (e End) isDir(ctx context.Context) bool {
	mode, err := e.mode(ctx)
	return err == nil && mode.IsDir()
}

// name returns the name that a copy of the path has in another directory, or "" for the
// content of a directory.
func (e End) name() string {
	var name string
	if e.Store == nil {
		name = filepath.Base(e.Path)
	} else {
		name = path.Base(e.Path)
	}
	if name == "." || name == ".." || strings.Trim(name, `/\`) == "" {
		return ""
	}
	return name
}

func (e End) endsInSlash() bool {
	return strings.HasSuffix(e.Path, "/") || e.Store == nil && strings.HasSuffix(e.Path, string(filepath.Separator))
}

// bounded is a reader that fails when more bytes are read than a bound allows.
type bounded struct {
	r     io.Reader
	left  int64
	limit cmdutil.Size
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p[:min(int64(len(p)), b.left+1)])
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("%w: the file has more than %d bytes", sandbox.ErrTooLarge, int64(b.limit))
	}
	return n, err
}
