//go:build linux

package layer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// Merge makes files in to, an empty directory: the files that are visible in an overlay of the
// directories in from. The highest directory is the first in from. Merge does not copy files, but
// gives each file one more name; therefore all directories must be on one mount. below means that
// there are other layers below the merged layer, so that whiteouts and opaque directories must be
// kept.
func Merge(to *os.File, from []*os.File, below bool) error {
	return mergeDirectory(to, from, below, "/", 0)
}

// maxDepth bounds the depth of directories, because each level needs a descriptor for every layer.
const maxDepth = 4000

// mergeDirectory merges the directories in from into to. Afterwards, to has the attributes of the
// highest directory in from.
func mergeDirectory(to *os.File, from []*os.File, below bool, in string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%.1000q: it is more than %d directories deep", in, maxDepth)
	}
	whiteouts, seen := false, make(map[string]bool)
	for i, dir := range from {
		for {
			names, err := dir.Readdirnames(1000)
			for _, name := range names {
				if seen[name] {
					continue
				}
				if len(from) > 1 {
					seen[name] = true
				}
				whiteout, err := mergeEntry(to, name, from[i:], below, path.Join(in, name), depth)
				if err != nil {
					return err
				}
				whiteouts = whiteouts || whiteout
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("%.1000q: %w", in, err)
			}
		}
	}
	err := CopyAttributes(from[0], to)
	if whiteouts && err == nil {
		err = setWhiteouts(to)
	}
	if err != nil {
		return fmt.Errorf("%.1000q: %w", in, err)
	}
	return nil
}

// mergeEntry makes the entry called name in the directory to, with all files below the entry. It
// makes the entry as it is in the first of the directories in from. mergeEntry reports whether it
// made a whiteout.
func mergeEntry(to *os.File, name string, from []*os.File, below bool, in string, depth int) (whiteout bool, err error) {
	var stat unix.Stat_t
	if err := unix.Fstatat(int(from[0].Fd()), name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, fmt.Errorf("%.1000q: %w", in, err)
	}
	if stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		return false, mergeSubdirectory(to, name, from, below, in, depth)
	}
	if whiteout = isWhiteout(&stat); whiteout && !below {
		return false, nil // there is nothing to hide
	}
	if err := unix.Linkat(int(from[0].Fd()), name, int(to.Fd()), name, 0); err != nil {
		return false, fmt.Errorf("%.1000q: link: %w", in, err)
	}
	return whiteout, nil
}

func mergeSubdirectory(to *os.File, name string, from []*os.File, below bool, in string, depth int) error {
	dirs, hides, err := together(name, from)
	defer func() {
		for _, d := range dirs {
			d.Close()
		}
	}()
	if err != nil {
		return fmt.Errorf("%.1000q: %w", in, err)
	}
	sub, err := makeIn(to, name, hides && below)
	if err != nil {
		return fmt.Errorf("%.1000q: %w", in, err)
	}
	defer sub.Close()
	return mergeDirectory(sub, dirs, below && !hides, in, depth+1)
}

func makeIn(dir *os.File, name string, opaque bool) (sub *os.File, err error) {
	if err := unix.Mkdirat(int(dir.Fd()), name, 0o700); err != nil {
		return nil, os.NewSyscallError("mkdir", err)
	}
	if sub, err = openIn(dir, name); err != nil || !opaque {
		return sub, err
	}
	if err := setOpaque(sub); err != nil {
		return nil, errors.Join(err, sub.Close())
	}
	return sub, nil
}

// together opens the directories called name that an overlay merges into one directory. hides
// reports whether these directories hide the layers below.
func together(name string, from []*os.File) (dirs []*os.File, hides bool, err error) {
	for _, dir := range from {
		var stat unix.Stat_t
		err := unix.Fstatat(int(dir.Fd()), name, &stat, unix.AT_SYMLINK_NOFOLLOW)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return dirs, false, err
		}
		if stat.Mode&unix.S_IFMT != unix.S_IFDIR {
			return dirs, true, nil
		}
		d, err := openIn(dir, name)
		if err != nil {
			return dirs, false, err
		}
		dirs = append(dirs, d)
		if opaque, err := isOpaque(d); opaque || err != nil {
			return dirs, true, err
		}
	}
	return dirs, false, nil
}

func isWhiteout(stat *unix.Stat_t) bool {
	return stat.Mode&unix.S_IFMT == unix.S_IFCHR && stat.Rdev == 0
}

func openIn(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NOATIME|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
