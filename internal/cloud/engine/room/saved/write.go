//go:build linux

package saved

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Section is a directory to write.
type Section struct {
	// Name identifies the section to [Read].
	Name string
	Dir  *os.File
	// Skip lists the paths in the section to leave out.
	Skip []string
	// Overlay means that the section is the upper directory of an overlay. The overlay's own
	// attributes are left out, except its marks of removed files.
	Overlay bool
	// FirstID is the id that the sandbox's root user has for this process.
	FirstID uint32
}

// Write writes sections to w. [Read] compares layout with its own layout.
func Write(w io.Writer, layout string, sections []Section) error {
	s := &saver{
		e:      newEncoder(w),
		links:  make(map[file]*linked),
		buffer: make([]byte, 1<<20),
	}
	s.e.bytes([]byte(magic))
	s.e.text(layout)
	for _, of := range sections {
		s.of = of
		if err := s.section(); err != nil {
			return err
		}
	}
	return s.e.finish()
}

type saver struct {
	e      *encoder
	of     Section
	links  map[file]*linked // files with names that are still to be written
	next   uint64
	buffer []byte
}

// file is the identity of a file.
type file struct{ device, inode uint64 }

// linked is a file with several names.
type linked struct{ number, left uint64 }

func (s *saver) section() error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(s.of.Dir.Fd()), &stat); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	r := s.describe(section, s.of.Name, &stat)
	r.atime = r.mtime // opening it changes atime
	if err := s.attributes(r, int(s.of.Dir.Fd())); err != nil {
		return err
	}
	s.e.record(r)
	if err := s.directory(s.of.Dir, "", 0); err != nil {
		return err
	}
	s.e.record(&record{kind: leave})
	return s.e.err
}

// failed returns err with the name of the file added.
func (s *saver) failed(name string, err error) error {
	return fmt.Errorf("%.1000q: %w", path.Join("/", s.of.Name, name), err)
}

// directory writes the content of a directory.
func (s *saver) directory(dir *os.File, in string, depth int) error {
	if depth > maxDepth {
		return s.failed(in, fmt.Errorf("it is more than %d directories deep", maxDepth))
	}
	for {
		names, err := dir.Readdirnames(1000)
		for _, name := range names {
			path := path.Join(in, name)
			if slices.Contains(s.of.Skip, path) {
				continue
			}
			if err := s.entry(dir, name, path, depth); err != nil {
				return err
			}
			if s.e.err != nil {
				return s.failed(path, fmt.Errorf("write: %w", s.e.err))
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return s.failed(in, err)
		}
	}
}

func (s *saver) entry(dir *os.File, name, path string, depth int) error {
	var stat unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return s.failed(path, err)
	}
	var err error
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return s.subdirectory(dir, name, path, &stat, depth)
	case unix.S_IFREG:
		err = s.regular(dir, name, &stat)
	case unix.S_IFLNK:
		r := s.describe(symlink, name, &stat)
		target := make([]byte, maxTarget)
		var n int
		if n, err = unix.Readlinkat(int(dir.Fd()), name, target); err == nil && !s.linked(r, &stat) {
			r.target = string(target[:n])
			r.atime = r.mtime // reading it changed atime
			s.e.record(r)
		}
	case unix.S_IFIFO:
		if r := s.describe(fifo, name, &stat); !s.linked(r, &stat) {
			s.e.record(r)
		}
	case unix.S_IFCHR:
		if stat.Rdev == 0 {
			s.e.record(s.describe(whiteout, name, &stat))
		}
	}
	// The listener of a socket will be gone when the files are read. Other devices cannot be made
	// in a sandbox.
	if err != nil {
		return s.failed(path, err)
	}
	return nil
}

func (s *saver) subdirectory(dir *os.File, name, path string, stat *unix.Stat_t, depth int) error {
	sub, err := open(dir, name, stat, unix.O_DIRECTORY)
	if err != nil {
		return s.failed(path, err)
	}
	defer sub.Close()
	if errors.Is(unix.Faccessat(int(sub.Fd()), ".", unix.X_OK, 0), unix.EACCES) { // its mode locks out its owner
		if err := sub.Chmod(0o700); err != nil {
			return s.failed(path, err)
		}
		defer func() { _ = unix.Fchmod(int(sub.Fd()), stat.Mode&0o7777) }() // it succeeds because the earlier change did
	}
	r := s.describe(directory, name, stat)
	if err := s.attributes(r, int(sub.Fd())); err != nil {
		return s.failed(path, err)
	}
	s.e.record(r)
	if err := s.directory(sub, path, depth+1); err != nil {
		return err
	}
	s.e.record(&record{kind: leave})
	return nil
}

// describe returns a record with the values of stat.
func (s *saver) describe(k kind, name string, stat *unix.Stat_t) *record {
	return &record{
		kind: k, name: name, mode: stat.Mode & 0o7777, uid: stat.Uid - s.of.FirstID, gid: stat.Gid - s.of.FirstID,
		atime: [2]int64{stat.Atim.Sec, stat.Atim.Nsec}, mtime: [2]int64{stat.Mtim.Sec, stat.Mtim.Nsec},
	}
}

// linked handles a file with several names. If the file was already written under another name,
// linked writes a record for this name and returns true.
func (s *saver) linked(r *record, stat *unix.Stat_t) bool {
	if stat.Nlink < 2 {
		return false
	}
	id := file{uint64(stat.Dev), stat.Ino}
	l := s.links[id]
	if l == nil {
		s.next++
		s.links[id] = &linked{number: s.next, left: uint64(stat.Nlink) - 1}
		r.link, r.names = s.next, uint64(stat.Nlink)
		return false
	}
	if l.left--; l.left == 0 {
		delete(s.links, id)
	}
	s.e.record(&record{kind: again, name: r.name, link: l.number})
	return true
}

func (s *saver) regular(dir *os.File, name string, stat *unix.Stat_t) error {
	r := s.describe(regular, name, stat)
	if s.linked(r, stat) {
		return nil
	}
	f, err := open(dir, name, stat, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := s.attributes(r, int(f.Fd())); err != nil {
		return err
	}
	r.size = stat.Size
	s.e.record(r)
	if err := s.content(f, stat.Size); err != nil {
		return err
	}
	s.e.extent(0, 0)
	return nil
}

// content writes the extents of a file that are not holes.
func (s *saver) content(f *os.File, size int64) error {
	for at := int64(0); at < size; {
		begin, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // the rest is a hole
		}
		if err != nil {
			return err
		}
		stop, err := unix.Seek(int(f.Fd()), begin, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if stop = min(stop, size); begin >= stop {
			return nil
		}
		s.e.extent(begin, stop-begin)
		n, err := io.CopyBuffer(struct{ io.Writer }{s.e}, io.NewSectionReader(f, begin, stop-begin), s.buffer)
		if err == nil && n < stop-begin {
			err = errors.New("it became shorter while it was read")
		}
		if err != nil {
			return err
		}
		at = stop
	}
	return nil
}

// attributes adds the extended attributes of an open file to its record.
func (s *saver) attributes(r *record, fd int) error {
	list := make([]byte, maxValue)
	n, err := unix.Flistxattr(fd, list)
	if errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	if err != nil {
		return os.NewSyscallError("flistxattr", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list[:n]), "\x00"), "\x00") {
		to, kept := s.keeps(name)
		if !kept {
			continue
		}
		value := make([]byte, maxValue)
		n, err := unix.Fgetxattr(fd, name, value)
		if err != nil {
			return fmt.Errorf("read attribute %.300q: %w", name, err)
		}
		r.attrs = append(r.attrs, attr{to, string(value[:n])})
	}
	slices.SortFunc(r.attrs, func(a, b attr) int { return strings.Compare(a.name, b.name) })
	return nil
}

// keeps returns the name that a record uses for an attribute of a file. kept reports whether the
// file keeps the attribute wherever it is restored.
func (s *saver) keeps(name string) (to string, kept bool) {
	switch rest, overlay := strings.CutPrefix(name, overlayAttr); {
	case overlay && !s.of.Overlay:
		to = escapedAttr + rest
		return to, len(to) <= maxName
	case overlay:
		// An overlay's other attributes describe the state of the tree below at the time of the
		// save.
		return name, name == opaqueAttr || strings.HasPrefix(name, escapedAttr)
	case strings.HasPrefix(name, "user."), strings.HasPrefix(name, "system.posix_acl_"):
		return name, true
	}
	return name, name == "security.capability"
}

// open opens the file that stat describes. If the file's mode forbids opening it and this process
// owns the file, open changes the mode for a moment.
func open(dir *os.File, name string, stat *unix.Stat_t, flags int) (*os.File, error) {
	flags |= unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Openat(int(dir.Fd()), name, flags|unix.O_NOATIME, 0)
	if errors.Is(err, unix.EPERM) {
		fd, err = unix.Openat(int(dir.Fd()), name, flags, 0)
	}
	if errors.Is(err, unix.EACCES) {
		fd, err = openClosed(dir, name, stat, flags)
	}
	if err != nil {
		return nil, os.NewSyscallError("open", err)
	}
	f := os.NewFile(uintptr(fd), name)
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil {
		return nil, errors.Join(os.NewSyscallError("fstat", err), f.Close())
	}
	if now.Ino != stat.Ino || now.Mode&unix.S_IFMT != stat.Mode&unix.S_IFMT {
		return nil, errors.Join(errors.New("it was replaced while it was read"), f.Close())
	}
	return f, nil
}

// openClosed opens a file whose mode locks out its owner, by changing the mode for a moment.
func openClosed(dir *os.File, name string, stat *unix.Stat_t, flags int) (int, error) {
	path, err := unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(path) }()
	itself := fmt.Sprintf("/proc/self/fd/%d", path)
	if err := unix.Chmod(itself, stat.Mode&0o7777|0o700); err != nil {
		return -1, err
	}
	fd, err := unix.Openat(int(dir.Fd()), name, flags|unix.O_NOATIME, 0) // only the owner may use this flag
	if back := unix.Chmod(itself, stat.Mode&0o7777); err == nil && back != nil {
		_ = unix.Close(fd)
		return -1, back
	}
	return fd, err
}
