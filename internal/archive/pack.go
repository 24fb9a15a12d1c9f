// Package archive packs directories into tar streams and unpacks them safely: a stream
// that comes from a sandbox may contain anything.
package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Packer writes a directory as a tar stream: directories, files and symbolic links, with modes and
// times. It omits owners, because the owners of this machine have no meaning in a sandbox.
type Packer struct {
	Root    *os.Root
	Exclude func(name string, entry fs.DirEntry) bool // reports whether to leave an entry out; may be nil
	// called for entries that are neither directory, file nor symbolic link
	Skipped func(name, why string)

	tar *Writer

	// closed contains those parent directories of the last entry whose mode forbids writing. Their
	// headers are written to the stream after their contents. In some sandboxes, tar runs as root
	// without root's privileges, and could not unpack files into such a directory.
	closed []*tar.Header
}

// Pack writes the whole directory to w.
func (p *Packer) Pack(ctx context.Context, w io.Writer) error {
	p.tar = NewWriter(w)
	err := fs.WalkDir(p.Root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case name == ".":
			return nil
		}
		if err := p.leave(name); err != nil {
			return err
		}
		if p.Exclude != nil && p.Exclude(name, entry) {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		return p.add(name, entry)
	})
	if err != nil {
		return err
	}
	return errors.Join(p.leave(""), p.tar.Close())
}

// leave writes the directories in p.closed that do not contain name. If name is empty, it writes
// all of them.
func (p *Packer) leave(name string) error {
	for len(p.closed) > 0 {
		last := p.closed[len(p.closed)-1]
		if strings.HasPrefix(name, last.Name) {
			return nil
		}
		p.closed = p.closed[:len(p.closed)-1]
		if err := p.tar.WriteHeader(last); err != nil {
			return err
		}
	}
	return nil
}

func (p *Packer) add(name string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	header := &tar.Header{Name: name, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX}
	switch info.Mode().Type() {
	case fs.ModeDir:
		header.Typeflag, header.Name = tar.TypeDir, name+"/"
		if header.Mode&0o700 != 0o700 {
			p.closed = append(p.closed, header)
			return nil
		}
	case fs.ModeSymlink:
		header.Typeflag = tar.TypeSymlink
		if header.Linkname, err = p.Root.Readlink(filepath.FromSlash(name)); err != nil {
			return err
		}
		header.Linkname = filepath.ToSlash(header.Linkname)
	case 0:
		return p.addFile(header)
	default:
		p.Skipped(name, "it is neither a file, a directory nor a link")
		return nil
	}
	return p.tar.WriteHeader(header)
}

func (p *Packer) addFile(header *tar.Header) error {
	file, err := p.Root.Open(filepath.FromSlash(header.Name))
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat() // the size of the open file, not of the listed one
	if err != nil {
		return err
	}
	header.Typeflag, header.Size = tar.TypeReg, info.Size()
	if err := p.tar.WriteHeader(header); err != nil {
		return err
	}
	// A file that has grown is sent up to the size in its header. A file that has shrunk
	// is an error.
	_, err = io.CopyN(p.tar, file, header.Size)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s became shorter while it was read", header.Name)
	}
	return err
}
