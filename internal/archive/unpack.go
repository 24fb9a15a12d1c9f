package archive

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// maxArchiveName bounds a path in an archive, in bytes. The system has the same bound for
	// paths.
	maxArchiveName = 4096
	// maxOpenDirs bounds the number of directories that are open at the same time.
	maxOpenDirs = 64
)

// ErrTooLarge means that the archive exceeds MaxBytes or MaxFiles of the [Unpacker].
var ErrTooLarge = errors.New("the download is too large")

// Unpacker writes a tar stream below Root. A sandbox made the stream, which may therefore contain
// anything. Nothing is written outside of Root. A name that leads out of Root is an error. Links
// that lead out of Root are skipped, and so are devices and other special files. Anything in the
// way of an entry is replaced, including a link in the way of a directory, because links are never
// followed. Setuid and setgid bits are removed from modes.
type Unpacker struct {
	Root     *os.Root
	MaxBytes int64                  // maximum total size of all files, in bytes; negative: no limit
	MaxFiles int64                  // maximum number of files, directories and links; negative: no limit
	Skipped  func(name, why string) // is called for entries that are not written

	bytes, files int64
	names        names
	// path are the parent directories of the last entry. They are kept open because the next entry is
	// likely near them, and opening its directory from the root takes a call for every part of the
	// name.
	path []pathDir
}

// pathDir is a directory in the path of an entry.
type pathDir struct {
	name string // the path of the directory from root
	// the open directory; nil before the first entry is written in it, and while maxOpenDirs
	// directories below it are open
	open *os.Root

	// listed is true if the archive contains an entry for the directory. The directory's mode and
	// time are then set after its content was written, because the mode could prevent writing into
	// the directory, and writing would change the time.
	listed  bool
	mode    fs.FileMode
	modTime time.Time
}

// Unpack unpacks the archive in r. It reads r to the end of the archive.
func (u *Unpacker) Unpack(ctx context.Context, r io.Reader) error {
	defer func() {
		for i := range u.path {
			u.close(i)
		}
	}()
	tr := tar.NewReader(bufio.NewReaderSize(r, gathered))
	for {
		header, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return u.leave(".")
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

// entry checks one entry against the limits, and writes it.
func (u *Unpacker) entry(tr *tar.Reader, header *tar.Header) error {
	if len(header.Name) > maxArchiveName || len(header.Linkname) > maxArchiveName {
		return fmt.Errorf("the archive has a name of %d bytes: the bound is %d", max(len(header.Name), len(header.Linkname)), maxArchiveName)
	}
	name := filepath.FromSlash(path.Clean(header.Name))
	if name != "." && !filepath.IsLocal(name) {
		return fmt.Errorf("the archive names %q, which is outside of the target", header.Name)
	}
	if err := u.count(); err != nil {
		return err
	}
	// The size in the header, before anything is written: holes count as well.
	if u.MaxBytes >= 0 && header.Size > u.MaxBytes-u.bytes {
		return fmt.Errorf("%w: with %q its files have more than %d bytes, which MaxBytes allows", ErrTooLarge, header.Name, u.MaxBytes)
	}
	u.bytes += header.Size
	if err := u.leave(filepath.Dir(name)); err != nil {
		return err
	}
	err := u.names.check(name)
	if err == nil {
		err = u.write(tr, name, header)
	}
	if err != nil {
		return fmt.Errorf("write %q: %w", header.Name, err)
	}
	u.names.learn(u.Root, name)
	return nil
}

// count counts one file, directory or link. It is also called for directories that have no entry of
// their own and are only parts of names, because a single name can contain thousands of them.
func (u *Unpacker) count() error {
	if u.files++; u.MaxFiles >= 0 && u.files > u.MaxFiles {
		return fmt.Errorf("%w: it has more than %d files, directories and links, which MaxFiles allows", ErrTooLarge, u.MaxFiles)
	}
	return nil
}

func (u *Unpacker) write(tr *tar.Reader, name string, header *tar.Header) error {
	if name == "." && header.Typeflag == tar.TypeDir {
		return nil // the target itself, which belongs to the caller
	}
	parent, err := u.enter(filepath.Dir(name))
	if err != nil {
		return err
	}
	base, mode := filepath.Base(name), fs.FileMode(header.Mode).Perm()
	switch header.Typeflag {
	case tar.TypeDir:
		if _, err := makeDir(parent, base); err != nil {
			return err
		}
		// Until its final mode is set, it must be possible to write into it.
		if err := parent.Chmod(base, mode|0o700); err != nil {
			return err
		}
		u.path = append(u.path, pathDir{name: name, listed: true, mode: mode, modTime: header.ModTime})
		return nil
	case tar.TypeReg, tar.TypeGNUSparse:
		return writeFile(parent, base, tr, mode, header.ModTime)
	case tar.TypeSymlink:
		return u.symlink(parent, name, header)
	case tar.TypeLink:
		return u.hardLink(parent, name, header)
	}
	u.Skipped(header.Name, "it is neither a file, a directory nor a link")
	return nil
}

// leave finishes all directories of the path except dir and the directories that contain dir. For
// the dir "." it finishes all of them.
func (u *Unpacker) leave(dir string) error {
	for len(u.path) > 0 {
		i := len(u.path) - 1
		last := u.path[i]
		if last.name == dir || strings.HasPrefix(dir, last.name+string(filepath.Separator)) {
			return nil
		}
		u.close(i)
		u.path = u.path[:i]
		if !last.listed {
			continue
		}
		parent, err := u.openAt(i - 1)
		if err != nil {
			return err
		}
		base := filepath.Base(last.name)
		if err := errors.Join(parent.Chtimes(base, last.modTime, last.modTime), parent.Chmod(base, last.mode)); err != nil {
			return err
		}
	}
	return nil
}

// enter opens the directory dir, and creates missing directories. dir must be the last directory of
// the path, or below it.
func (u *Unpacker) enter(dir string) (*os.Root, error) {
	parent, err := u.openAt(len(u.path) - 1)
	if err != nil || dir == "." {
		return parent, err
	}
	entered := 0
	if i := len(u.path) - 1; i >= 0 {
		entered = len(u.path[i].name) + 1
	}
	for entered < len(dir) {
		base, _, _ := strings.Cut(dir[entered:], string(filepath.Separator))
		made, err := makeDir(parent, base)
		if err == nil && made {
			err = u.count()
		}
		if err != nil {
			return nil, err
		}
		u.path = append(u.path, pathDir{name: dir[:entered+len(base)]})
		if parent, err = u.openAt(len(u.path) - 1); err != nil {
			return nil, err
		}
		entered += len(base) + 1
	}
	return parent, nil
}

// openAt opens the directory at index i of the path (-1 means root). It also opens the directories
// above that one, as many as maxOpenDirs allows, because they are needed when the path is left
// again.
func (u *Unpacker) openAt(i int) (*os.Root, error) {
	first := i
	for first >= 0 && u.path[first].open == nil {
		first--
	}
	dir := u.Root
	if first >= 0 {
		dir = u.path[first].open
	}
	for first++; first <= i; first++ {
		below, err := dir.OpenRoot(filepath.Base(u.path[first].name))
		if err != nil {
			return nil, err
		}
		u.path[first].open, dir = below, below
		u.close(first - maxOpenDirs)
	}
	return dir, nil
}

func (u *Unpacker) close(i int) {
	if i >= 0 && u.path[i].open != nil {
		_ = u.path[i].open.Close() // it was only used to work in, and there is nothing to flush
		u.path[i].open = nil
	}
}

// symlink makes a symbolic link, unless it may lead out of root.
func (u *Unpacker) symlink(parent *os.Root, name string, header *tar.Header) error {
	target := filepath.FromSlash(header.Linkname)
	if LeadsOut(filepath.Dir(name), target) {
		u.Skipped(header.Name, fmt.Sprintf("it is a link to %s, which may be outside of the target", header.Linkname))
		return nil
	}
	base := filepath.Base(name)
	return replace(parent, base, func() error { return parent.Symlink(target, base) })
}

// LeadsOut reports whether a link in dir may lead out of root. No part of dir is a link, so
// LeadsOut can count the steps upwards at the beginning of target. After a name in target, it
// cannot count further steps, because that name may be a link to another directory.
func LeadsOut(dir, target string) bool {
	if filepath.IsAbs(target) || !filepath.IsLocal(filepath.Join(dir, target)) {
		return true
	}
	return countUp(target) != countUp(filepath.Clean(target))
}

func countUp(target string) (n int) {
	for part := range strings.SplitSeq(target, string(filepath.Separator)) {
		if part == ".." {
			n++
		}
	}
	return n
}

// hardLink gives a file another name. If the file is a symbolic link, hardLink creates a new symbolic
// link instead, because a hard link to a symbolic link would lead to another target.
func (u *Unpacker) hardLink(parent *os.Root, name string, header *tar.Header) error {
	target := filepath.FromSlash(path.Clean(header.Linkname))
	info, err := u.Root.Lstat(target)
	if err != nil {
		return err
	}
	if info.Mode().Type() == fs.ModeSymlink {
		if header.Linkname, err = u.Root.Readlink(target); err != nil {
			return err
		}
		return u.symlink(parent, name, header)
	}
	return replace(parent, filepath.Base(name), func() error { return u.Root.Link(target, name) })
}

// makeDir makes a directory unless it exists, and reports whether it made one.
func makeDir(parent *os.Root, base string) (made bool, err error) {
	info, err := parent.Lstat(base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, parent.Mkdir(base, 0o755)
	case err != nil:
		return false, err
	case info.IsDir():
		return false, nil
	case info.Mode().Type() == fs.ModeSymlink:
		return true, replace(parent, base, func() error { return parent.Mkdir(base, 0o755) })
	}
	return false, &fs.PathError{Op: "mkdir", Path: base, Err: syscall.ENOTDIR}
}

func writeFile(parent *os.Root, base string, r io.Reader, mode fs.FileMode, modTime time.Time) error {
	var file *os.File
	// Always create a new file: opening an existing one could follow a link or write to
	// every name of a hard link.
	err := replace(parent, base, func() (err error) {
		file, err = parent.OpenFile(base, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		return err
	})
	if err != nil {
		return err
	}
	_, err = io.Copy(file, r)
	// The umask is for files that this machine makes, not for those that it copies.
	if err := errors.Join(err, file.Chmod(mode), file.Close()); err != nil {
		return err
	}
	return parent.Chtimes(base, modTime, modTime)
}

// replace calls create. If that fails because base exists, replace removes base and calls create
// once more.
func replace(parent *os.Root, base string, create func() error) error {
	err := create()
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := parent.Remove(base); err != nil {
		return err
	}
	return create()
}
