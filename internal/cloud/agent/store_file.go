//go:build linux

package agent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// block is what is read before anything is written. An upload that fits is written
// by one write, which is one event to who watches.
const block = 256 << 10

var blocks = sync.Pool{New: func() any { return new([block]byte) }}

// storeFile writes body to path and gives the file to user. It returns the
// metadata that the filesystem took.
//
// An upload that is cut off leaves the old file whole, and no new one. A new file
// is written where it belongs and removed when the body fails. An existing file is
// overwritten in place, because hard links, permissions, open descriptors and
// watches are to go on seeing it, but only once the whole body is here: in memory
// when it fits a block, else in a nameless file of the scratch directory: watches of
// the file's own would see it.
func (a *Agent) storeFile(path string, body io.Reader, user *User, metadata map[string]string) (map[string]string, error) {
	if err := makeDirs(filepath.Dir(path), user); err != nil {
		return nil, fmt.Errorf("error ensuring directories: %w", err)
	}
	head := blocks.Get().(*[block]byte)
	defer blocks.Put(head)
	n, err := fill(body, head[:])
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, bodyError(err)
	}
	whole := err != nil // the end came within the block

	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return a.overwrite(path, head, n, whole, body, user, metadata)
	}
	if err != nil {
		return nil, openError(path, err)
	}
	kept, err := adopt(f, user, metadata)
	if err == nil {
		_, err = f.Write(head[:n])
	}
	if err == nil && !whole {
		err = copyBody(f, body, head)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return kept, nil
}

func (a *Agent) overwrite(path string, head *[block]byte, n int, whole bool, body io.Reader, user *User, metadata map[string]string) (map[string]string, error) {
	// O_CREATE for a link whose target is missing; O_NONBLOCK for a pipe nobody reads.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|unix.O_NONBLOCK, 0o666)
	if err != nil {
		return nil, openError(path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, refuse(http.StatusBadRequest, "path is not a regular file: %s", path)
	}
	size := int64(n)
	var rest *os.File
	if !whole {
		if rest, err = nameless(a.scratch); err != nil {
			return nil, err
		}
		defer rest.Close()
		if _, err := rest.Write(head[:n]); err != nil {
			return nil, err
		}
		if err := copyBody(rest, body, head); err != nil {
			return nil, err
		}
		if size, err = rest.Seek(0, io.SeekCurrent); err != nil {
			return nil, err
		}
		if _, err := rest.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
	}
	kept, err := adopt(f, user, metadata)
	if err != nil {
		return nil, err
	}
	// While the old content is still there, make sure that the new one fits.
	if size > info.Size() {
		if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size); errors.Is(err, unix.ENOSPC) {
			return nil, err
		}
	}
	if rest == nil {
		_, err = f.Write(head[:n])
	} else {
		_, err = io.Copy(f, rest)
	}
	if err == nil && size < info.Size() {
		err = f.Truncate(size)
	}
	return kept, err
}

// adopt gives f to user and sets its metadata.
func adopt(f *os.File, user *User, metadata map[string]string) (map[string]string, error) {
	if err := user.owned(f.Chown(int(user.UID), int(user.GID))); err != nil {
		return nil, fmt.Errorf("error changing file ownership: %w", err)
	}
	return writeMetadata(f, metadata)
}

// nameless opens a file in dir that nobody sees and that goes with its descriptor.
func nameless(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), dir), nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) {
		return nil, fmt.Errorf("error opening a temporary file in %s: %w", dir, err)
	}
	f, err := os.CreateTemp(dir, "upload-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// copyBody writes what is left of body, whole blocks at a time.
func copyBody(f *os.File, body io.Reader, buf *[block]byte) error {
	for ended := false; !ended; {
		n, err := fill(body, buf[:])
		if ended = errors.Is(err, io.EOF); err != nil && !ended {
			return bodyError(err)
		}
		if _, err := f.Write(buf[:n]); err != nil {
			return err
		}
	}
	return nil
}

// fill reads until buf is full, or returns [io.EOF] when body ends before. Unlike
// [io.ReadFull] it tells that end from a body that was cut off, which is an
// [io.ErrUnexpectedEOF].
func fill(body io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var m int
		m, err = body.Read(buf[n:])
		n += m
	}
	if n == len(buf) {
		return n, nil // an end or an error comes again
	}
	return n, err
}

func bodyError(err error) error {
	return refuse(http.StatusBadRequest, "error reading request body: %w", err)
}

func openError(path string, err error) error {
	if errors.Is(err, unix.EISDIR) {
		return refuse(http.StatusBadRequest, "path is a directory: %s", path)
	}
	return fmt.Errorf("error opening file: %w", err)
}
