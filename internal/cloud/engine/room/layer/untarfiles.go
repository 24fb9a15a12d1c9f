//go:build linux

package layer

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	nobody         = 65534 // the kernel shows this id as the owner of files with unknown ids
	capabilityAttr = "security.capability"
	tarAttr        = "SCHILY.xattr." // the prefix of an attribute's name in an archive
	unknownMode    = -1
)

// clear removes a name of the layer from the current directory, and reports whether it existed.
func (u *untar) clear(name string) (had bool, err error) {
	err = removeAll(u.current().dir, name)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

// anew calls create, which makes name in the current directory. If name exists, anew removes it
// and calls create again.
func (u *untar) anew(name string, create func() error) (instead bool, err error) {
	if err := create(); !errors.Is(err, unix.EEXIST) {
		return false, err
	}
	if _, err := u.clear(name); err != nil {
		return true, err
	}
	return true, create()
}

func removeAll(dir *os.File, name string) error {
	err := unix.Unlinkat(int(dir.Fd()), name, 0)
	if !errors.Is(err, unix.EISDIR) {
		return err
	}
	sub, err := openIn(dir, name)
	if err != nil {
		return err
	}
	defer sub.Close()
	for {
		names, err := sub.Readdirnames(1000)
		for _, n := range names {
			if err := removeAll(sub, n); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR)
		}
		if err != nil {
			return err
		}
	}
}

// opaque makes the current directory hide the content of the same directory in the layers below.
func (u *untar) opaque() error {
	if len(u.path) > 1 {
		return u.hideBelow()
	}
	for _, dir := range u.o.Below { // an overlay ignores the mark on its root
		if err := u.removeEach(dir); err != nil {
			return err
		}
	}
	return u.leave(1)
}

// removeEach hides all names in root, the root directory of one of the layers below.
func (u *untar) removeEach(root *os.File) error {
	dir, err := OpenDir(root, ".")
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	for _, name := range names {
		if err := u.leave(1); err != nil {
			return err
		}
		if err := u.remove(name); err != nil {
			return err
		}
	}
	return err
}

// remove hides a name of the current directory in the layers below. If the layer itself has a file
// with that name, the file stays.
func (u *untar) remove(name string) error {
	if name == "" || name == "." || name == ".." {
		return errors.New("it removes nothing that has a name")
	}
	var stat unix.Stat_t
	err := unix.Fstatat(u.fd(), name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		return u.whiteout(name)
	case err != nil || stat.Mode&unix.S_IFMT != unix.S_IFDIR:
		return err
	}
	if err := u.push(name); err != nil {
		return err
	}
	return u.hideBelow()
}

// hide removes a name of the current directory from the layer and hides it in the layers below.
func (u *untar) hide(name string) error {
	if _, err := u.clear(name); err != nil {
		return err
	}
	return u.whiteout(name)
}

// whiteout hides a name of the layers below. If no layer below has the name, whiteout does nothing.
// The layer itself must not have the name.
func (u *untar) whiteout(name string) error {
	f, err := u.lookBelow(len(u.path)-1, name)
	if err != nil || f.stat == nil {
		return err
	}
	u.current().whiteouts = true
	return unix.Mknodat(u.fd(), name, unix.S_IFCHR|0o600, 0)
}

// directory enters a directory and gives it the attributes of an entry.
func (u *untar) directory(name string, h *tar.Header) error {
	var stat unix.Stat_t
	err := unix.Fstatat(u.fd(), name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		err = u.add(name, false)
	case err != nil:
	case stat.Mode&unix.S_IFMT == unix.S_IFDIR:
		err = u.push(name)
	default:
		if _, err = u.clear(name); err == nil {
			err = u.add(name, true)
		}
	}
	if err != nil {
		return err
	}
	return u.describe(h)
}

// describe gives the current directory the attributes of an entry.
func (u *untar) describe(h *tar.Header) error {
	d := u.current()
	names, err := attributes(d.dir)
	if err != nil {
		return err
	}
	for _, name := range names { // they come from a layer below, or from an earlier entry
		if strings.HasPrefix(name, overlayAttr) {
			continue
		}
		if err := unix.Fremovexattr(u.fd(), name); err != nil {
			return os.NewSyscallError("fremovexattr", err)
		}
	}
	if err := u.attributes(u.fd(), h, unknownMode); err != nil {
		return err
	}
	d.times = tarTimes(h)
	return nil
}

func (u *untar) regular(name string, h *tar.Header, r io.Reader) error {
	if u.left -= h.Size; u.left < 0 {
		return fmt.Errorf("the files of the layer have more than %d GiB", int64(maxFiles>>30))
	}
	fd := -1
	_, err := u.anew(name, func() (err error) {
		fd, err = unix.Openat(u.fd(), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, uint32(h.Mode&0o777))
		return err
	})
	if err != nil {
		return err
	}
	err = u.fill(fd, h.Size, r)
	if err == nil {
		err = u.attributes(fd, h, h.Mode&0o777)
	}
	if err == nil {
		err = setTimes(fd, tarTimes(h))
	}
	return errors.Join(err, os.NewSyscallError("close", unix.Close(fd)))
}

var zeros [64 << 10]byte

// fill writes a file. Zeros become a hole.
func (u *untar) fill(fd int, size int64, r io.Reader) error {
	hole := false
	for at := int64(0); at < size; {
		n, err := io.ReadFull(r, u.buffer[:min(size-at, int64(len(u.buffer)))])
		if err != nil {
			return err
		}
		for chunk := range slices.Chunk(u.buffer[:n], len(zeros)) {
			if hole = len(chunk) == len(zeros) && bytes.Equal(chunk, zeros[:]); hole {
				at += int64(len(chunk))
				continue
			}
			if err := writeAt(fd, chunk, at); err != nil {
				return err
			}
			at += int64(len(chunk))
		}
	}
	if hole {
		return os.NewSyscallError("ftruncate", unix.Ftruncate(fd, size))
	}
	return nil
}

func writeAt(fd int, p []byte, at int64) error {
	for len(p) > 0 {
		n, err := unix.Pwrite(fd, p, at)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return os.NewSyscallError("write", err)
		}
		p, at = p[n:], at+int64(n)
	}
	return nil
}

// special makes a symbolic link or a FIFO. It sets the attributes of the new file without opening
// the file.
func (u *untar) special(name string, h *tar.Header, create func() error) error {
	if _, err := u.anew(name, create); err != nil {
		return err
	}
	uid, gid, mode := u.owner(h)
	if uid != 0 || gid != 0 {
		if err := unix.Fchownat(u.fd(), name, uid, gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return os.NewSyscallError("fchownat", err)
		}
	}
	if h.Typeflag != tar.TypeSymlink { // a symlink has no mode
		if err := unix.Fchmodat(u.fd(), name, mode, 0); err != nil {
			return os.NewSyscallError("fchmodat", err)
		}
	}
	return os.NewSyscallError("utimensat", unix.UtimesNanoAt(u.fd(), name, tarTimes(h), unix.AT_SYMLINK_NOFOLLOW))
}

// link makes one more name for a file of this layer or of a layer below.
func (u *untar) link(parents []string, name, target string) error {
	names, err := splitName(target)
	if err != nil {
		return fmt.Errorf("it is a link to %.1000q: %w", target, err)
	}
	if len(names) == 0 {
		return errors.New("it is a link to the root")
	}
	last := names[len(names)-1]
	from, err := u.openTarget(names[:len(names)-1], last)
	if err != nil {
		return fmt.Errorf("it is a link to %.1000q: %w", target, err)
	}
	defer from.Close()
	if err := u.enter(parents); err != nil {
		return err
	}
	same, err := sameFile(from, last, u.current().dir, name)
	if same || err != nil { // removing one of two names of the same file could remove the other
		return err
	}
	_, err = u.anew(name, func() error { return unix.Linkat(int(from.Fd()), last, u.fd(), name, 0) })
	if err != nil {
		return fmt.Errorf("it is a link to %.1000q: %w", target, err)
	}
	return nil
}

// openTarget opens the directory that contains the target of a hard link.
func (u *untar) openTarget(parents []string, name string) (*os.File, error) {
	if err := u.enter(parents); err != nil {
		return nil, err
	}
	var stat unix.Stat_t
	err := unix.Fstatat(u.fd(), name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		f, err := u.lookBelow(len(u.path)-1, name)
		if err != nil {
			return nil, err
		}
		if f.stat == nil {
			return nil, unix.ENOENT
		}
		return OpenDir(u.o.Below[f.in], cmp.Or(u.current().path, "."))
	case err != nil:
		return nil, err
	case isWhiteout(&stat):
		return nil, unix.ENOENT
	}
	return OpenDir(u.current().dir, ".")
}

// sameFile reports whether two names lead to the same file. The second name may lead to no file.
func sameFile(in *os.File, name string, other *os.File, second string) (bool, error) {
	var a, b unix.Stat_t
	if err := unix.Fstatat(int(in.Fd()), name, &a, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, err
	}
	err := unix.Fstatat(int(other.Fd()), second, &b, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil && a.Dev == b.Dev && a.Ino == b.Ino, err
}

// owner returns the ids of an entry and its mode.
func (u *untar) owner(h *tar.Header) (uid, gid int, mode uint32) {
	uid, gid, mode = h.Uid, h.Gid, uint32(h.Mode&0o7777)
	if u.o.IDs == 1 {
		return 0, 0, mode
	}
	if uid < 0 || uid >= u.o.IDs {
		uid, mode = nobody, mode&^unix.S_ISUID
	}
	if gid < 0 || gid >= u.o.IDs {
		gid, mode = nobody, mode&^unix.S_ISGID
	}
	return uid, gid, mode
}

// attributes sets the owner, the extended attributes and the mode of an open file. This process
// made the file with the mode in made. The owner is set first, because a change of the owner
// removes some of the other attributes.
func (u *untar) attributes(fd int, h *tar.Header, made int64) error {
	uid, gid, mode := u.owner(h)
	if uid != 0 || gid != 0 || h.Typeflag == tar.TypeDir {
		if err := u.chown(fd, uid, gid); err != nil {
			return err
		}
	}
	for key, value := range h.PAXRecords {
		name, is := strings.CutPrefix(key, tarAttr)
		if !is || !wantedAttribute(name, h.Typeflag == tar.TypeDir) {
			continue
		}
		if err := unix.Fsetxattr(fd, name, []byte(value), 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
			return fmt.Errorf("set attribute %.300q: %w", name, err)
		}
	}
	if int64(mode) == made {
		return nil
	}
	return os.NewSyscallError("fchmod", unix.Fchmod(fd, mode))
}

func (u *untar) chown(fd, uid, gid int) error {
	if u.o.IDs == 1 {
		return nil
	}
	return os.NewSyscallError("fchown", unix.Fchown(fd, uid, gid))
}

// wantedAttribute reports whether an attribute of an image is kept. An overlay's attributes would
// affect our own overlay.
func wantedAttribute(name string, dir bool) bool {
	return name == capabilityAttr && !dir || strings.HasPrefix(name, "user.") && !strings.HasPrefix(name, overlayAttr)
}

func tarTimes(h *tar.Header) []unix.Timespec {
	of := unix.Timespec{Sec: h.ModTime.Unix(), Nsec: int64(h.ModTime.Nanosecond())}
	return []unix.Timespec{of, of}
}

func setTimes(fd int, times []unix.Timespec) error {
	// Without a name the call changes the descriptor's file.
	if _, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&times[0])), 0, 0, 0); errno != 0 {
		return os.NewSyscallError("utimensat", errno)
	}
	return nil
}
