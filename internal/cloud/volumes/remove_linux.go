package volumes

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Remove removes the file or directory at a path. The root of the volume cannot be removed: the
// error is then fs.ErrNotExist. Remove first moves the file or directory out of the volume, and
// then deletes it. If ctx ends before everything is deleted, the remaining files are deleted when the
// volume is first used after a restart, or when the volume is deleted.
func (c *Content) Remove(ctx context.Context, name string) error {
	name, err := clean(name)
	if err != nil {
		return err
	}
	if name == "." {
		return fs.ErrNotExist
	}
	parent, err := openDir(c.root, path.Dir(name))
	if err != nil {
		return explain(err)
	}
	defer parent.Close()
	heap, err := os.Open(filepath.Join(c.dir, removedName))
	if err != nil {
		return err
	}
	defer heap.Close()
	moved, err := removeEntry(int(parent.Fd()), path.Base(name), heap)
	if err == nil && moved != "" {
		_ = takeApart(ctx, heap, moved) // the rest is deleted later
	}
	return explain(err)
}

// removeEntry removes one entry of a directory. heap is the volume's directory of removed files. If
// the entry is a directory, removeEntry moves it to heap, and moved is its new name.
func removeEntry(dir int, base string, heap *os.File) (moved string, err error) {
	err = unix.Unlinkat(dir, base, 0)
	if !errors.Is(err, unix.EISDIR) {
		return "", err
	}
	moved = rand.Text()
	err = unix.Renameat(dir, base, int(heap.Fd()), moved)
	if errors.Is(err, unix.EACCES) { // a read-only directory cannot be moved
		if err = unlock(dir, base); err == nil {
			err = unix.Renameat(dir, base, int(heap.Fd()), moved)
		}
	}
	return moved, err
}

// unlock changes the mode of a directory so that the user of this process has all rights.
func unlock(dir int, base string) error {
	file, err := openDirIn(dir, base)
	if err != nil {
		return err
	}
	defer file.Close()
	return ids{one: true}.setAttributes(file, Owner{}, 0o700) // sets the mode of an entry that belongs to this user
}

// takeApart deletes a directory in heap. It moves every directory that it finds to heap before it
// reads the directory. So only one directory is open at a time, whatever the depth.
func takeApart(ctx context.Context, heap *os.File, name string) error {
	var failed []error
	for waiting := []string{name}; len(waiting) > 0; {
		next := waiting[len(waiting)-1]
		waiting = waiting[:len(waiting)-1]
		inside, err := empty(ctx, heap, next)
		waiting = append(waiting, inside...)
		if err == nil {
			err = unix.Unlinkat(int(heap.Fd()), next, unix.AT_REMOVEDIR)
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, unix.ENOTEMPTY): // a sandbox still writes there
			waiting = append(waiting, next)
		case err != nil:
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// empty deletes the entries of a directory in heap. It moves the subdirectories to heap, and
// returns their new names.
func empty(ctx context.Context, heap *os.File, name string) (moved []string, err error) {
	dir, err := openRemoved(heap, name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	for ctx.Err() == nil {
		if _, err := dir.Seek(0, io.SeekStart); err != nil { // removals must not make the loop skip names
			return moved, err
		}
		names, err := dir.Readdirnames(batch)
		if errors.Is(err, io.EOF) {
			return moved, nil
		}
		if err != nil {
			return moved, err
		}
		removed := 0
		var failed []error
		for _, base := range names {
			to, err := removeEntry(int(dir.Fd()), base, heap)
			switch {
			case err != nil:
				failed = append(failed, ignore(err, unix.ENOENT))
				continue
			case to != "":
				moved = append(moved, to)
			}
			removed++
		}
		if err := errors.Join(failed...); err != nil && removed == 0 {
			return moved, err
		}
	}
	return moved, context.Cause(ctx)
}

// openRemoved opens a directory in the heap for reading, whatever its mode.
func openRemoved(heap *os.File, name string) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	if err := unlock(int(heap.Fd()), name); err != nil {
		return nil, err
	}
	fd, err := unix.Openat(int(heap.Fd()), name, flags, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// sweep deletes files that an earlier process left in a volume's directory: incomplete files
// and removed files.
func sweep(ctx context.Context, dir string) error {
	heap, err := os.Open(filepath.Join(dir, removedName))
	if err != nil {
		return err
	}
	defer heap.Close()
	names, err := heap.Readdirnames(-1)
	for _, name := range names {
		err = errors.Join(err, takeApart(ctx, heap, name))
	}
	unfinished, readErr := os.ReadDir(filepath.Join(dir, newName))
	err = errors.Join(err, readErr)
	for _, entry := range unfinished {
		err = errors.Join(err, os.Remove(filepath.Join(dir, newName, entry.Name())))
	}
	return err
}
