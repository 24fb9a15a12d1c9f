//go:build linux

package layer

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks bounds the number of symbolic links in the resolution of one name. The kernel has the same
// bound.
const maxLinks = 40

// nested is an open directory of the layer being made.
type nested struct {
	dir  *os.File
	name string
	path string // path from the root, without a leading slash
	// times are set when the directory is left, because making files in it changes them.
	times     []unix.Timespec
	alone     bool // the directory hides the same directory of the layers below
	whiteouts bool // the directory contains new whiteouts
	// below contains the indices, in Below, of the layers in which the directory is visible,
	// highest first. It is set only after these layers have been looked up.
	below  []int
	looked bool
}

func (u *untar) current() *nested { return u.path[len(u.path)-1] }
func (u *untar) fd() int          { return int(u.current().dir.Fd()) }

// openRoot enters the root of the layer, and gives it the attributes that it has in the layers
// below.
func (u *untar) openRoot() error {
	dir, err := OpenDir(u.o.To, ".")
	if err != nil {
		return err
	}
	root := &nested{dir: dir, looked: true}
	for i := range u.o.Below {
		root.below = append(root.below, i)
	}
	u.path = []*nested{root}
	if len(u.o.Below) == 0 {
		root.times = make([]unix.Timespec, 2)
		return os.NewSyscallError("fchmod", unix.Fchmod(u.fd(), 0o755))
	}
	return u.copyBelow(root, 0)
}

// copyBelow gives a directory the attributes that it has in one of the layers below.
func (u *untar) copyBelow(d *nested, i int) error {
	from, err := OpenDir(u.o.Below[i], cmp.Or(d.path, "."))
	if err != nil {
		return err
	}
	defer from.Close()
	if err := CopyAttributes(from, d.dir); err != nil {
		return err
	}
	return d.noteTimes()
}

// noteTimes stores the present times of a directory, to be restored later.
func (d *nested) noteTimes() error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(d.dir.Fd()), &stat); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	d.times = []unix.Timespec{stat.Atim, stat.Mtim}
	return nil
}

// leave leaves the innermost open directories, until n directories are open.
func (u *untar) leave(n int) error {
	for len(u.path) > n {
		d := u.current()
		u.path = u.path[:len(u.path)-1]
		if err := errors.Join(d.finish(), d.dir.Close()); err != nil {
			return fmt.Errorf("%.1000q: %w", d.path, err)
		}
	}
	return nil
}

func (d *nested) finish() error {
	if d.whiteouts {
		if err := setWhiteouts(d.dir); err != nil {
			return err
		}
	}
	return setTimes(int(d.dir.Fd()), d.times)
}

func (u *untar) close() {
	for _, d := range u.path {
		d.dir.Close()
	}
}

// enter makes a directory the current directory. It makes missing directories of the path with the
// attributes that they have in the layers below, and follows symbolic links inside the image.
func (u *untar) enter(names []string) error {
	common := 0
	for common < min(len(names), len(u.path)-1) && u.path[common+1].name == names[common] {
		common++
	}
	if err := u.leave(common + 1); err != nil {
		return err
	}
	links, rest := 0, names[common:]
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if name == ".." { // it comes from a link; the parent of the root is the root
			if err := u.leave(max(1, len(u.path)-1)); err != nil {
				return err
			}
			continue
		}
		target, err := u.step(name)
		if err != nil {
			return fmt.Errorf("its directory %.1000q: %w", path.Join(u.current().path, name), err)
		}
		if target == "" {
			continue
		}
		if links++; links > maxLinks {
			return unix.ELOOP
		}
		if strings.HasPrefix(target, "/") {
			if err := u.leave(1); err != nil {
				return err
			}
		}
		ahead := slices.DeleteFunc(strings.Split(target, "/"), func(p string) bool { return p == "" || p == "." })
		rest = append(ahead, rest...)
	}
	return nil
}

// step enters the subdirectory name of the current directory. If name is a symbolic link, step
// returns the link's target instead.
func (u *untar) step(name string) (target string, err error) {
	var stat unix.Stat_t
	err = unix.Fstatat(u.fd(), name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		return u.stepBelow(name)
	case err != nil:
		return "", err
	case isWhiteout(&stat):
		if err := unix.Unlinkat(u.fd(), name, 0); err != nil {
			return "", err
		}
		return "", u.add(name, true)
	case stat.Mode&unix.S_IFMT == unix.S_IFLNK:
		return readLink(u.fd(), name)
	case stat.Mode&unix.S_IFMT != unix.S_IFDIR:
		return "", unix.ENOTDIR
	}
	return "", u.push(name)
}

// stepBelow is like step, but for a name that is not in the layer itself and may be in a layer
// below.
func (u *untar) stepBelow(name string) (target string, err error) {
	found, err := u.lookBelow(len(u.path)-1, name)
	if err != nil {
		return "", err
	}
	switch found.kind() {
	case 0:
		return "", u.add(name, false)
	case unix.S_IFLNK:
		dir, err := OpenDir(u.o.Below[found.in], cmp.Or(u.current().path, "."))
		if err != nil {
			return "", err
		}
		defer dir.Close()
		return readLink(int(dir.Fd()), name)
	case unix.S_IFDIR:
		if err := u.add(name, false); err != nil {
			return "", err
		}
		d := u.current()
		d.below, d.looked = found.dirs, true
		return "", u.copyBelow(d, found.in)
	}
	return "", unix.ENOTDIR
}

func readLink(dir int, name string) (target string, err error) {
	text := make([]byte, maxPath+1)
	n, err := unix.Readlinkat(dir, name, text)
	return string(text[:max(n, 0)]), err
}

// add makes a directory with unknown attributes, and enters it. instead means that the directory
// replaces a file, and therefore hides the layers below.
func (u *untar) add(name string, instead bool) error {
	if err := unix.Mkdirat(u.fd(), name, 0o755); err != nil {
		return err
	}
	if err := u.push(name); err != nil {
		return err
	}
	u.current().times = make([]unix.Timespec, 2)
	if instead {
		return u.hideBelow()
	}
	return nil
}

// hideBelow makes the current directory hide the layers below.
func (u *untar) hideBelow() error {
	d := u.current()
	d.alone, d.below, d.looked = true, nil, true
	if len(u.o.Below) == 0 {
		return nil
	}
	return setOpaque(d.dir)
}

// push enters a subdirectory of the current directory. The subdirectory must exist in the layer
// itself, not only in a layer below.
func (u *untar) push(name string) error {
	if len(u.path) > maxNested {
		return fmt.Errorf("it is more than %d directories deep", maxNested)
	}
	dir, err := openIn(u.current().dir, name)
	if err != nil {
		return err
	}
	d := &nested{dir: dir, name: name, path: path.Join(u.current().path, name)}
	u.path = append(u.path, d)
	if len(u.o.Below) > 0 {
		if d.alone, err = isOpaque(dir); err != nil {
			return err
		}
	}
	return d.noteTimes()
}

// found is the result of looking up a name in the layers below. If the name is a directory, dirs
// are all layers with a directory that an overlay merges into this directory.
type found struct {
	stat *unix.Stat_t // status of the file; nil if there is no such file
	in   int          // the index in Below of the layer that has the file
	dirs []int
}

func (f found) kind() uint32 {
	if f.stat == nil {
		return 0
	}
	return f.stat.Mode & unix.S_IFMT
}

// lookBelow looks up a name in the layers below. The name belongs to the open directory number n.
func (u *untar) lookBelow(n int, name string) (f found, err error) {
	shown, err := u.shownBelow(n)
	if err != nil {
		return f, err
	}
	at := path.Join(u.path[n].path, name)
	for _, i := range shown {
		stat, err := statIn(u.o.Below[i], at)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return f, err
		}
		isDir := stat.Mode&unix.S_IFMT == unix.S_IFDIR
		if f.stat == nil && !isWhiteout(stat) {
			f.stat, f.in = stat, i
		}
		if !isDir {
			return f, nil
		}
		f.dirs = append(f.dirs, i)
		if hides, err := hidesBelow(u.o.Below[i], at); hides || err != nil {
			return f, err
		}
	}
	return f, nil
}

// shownBelow returns the indices, in Below, of the lower layers with content that is visible in the
// open directory number n.
func (u *untar) shownBelow(n int) ([]int, error) {
	d := u.path[n]
	if d.looked || d.alone {
		return d.below, nil
	}
	f, err := u.lookBelow(n-1, d.name) // the root is known already
	if err != nil {
		return nil, err
	}
	d.below, d.looked = f.dirs, true
	return d.below, nil
}

func statIn(dir *os.File, at string) (*unix.Stat_t, error) {
	fd, err := unix.Openat2(int(dir.Fd()), at, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	var stat unix.Stat_t
	return &stat, unix.Fstat(fd, &stat)
}

func hidesBelow(dir *os.File, at string) (bool, error) {
	d, err := OpenDir(dir, at)
	if err != nil {
		return false, err
	}
	defer d.Close()
	return isOpaque(d)
}
