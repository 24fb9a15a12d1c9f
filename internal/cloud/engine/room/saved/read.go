//go:build linux

package saved

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Place is the directory to which a section is restored.
type Place struct {
	Dir *os.File
	// Plain means that the destination is not a directory of an overlay. Then Read leaves out an
	// overlay's marks.
	Plain bool
}

// Options configures [Read].
type Options struct {
	Layout string
	// Place opens the directory of a section. Read closes the directory.
	Place func(name string) (Place, error)
	// Links is an empty directory on the file system of the destination. It is empty again afterwards.
	Links *os.File
	// Owned means that all restored files belong to this process's user, regardless of their recorded
	// owners. Set-user-ID and set-group-ID bits are then left out, because they would give other users
	// the rights of this user.
	Owned bool
}

// Read reads the output of [Write]. If it fails, part of the files may have been read.
func Read(r io.Reader, o Options) error {
	d := &decoder{r: bufio.NewReaderSize(r, 1<<20)}
	if layout := d.layout(); d.err == nil && layout != o.Layout {
		return fmt.Errorf("%w: with %s, and here there are sandboxes with %s", ErrLayout, layout, o.Layout)
	}
	l := &loader{d: d, o: o, links: make(map[uint64]uint64), buffer: make([]byte, 1<<20)}
	for d.err == nil {
		switch r := d.record(); r.kind {
		case section:
			if err := l.section(r); err != nil {
				return err
			}
		case end:
			if err := d.finish(); err != nil {
				return err
			}
			for number := range l.links { // other names of these files were left out
				if err := unix.Unlinkat(int(o.Links.Fd()), strconv.FormatUint(number, 10), 0); err != nil {
					return os.NewSyscallError("unlink", err)
				}
			}
			return nil
		default:
			d.damaged("a file is in no directory")
		}
	}
	return d.err
}

func (d *decoder) layout() string {
	if got := d.text0(len(magic)); d.err == nil && got != magic {
		d.damaged("they begin with %.40q", got)
	}
	return d.text(maxTarget)
}

// text0 reads a text of n bytes.
func (d *decoder) text0(n int) string {
	p := make([]byte, n)
	_, _ = io.ReadFull(d, p) // the error stays in err
	return string(p)
}

type loader struct {
	d      *decoder
	o      Options
	plain  bool
	links  map[uint64]uint64 // number of names that are still to be read, by the number of the file
	buffer []byte
}

func (l *loader) section(r *record) error {
	if l.d.err != nil {
		return l.d.err
	}
	p, err := l.o.Place(r.name)
	if err != nil {
		return err
	}
	defer p.Dir.Close()
	l.plain = p.Plain
	return l.directory(p.Dir, r, path.Join("/", r.name), 0)
}

// directory reads the content of a directory, and then sets the directory's attributes.
func (l *loader) directory(dir *os.File, of *record, in string, depth int) error {
	if depth > maxDepth {
		l.d.damaged("they are more than %d directories deep", maxDepth)
	}
	whiteouts := false
	for l.d.err == nil {
		r := l.d.record()
		if l.d.err != nil {
			break
		}
		if r.kind == leave {
			if err := l.leave(int(dir.Fd()), of, whiteouts); err != nil {
				return fmt.Errorf("%.1000q: %w", in, err)
			}
			return nil
		}
		whiteouts = whiteouts || r.kind == whiteout && !l.plain
		if r.kind == directory {
			if err := l.subdirectory(dir, r, path.Join(in, r.name), depth); err != nil {
				return err
			}
			continue
		}
		if err := l.entry(int(dir.Fd()), r); err != nil {
			return fmt.Errorf("%.1000q: %w", path.Join(in, r.name), err)
		}
	}
	return l.d.err
}

// leave sets the attributes of a directory whose content is complete.
func (l *loader) leave(dir int, of *record, whiteouts bool) error {
	err := l.finish(dir, of)
	if whiteouts && err == nil {
		err = os.NewSyscallError("fsetxattr", unix.Fsetxattr(dir, originAttr, nil, 0))
	}
	return err
}

func (l *loader) subdirectory(dir *os.File, r *record, in string, depth int) error {
	err := unix.Mkdirat(int(dir.Fd()), r.name, 0o700)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("%.1000q: %w", in, err)
	}
	fd, err := unix.Openat(int(dir.Fd()), r.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%.1000q: %w", in, err)
	}
	sub := os.NewFile(uintptr(fd), r.name)
	defer sub.Close()
	return l.directory(sub, r, in, depth+1)
}

func (l *loader) entry(dir int, r *record) error {
	switch r.kind {
	case regular:
		if err := l.regular(dir, r); err != nil {
			return err
		}
	case symlink:
		if err := unix.Symlinkat(r.target, dir, r.name); err != nil {
			return err
		}
	case fifo:
		if err := unix.Mknodat(dir, r.name, unix.S_IFIFO|0o600, 0); err != nil {
			return err
		}
	case whiteout:
		if l.plain {
			return nil
		}
		if err := unix.Mknodat(dir, r.name, unix.S_IFCHR|0o600, 0); err != nil {
			return err
		}
	case again:
		return l.again(dir, r)
	default:
		l.d.damaged("a record of kind %d is in a directory", r.kind)
		return l.d.err
	}
	if r.kind != regular {
		if err := l.finishAt(dir, r); err != nil {
			return err
		}
	}
	if r.link == 0 {
		return nil
	}
	if r.names < 2 || l.links[r.link] != 0 {
		l.d.damaged("a file has %d names", r.names)
		return l.d.err
	}
	l.links[r.link] = r.names - 1
	return unix.Linkat(dir, r.name, int(l.o.Links.Fd()), strconv.FormatUint(r.link, 10), 0)
}

// again makes one more name of a file. It finds the file in the directory [Options].Links, because
// the path of the file's first name can be longer than the kernel's limit for paths.
func (l *loader) again(dir int, r *record) error {
	left := l.links[r.link]
	if left == 0 {
		l.d.damaged("a file has more names than it had")
		return l.d.err
	}
	links, name := int(l.o.Links.Fd()), strconv.FormatUint(r.link, 10)
	if left > 1 {
		l.links[r.link]--
		return unix.Linkat(links, name, dir, r.name, 0)
	}
	delete(l.links, r.link)
	return unix.Renameat(links, name, dir, r.name)
}

func (l *loader) regular(dir int, r *record) error {
	fd, err := unix.Openat(dir, r.name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), r.name)
	defer f.Close()
	if err := f.Truncate(r.size); err != nil {
		return err
	}
	for {
		n, at := int64(l.d.number(maxSize)), int64(l.d.number(maxSize))
		if l.d.err != nil || n == 0 {
			break
		}
		if n > r.size || at > r.size-n {
			l.d.damaged("a file is longer than it was")
			break
		}
		w := struct{ io.Writer }{io.NewOffsetWriter(f, at)}
		if _, err := io.CopyBuffer(w, struct{ io.Reader }{io.LimitReader(l.d, n)}, l.buffer); err != nil {
			return err
		}
	}
	if l.d.err != nil {
		return l.d.err
	}
	return l.finish(fd, r)
}

// finish gives an open file the attributes of its record. The order matters: a change of the owner
// removes some of the other attributes, and a mode may lock out the owner.
func (l *loader) finish(fd int, r *record) error {
	if !l.o.Owned {
		if err := unix.Fchown(fd, int(r.uid), int(r.gid)); err != nil {
			return os.NewSyscallError("fchown", err)
		}
	}
	for _, a := range r.attrs {
		name, wanted := l.attribute(a)
		if !wanted {
			continue
		}
		if err := unix.Fsetxattr(fd, name, []byte(a.value), 0); err != nil {
			return fmt.Errorf("set attribute %.300q: %w", a.name, err)
		}
	}
	if err := unix.Fchmod(fd, l.mode(r)); err != nil {
		return os.NewSyscallError("fchmod", err)
	}
	times := r.times()
	// Without a name the call changes the descriptor's file.
	if _, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&times[0])), 0, 0, 0); errno != 0 {
		return os.NewSyscallError("utimensat", errno)
	}
	return nil
}

// attribute returns the name of an attribute at the destination. wanted reports whether the
// destination keeps the attribute.
func (l *loader) attribute(a attr) (name string, wanted bool) {
	if !strings.HasPrefix(a.name, overlayAttr) {
		return a.name, true
	}
	rest, escaped := strings.CutPrefix(a.name, escapedAttr)
	if l.plain {
		return overlayAttr + rest, escaped
	}
	return a.name, escaped || a.name == opaqueAttr && a.value == "y" // another value has another meaning
}

// finishAt is like finish, but for a file that cannot be opened.
func (l *loader) finishAt(dir int, r *record) error {
	if !l.o.Owned {
		if err := unix.Fchownat(dir, r.name, int(r.uid), int(r.gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return os.NewSyscallError("fchownat", err)
		}
	}
	if r.kind != symlink { // a symlink has no mode
		if err := unix.Fchmodat(dir, r.name, l.mode(r), 0); err != nil {
			return os.NewSyscallError("fchmodat", err)
		}
	}
	if err := unix.UtimesNanoAt(dir, r.name, r.times(), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return os.NewSyscallError("utimensat", err)
	}
	return nil
}

// mode returns the mode for a file.
func (l *loader) mode(r *record) uint32 {
	if l.o.Owned {
		return r.mode &^ (unix.S_ISUID | unix.S_ISGID)
	}
	return r.mode
}

func (r *record) times() []unix.Timespec {
	return []unix.Timespec{{Sec: r.atime[0], Nsec: r.atime[1]}, {Sec: r.mtime[0], Nsec: r.mtime[1]}}
}
