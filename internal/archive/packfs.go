package archive

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"io/fs"
)

// PackFS writes a file system to w as a tar stream. Modes are those of os.CopyFS: everybody may
// read and write each file, and may execute it if anybody could in fsys. The umask of the program
// that unpacks the stream applies to these modes. PackFS omits times and owners. For a device, a
// socket or a pipe it returns the error [fs.ErrInvalid].
func PackFS(ctx context.Context, fsys fs.FS, w io.Writer) error {
	archive := NewWriter(w)
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case name == ".":
			return nil
		case entry.IsDir():
			return writeHeader(archive, name, &tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o777})
		case entry.Type() == fs.ModeSymlink:
			target, err := fs.ReadLink(fsys, name)
			if err != nil {
				return err
			}
			return writeHeader(archive, name, &tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777})
		case !entry.Type().IsRegular():
			return &fs.PathError{Op: "copy", Path: name, Err: fs.ErrInvalid}
		}
		return packFile(archive, fsys, name)
	})
	if err != nil {
		return err
	}
	return archive.Close()
}

// writeHeader begins an entry. It adds the name to the error, because the error of archive/tar does
// not contain it.
func writeHeader(archive *Writer, name string, header *tar.Header) error {
	if err := archive.WriteHeader(header); err != nil {
		return &fs.PathError{Op: "copy", Path: name, Err: err}
	}
	return nil
}

func packFile(archive *Writer, fsys fs.FS, name string) error {
	file, err := fsys.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it was read only
	info, err := file.Stat()
	if err != nil {
		return err
	}
	mode := int64(0o666 | info.Mode().Perm()&0o111)
	if err := writeHeader(archive, name, &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: info.Size(), Mode: mode}); err != nil {
		return err
	}
	n, err := io.Copy(archive, file)
	if err == nil && n < info.Size() {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("%s, of %d bytes: %w", name, info.Size(), err)
	}
	return nil
}
