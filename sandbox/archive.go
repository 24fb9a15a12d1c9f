package sandbox

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// packer writes a directory as a tar stream: directories, files and symbolic
// links, with modes and times and without owners, which mean nothing in a sandbox.
type packer struct {
	root    *os.Root
	exclude func(name string, entry fs.DirEntry) bool // may be nil
	skipped func(name, why string)                    // what is neither of these
	tar     *tar.Writer

	// closed are the directories on the way to the last entry that nothing could be
	// put into: they are written after what they hold. Where a tar is root without
	// root's rights, as in some sandboxes, it would not get into them otherwise.
	closed []*tar.Header
}

func (p *packer) pack(ctx context.Context, w io.Writer) error {
	p.tar = tar.NewWriter(w)
	err := fs.WalkDir(p.root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
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
		if p.exclude != nil && p.exclude(name, entry) {
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

// leave writes the closed directories that name is not in; "" is in none.
func (p *packer) leave(name string) error {
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

func (p *packer) add(name string, entry fs.DirEntry) error {
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
		if header.Linkname, err = p.root.Readlink(filepath.FromSlash(name)); err != nil {
			return err
		}
		header.Linkname = filepath.ToSlash(header.Linkname)
	case 0:
		return p.addFile(header)
	default:
		p.skipped(name, "it is neither a file, a directory nor a link")
		return nil
	}
	return p.tar.WriteHeader(header)
}

func (p *packer) addFile(header *tar.Header) error {
	file, err := p.root.Open(filepath.FromSlash(header.Name))
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat() // the size of what was opened, not of what was listed
	if err != nil {
		return err
	}
	header.Typeflag, header.Size = tar.TypeReg, info.Size()
	if err := p.tar.WriteHeader(header); err != nil {
		return err
	}
	// A file that grows is sent as long as it was; one that shrinks is an error.
	_, err = io.CopyN(p.tar, file, header.Size)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s became shorter while it was read", header.Name)
	}
	return err
}

// maxArchiveName bounds a path in an archive, as the system bounds its own.
const maxArchiveName = 4096

// unpacker writes a tar stream, which a sandbox made and which may therefore hold
// anything, below root. Nothing is written outside of root: names that leave it
// are an error, and links that do are skipped, as are devices and the like. Modes
// lose their setuid and setgid bits.
type unpacker struct {
	root     *os.Root
	maxBytes int64 // of all files together; less than 0: no bound
	maxFiles int64 // entries of all kinds; less than 0: no bound
	skipped  func(name, why string)

	bytes, files int64
	// open are the directories on the way to the last entry whose mode and time
	// are still to be set: with them set, nothing could be put in, or it would
	// change the time. So this is never more than one path has parts.
	open []tar.Header
}

func (u *unpacker) unpack(ctx context.Context, r io.Reader) error {
	tr := tar.NewReader(r)
	for {
		header, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return u.leave("")
		}
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := u.entry(tr, header); err != nil {
			return err
		}
	}
}

// entry checks one entry against what is allowed, and writes it.
func (u *unpacker) entry(tr *tar.Reader, header *tar.Header) error {
	if len(header.Name) > maxArchiveName || len(header.Linkname) > maxArchiveName {
		return fmt.Errorf("the archive has a name of %d bytes: the bound is %d", max(len(header.Name), len(header.Linkname)), maxArchiveName)
	}
	name := filepath.FromSlash(path.Clean(header.Name))
	if name != "." && !filepath.IsLocal(name) {
		return fmt.Errorf("the archive names %q, which is outside of the target", header.Name)
	}
	if u.files++; u.maxFiles >= 0 && u.files > u.maxFiles {
		return fmt.Errorf("%w: more than %d files and directories", ErrTooLarge, u.maxFiles)
	}
	// As claimed, before anything of it is written: holes count as well.
	if u.maxBytes >= 0 && header.Size > u.maxBytes-u.bytes {
		return fmt.Errorf("%w: with %q it has more than %d bytes", ErrTooLarge, header.Name, u.maxBytes)
	}
	u.bytes += header.Size
	if err := u.leave(name); err != nil {
		return err
	}
	if err := u.write(tr, name, header); err != nil {
		return fmt.Errorf("write %q: %w", header.Name, err)
	}
	return nil
}

func (u *unpacker) write(tr *tar.Reader, name string, header *tar.Header) error {
	mode := fs.FileMode(header.Mode).Perm()
	if header.Typeflag == tar.TypeDir {
		return u.makeDir(name, mode, header.ModTime)
	}
	if err := u.root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		return u.writeFile(tr, name, mode, header.ModTime)
	case tar.TypeSymlink:
		target := filepath.FromSlash(header.Linkname)
		if filepath.IsAbs(target) || !filepath.IsLocal(filepath.Join(filepath.Dir(name), target)) || u.behindLink(name) {
			u.skipped(header.Name, fmt.Sprintf("it is a link to %s, outside of the target", header.Linkname))
			return nil
		}
		return u.replace(name, func() error { return u.root.Symlink(target, name) })
	case tar.TypeLink:
		target := filepath.FromSlash(path.Clean(header.Linkname))
		if !filepath.IsLocal(target) {
			return fmt.Errorf("it is linked to %q, which is outside of the target", header.Linkname)
		}
		return u.replace(name, func() error { return u.root.Link(target, name) })
	}
	u.skipped(header.Name, "it is neither a file, a directory nor a link")
	return nil
}

// makeDir makes a directory that can be written into, whatever its mode is to be.
func (u *unpacker) makeDir(name string, mode fs.FileMode, modTime time.Time) error {
	if err := u.root.MkdirAll(name, mode|0o700); err != nil || name == "." {
		return err
	}
	u.open = append(u.open, tar.Header{Name: name, Mode: int64(mode), ModTime: modTime})
	// It may have been there.
	if info, err := u.root.Lstat(name); err != nil || !info.IsDir() || info.Mode()&0o700 == 0o700 {
		return err
	}
	return u.root.Chmod(name, mode|0o700)
}

// leave finishes the open directories that name is not in; "" is in none.
func (u *unpacker) leave(name string) error {
	for len(u.open) > 0 {
		dir := u.open[len(u.open)-1]
		if strings.HasPrefix(name, dir.Name+string(filepath.Separator)) {
			return nil
		}
		u.open = u.open[:len(u.open)-1]
		// What came later in the archive may have put something else there.
		if info, err := u.root.Lstat(dir.Name); err != nil || !info.IsDir() {
			continue
		}
		if err := errors.Join(
			u.root.Chtimes(dir.Name, dir.ModTime, dir.ModTime),
			u.root.Chmod(dir.Name, fs.FileMode(dir.Mode)),
		); err != nil {
			return err
		}
	}
	return nil
}

// behindLink says that a directory on the way to name is a link. Then where a
// link at name leads cannot be read off its path.
func (u *unpacker) behindLink(name string) bool {
	for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
		if info, err := u.root.Lstat(dir); err != nil || !info.IsDir() {
			return true
		}
	}
	return false
}

func (u *unpacker) writeFile(tr *tar.Reader, name string, mode fs.FileMode, modTime time.Time) error {
	var file *os.File
	// Created anew: opening what is there could follow a link or write into
	// every name of a hard link.
	err := u.replace(name, func() (err error) {
		file, err = u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		return err
	})
	if err != nil {
		return err
	}
	_, err = io.Copy(file, tr)
	// The umask is for what this machine makes, not for what it copies.
	if err := errors.Join(err, file.Chmod(mode), file.Close()); err != nil {
		return err
	}
	return u.root.Chtimes(name, modTime, modTime)
}

// replace runs create, once more after removing what stands in its way.
func (u *unpacker) replace(name string, create func() error) error {
	err := create()
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := u.root.Remove(name); err != nil {
		return err
	}
	return create()
}
