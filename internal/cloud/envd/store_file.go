//go:build linux

package envd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// block is the number of bytes that are read before the first write. An upload that fits into
// one block is written by one write, so that watchers see one event.
const block = 256 << 10

var blocks = sync.Pool{New: func() any { return new([block]byte) }}

// received is the body of an upload that has arrived completely.
type received struct {
	head []byte
	rest *stagedFile // the whole body; nil if head contains the whole body
	size int64
}

func (c *received) writeTo(w io.Writer) error {
	if c.rest == nil {
		_, err := w.Write(c.head)
		return err
	}
	return c.rest.copyTo(w)
}

// stage creates a staged file in one of dirs with the whole body, and stores it in rest. It
// replaces an earlier staged file.
func (c *received) stage(dirs ...string) error {
	f, err := stage(dirs...)
	if err != nil {
		return err
	}
	if err := c.writeTo(f); err != nil {
		return errors.Join(err, f.Close())
	}
	err = c.close()
	c.rest = f
	return err
}

func (c *received) close() error {
	if c.rest == nil {
		return nil
	}
	return c.rest.Close()
}

// storeFile writes body to path, and gives the file to user. It returns the metadata that the
// filesystem stored.
//
// No part of an upload is at path before the whole body has arrived. Until then, the body is in
// memory if it fits into a block, and otherwise in a staged file. So an upload that is cut off does
// not change an existing file and leaves no new file behind. This also applies to a snapshot or
// fork of the sandbox. A new file gets its name at the end. An existing file is overwritten in
// place, so that hard links, permissions, open descriptors and watches stay valid. If there are
// several uploads to the same file, the file has the whole content of the last upload to complete.
//
// A pipe or a device receives the body as it arrives, and keeps its owner.
func (s *Server) storeFile(path string, body io.Reader, user *User, metadata map[string]string) (kept map[string]string, err error) {
	if err := makeDirs(filepath.Dir(path), user); err != nil {
		return nil, fmt.Errorf("error ensuring directories: %w", err)
	}
	head := blocks.Get().(*[block]byte)
	defer blocks.Put(head)
	n, err := fill(body, head[:])
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, bodyError(err)
	}
	whole := err != nil // the body ended within the block
	write := func(w io.Writer) error {
		if _, err := w.Write(head[:n]); err != nil || whole {
			return err
		}
		return copyBody(w, body, head)
	}

	staging := []string{s.scratch, parent(path)}
	f, info, err := openExisting(path) // if the file cannot be written, the rest need not be received
	switch {
	case isMissing(err):
		staging = s.stagingFor(parent(linkTarget(path)))
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.Join(write(patient{f, pipePatience}), f.Close())
	default:
		f.Close()
	}
	c := &received{head: head[:n], size: int64(n)}
	defer func() { err = errors.Join(err, c.close()) }()
	if !whole {
		if c.rest, err = stage(staging...); err != nil {
			return nil, err
		}
		if err := write(c.rest); err != nil {
			return nil, err
		}
		if c.size, err = c.rest.Seek(0, io.SeekCurrent); err != nil {
			return nil, err
		}
	}
	return s.settle(path, c, user, metadata)
}

// settle makes c the content of the file at path. If there is no such file, settle creates it.
func (s *Server) settle(path string, c *received, user *User, metadata map[string]string) (map[string]string, error) {
	const tries = 16 // a try fails if another upload or a program changes the file meanwhile
	for range tries {
		f, info, err := openExisting(path)
		switch {
		case isMissing(err):
			kept, err := s.create(linkTarget(path), c, user, metadata)
			if errors.Is(err, fs.ErrExist) {
				continue
			}
			return kept, err
		case err != nil:
			return nil, err
		case !info.Mode().IsRegular():
			return nil, errors.Join(c.writeTo(patient{f, pipePatience}), f.Close())
		}
		kept, err := s.replace(f, c, user, metadata)
		return kept, errors.Join(err, f.Close())
	}
	return nil, refuse(http.StatusConflict, "too many uploads to %s at once", path)
}

// create creates the file path with the content c. The error is [fs.ErrExist] if path already
// exists.
func (s *Server) create(path string, c *received, user *User, metadata map[string]string) (map[string]string, error) {
	dir := parent(path)
	if c.rest == nil {
		if err := c.stage(s.stagingFor(dir)...); err != nil {
			return nil, openError(path, err)
		}
	}
	kept, err := adopt(c.rest.File, user, metadata)
	if err == nil {
		err = c.rest.link(path)
	}
	if errors.Is(err, unix.EXDEV) {
		if err := c.stage(dir); err != nil {
			return nil, openError(path, err)
		}
		if kept, err = adopt(c.rest.File, user, metadata); err == nil {
			err = c.rest.link(path)
		}
	}
	if err != nil {
		return nil, openError(path, err)
	}
	announce(path)
	return kept, nil
}

// openExisting opens the file at path for writing. The file may be a pipe or a device.
func openExisting(path string) (*os.File, fs.FileInfo, error) {
	// O_NONBLOCK is for a pipe without a reader. O_NOCTTY is for a terminal, which must not
	// become the controlling terminal of this process.
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if errors.Is(err, unix.ENXIO) {
		return nil, nil, noReader(path)
	}
	if err != nil {
		return nil, nil, openError(path, err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// replace overwrites the content of f with c.
func (s *Server) replace(f *os.File, c *received, user *User, metadata map[string]string) (map[string]string, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	lock := s.uploadLocks.lockOf(info)
	lock.Lock()
	defer lock.Unlock()
	if info, err = f.Stat(); err != nil { // the previous writer may have changed the size
		return nil, err
	}
	kept, err := adopt(f, user, metadata)
	if err != nil {
		return nil, err
	}
	// The old content is still there, so first ensure that the new content fits.
	if err := reserve(f, info.Size(), c.size); err != nil {
		return nil, err
	}
	err = c.writeTo(f)
	if err == nil && c.size < info.Size() {
		err = f.Truncate(c.size)
	}
	return kept, err
}

// adopt gives f to user, and sets its metadata.
func adopt(f *os.File, user *User, metadata map[string]string) (map[string]string, error) {
	if err := owned(user, f.Chown(int(user.UID), int(user.GID))); err != nil {
		return nil, fmt.Errorf("error changing file ownership: %w", err)
	}
	return writeMetadata(f, metadata)
}

// isFull reports whether an error means that the disk is full, or that the user's quota is used up.
func isFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// reserve reserves disk space for size bytes in f. old is the length of f, which may have
// holes. If the space is not available, f is unchanged. If the filesystem cannot reserve space,
// reserve does nothing.
func reserve(f *os.File, old, size int64) error {
	if size == 0 {
		return nil
	}
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) && size <= old { // gVisor supports no flags
		err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	}
	if isFull(err) {
		return err
	}
	return nil
}

// copyBody writes the rest of body in whole blocks.
func copyBody(w io.Writer, body io.Reader, buf *[block]byte) error {
	for ended := false; !ended; {
		n, err := fill(body, buf[:])
		if ended = errors.Is(err, io.EOF); err != nil && !ended {
			return bodyError(err)
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
	}
	return nil
}

// pipePatience bounds the time that a pipe may block an upload.
const pipePatience = 10 * time.Second

// patient writes the body to a pipe or a device as it arrives.
type patient struct {
	file  *os.File
	limit time.Duration
}

func (p patient) Write(data []byte) (int, error) {
	_ = p.file.SetWriteDeadline(time.Now().Add(p.limit)) // only files that can block support a deadline
	n, err := p.file.Write(data)
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, unix.EPIPE) {
		err = noReader(p.file.Name())
	}
	return n, err
}

func noReader(path string) error {
	return refuse(http.StatusBadRequest, "nobody reads the pipe: %s", path)
}

// fill reads until buf is full. If body ends before buf is full, it returns [io.EOF]. If body is
// cut off, it returns [io.ErrUnexpectedEOF]. [io.ReadFull] does not distinguish these two cases.
func fill(body io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var m int
		m, err = body.Read(buf[n:])
		n += m
	}
	if n == len(buf) {
		return n, nil // the next read returns the same error
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
