package volumes

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Read opens a regular file. If the path leads to a link, Read follows it to a file in the volume.
// The caller must close the file.
func (c *Content) Read(name string) (io.ReadCloser, Entry, error) {
	name, err := clean(name)
	if err != nil {
		return nil, Entry{}, err
	}
	// With these flags, opening never waits, for example for the writer of a pipe.
	file, err := c.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	switch {
	case errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV): // a socket or a device
		return nil, Entry{}, ErrNotFile
	case err != nil:
		return nil, Entry{}, explain(err)
	}
	e, err := c.entry(name, file)
	switch {
	case err != nil:
	case e.Kind == Directory:
		err = ErrIsDir
	case e.Kind != File:
		err = ErrNotFile
	}
	if err != nil {
		return nil, Entry{}, errors.Join(err, file.Close())
	}
	return file, e, nil
}

// Write creates a file with the content of r. The file is not visible before it is complete. If
// force is set, Write creates missing directories, and replaces an existing file. The new file then
// has the mode and owner of the existing file, except for the attributes that a sets. If force is
// not set, the errors include fs.ErrExist and fs.ErrNotExist. If the path leads to a directory, the
// error is [ErrIsDir].
//
// A power failure may lose the latest writes, as on any disk.
func (c *Content) Write(name string, r io.Reader, a Attributes, force bool) (Entry, error) {
	name, err := clean(name)
	if err == nil {
		err = a.check()
	}
	if err != nil {
		return Entry{}, err
	}
	if name == "." {
		return Entry{}, ErrIsDir
	}
	parent, err := c.parent(name, a, force)
	if err != nil {
		return Entry{}, err
	}
	defer parent.Close()
	base := path.Base(name)
	owner, mode, err := c.replaced(parent, base, force)
	if err != nil {
		return Entry{}, err
	}
	owner, mode = a.apply(owner, mode)
	staged := filepath.Join(c.dir, newName, rand.Text())
	file, err := os.OpenFile(staged, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return Entry{}, err
	}
	defer file.Close()
	_, err = io.Copy(file, r)
	if err == nil {
		err = c.ids.setAttributes(file, owner, mode)
	}
	if err == nil {
		err = publish(staged, parent, base, force)
	}
	if err != nil {
		// A program that is being started has the file open for a moment, so its removal alone
		// would not free its space at once.
		return Entry{}, errors.Join(err, ignore(os.Remove(staged), fs.ErrNotExist), file.Truncate(0))
	}
	return c.entry(name, file)
}

// replaced returns the owner and mode that a new file takes over from the existing file.
func (c *Content) replaced(parent *os.File, base string, force bool) (Owner, uint32, error) {
	var stat unix.Stat_t
	err := unix.Fstatat(int(parent.Fd()), base, &stat, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		return DefaultOwner, defaultFileMode, nil
	case err != nil:
		return Owner{}, 0, explain(err)
	case kindOf(&stat) == Directory:
		return Owner{}, 0, ErrIsDir
	case !force:
		return Owner{}, 0, fs.ErrExist
	case kindOf(&stat) != File:
		return DefaultOwner, defaultFileMode, nil
	}
	return c.ids.owner(&stat), stat.Mode & maxMode, nil
}

// publish moves the complete file staged to the name base in the directory parent.
func publish(staged string, parent *os.File, base string, force bool) error {
	if !force { // unlike rename, link replaces nothing
		if err := unix.Linkat(unix.AT_FDCWD, staged, int(parent.Fd()), base, 0); err != nil {
			return err
		}
		_ = os.Remove(staged) // what stays is removed at the next start
		return nil
	}
	err := unix.Renameat(unix.AT_FDCWD, staged, int(parent.Fd()), base)
	if errors.Is(err, unix.EISDIR) {
		return ErrIsDir
	}
	return err
}

// MakeDir creates a directory. If force is set, MakeDir also creates missing parents, and accepts
// an existing directory without changing it. If force is not set, the errors include fs.ErrExist
// and fs.ErrNotExist.
func (c *Content) MakeDir(name string, a Attributes, force bool) (Entry, error) {
	name, err := clean(name)
	if err == nil {
		err = a.check()
	}
	if err != nil {
		return Entry{}, err
	}
	var parent *os.File
	if name == "." {
		parent, err = openDir(c.root, ".")
	} else {
		parent, err = c.parent(name, a, force)
	}
	if err != nil {
		return Entry{}, explain(err)
	}
	defer parent.Close()
	dir, made, err := c.makeDir(parent, path.Base(name), a)
	if err != nil {
		return Entry{}, err
	}
	defer dir.Close()
	if !made && !force {
		return Entry{}, fs.ErrExist
	}
	return c.entry(name, dir)
}

// makeDir creates one directory and opens it. made is false if the directory existed. If
// another kind of file has the name, the error is fs.ErrExist.
func (c *Content) makeDir(parent *os.File, base string, a Attributes) (_ *os.File, made bool, err error) {
	err = unix.Mkdirat(int(parent.Fd()), base, 0o700)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, false, explain(err)
	}
	made = err == nil
	dir, err := openDirIn(int(parent.Fd()), base)
	if errors.Is(err, unix.ENOTDIR) {
		return nil, false, fs.ErrExist
	}
	if made {
		if err == nil {
			owner, mode := a.apply(DefaultOwner, defaultDirMode)
			if err = c.ids.setAttributes(dir, owner, mode); err != nil {
				err = errors.Join(err, dir.Close())
			}
		}
		if err != nil { // otherwise a later call would accept a directory that only this process may use
			err = errors.Join(err, unix.Unlinkat(int(parent.Fd()), base, unix.AT_REMOVEDIR))
		}
	}
	if err != nil {
		return nil, false, explain(err)
	}
	return dir, made, nil
}

// parent opens the directory of an entry. With force, it creates the missing directories of the
// path, with the owner in a.
func (c *Content) parent(name string, a Attributes, force bool) (*os.File, error) {
	dir, err := openDir(c.root, path.Dir(name))
	if err == nil || !force || !errors.Is(err, fs.ErrNotExist) {
		return dir, explain(err)
	}
	a.Mode = nil // the mode is only for the entry
	elements := strings.Split(path.Dir(name), "/")
	for n := range elements {
		at := path.Join(elements[:n+1]...)
		next, err := openDir(c.root, at)
		if errors.Is(err, fs.ErrNotExist) {
			next, err = c.makeIn(path.Dir(at), path.Base(at), a)
		}
		if err != nil {
			return nil, explain(err)
		}
		if n == len(elements)-1 {
			return next, nil
		}
		next.Close()
	}
	return openDir(c.root, ".")
}

// makeIn creates a directory in an existing directory.
func (c *Content) makeIn(parent, base string, a Attributes) (*os.File, error) {
	in, err := openDir(c.root, parent)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	dir, _, err := c.makeDir(in, base, a)
	return dir, err
}

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}
