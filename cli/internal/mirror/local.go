package mirror

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"

	"github.com/e2bctl/e2bctl/internal/archive"
)

// errShrunk means that a file got shorter while it was read. The data sent so far is discarded.
var errShrunk = errors.New("the file became shorter while it was read")

// pack writes entries of this machine as a tar stream.
func pack(ctx context.Context, root *os.Root, names []string, entries tree, w io.Writer) error {
	stream := archive.NewWriter(w)
	for _, name := range names {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := packEntry(stream, root, name, entries[name]); err != nil {
			return err
		}
	}
	return stream.Close()
}

func packEntry(stream *archive.Writer, root *os.Root, name string, e entry) error {
	// The format keeps fractions of a second.
	header := &tar.Header{Name: name, Mode: int64(e.perm), ModTime: e.modTime, Format: tar.FormatPAX}
	switch e.kind {
	case fs.ModeDir:
		header.Typeflag, header.Name = tar.TypeDir, name+"/"
		return stream.WriteHeader(header)
	case fs.ModeSymlink:
		header.Typeflag, header.Linkname = tar.TypeSymlink, e.target
		return stream.WriteHeader(header)
	}
	file, err := root.Open(name)
	if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it was read only
	header.Typeflag, header.Size = tar.TypeReg, e.size
	if err := stream.WriteHeader(header); err != nil {
		return err
	}
	n, err := io.Copy(stream, io.LimitReader(file, e.size))
	if err == nil && n < e.size {
		err = &fs.PathError{Op: "read", Path: name, Err: errShrunk}
	}
	return err
}

// receive unpacks an archive from a sandbox into the directory root. It first unpacks the archive
// into a staging directory, and then moves complete entries to their paths. An interrupted transfer
// thus leaves no incomplete file.
func (m *Mirror) receive(ctx context.Context, root *os.Root, p *plan, from tree, stream io.Reader) (err error) {
	staging := stagingPrefix + rand.Text()
	if err := root.Mkdir(staging, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.RemoveAll(staging)) }()
	staged, err := root.OpenRoot(staging)
	if err != nil {
		return err
	}
	defer func() { _ = staged.Close() }() // every file of it has been closed
	u := archive.Unpacker{Root: staged, MaxBytes: m.MaxBytes, MaxFiles: m.MaxFiles, Skipped: m.Skipped}
	if err := u.Unpack(ctx, stream); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, stream); err != nil { // tar pads its end
		return err
	}
	var dirs []string
	for _, name := range p.send {
		if from[name].isDir() {
			dirs = append(dirs, name)
			if err := makeDir(root, name); err != nil {
				return err
			}
			continue
		}
		info, err := staged.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			continue
		}
		if err == nil && info.IsDir() {
			err = fmt.Errorf("the sandbox sent a directory in place of %q", name)
		}
		if err == nil {
			err = root.Rename(path.Join(staging, name), name)
		}
		if err != nil {
			return err
		}
	}
	for _, name := range slices.Backward(dirs) {
		e := from[name]
		if err := errors.Join(root.Chtimes(name, e.modTime, e.modTime), root.Chmod(name, e.perm)); err != nil {
			return err
		}
	}
	return nil
}

// makeDir creates a directory in which this process can create files. If the directory exists but
// does not allow that, makeDir changes its mode.
func makeDir(root *os.Root, name string) error {
	err := root.Mkdir(name, 0o700)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := root.Lstat(name)
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "mkdir", Path: name, Err: syscall.ENOTDIR}
	}
	if err == nil && info.Mode()&0o700 != 0o700 {
		err = root.Chmod(name, info.Mode().Perm()|0o700)
	}
	return err
}

// removeLocal removes entries, each directory after its content. It does not remove a directory
// that is still not empty.
func removeLocal(root *os.Root, names []string) error {
	for _, name := range names {
		err := root.Remove(name)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		info, statErr := root.Lstat(name)
		if statErr != nil || !info.IsDir() || !errors.Is(err, fs.ErrExist) { // ENOTEMPTY is that, too
			return err
		}
	}
	return nil
}
