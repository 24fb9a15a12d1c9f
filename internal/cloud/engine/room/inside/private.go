//go:build linux

package inside

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxPrivate bounds the size of the list of the files to hide, in bytes. The sandbox's first stage
// reads this list.
const maxPrivate = 64 << 20

// readPrivate reads the list of the files to hide: paths, each with a zero byte at its end.
func readPrivate(f *os.File) (paths []string, err error) {
	defer f.Close()
	data, err := io.ReadAll(io.NewSectionReader(f, 0, maxPrivate))
	if err != nil {
		return nil, fmt.Errorf("read the list of hidden files: %w", err)
	}
	for path := range bytes.SplitSeq(data, []byte{0}) {
		if len(path) > 0 {
			paths = append(paths, string(path))
		}
	}
	return paths, nil
}

// below returns those of the paths that are in the tree, relative to the tree.
func below(tree string, paths []string) (names []string) {
	for _, path := range paths {
		if name, found := strings.CutPrefix(path, tree+"/"); found {
			names = append(names, name)
		}
	}
	return names
}

// whiteOut hides files in an overlay of lower and upper, before the overlay is mounted. names are the
// paths of the files, relative to lower. whiteOut makes the parent directories of the files in upper,
// with the same properties as in lower.
func whiteOut(lower, upper string, names []string) error {
	var made []string
	for _, name := range names {
		parents, hidden, err := copyParents(lower, upper, name)
		if err != nil {
			return err
		}
		made = append(made, parents...)
		if hidden {
			continue
		}
		// For the overlay, this device means that the file does not exist. If upper already has a
		// file at this path, that is shown instead; a file that is gone from lower needs no
		// device.
		err = unix.Mknod(filepath.Join(upper, name), unix.S_IFCHR, 0)
		if err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("hide %s: %w", name, err)
		}
	}
	for _, name := range made { // their times are set when no more files are made in them
		var stat unix.Stat_t
		if err := unix.Lstat(filepath.Join(lower, name), &stat); err != nil {
			continue // it is gone, so its time need not be set
		}
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(upper, name), []unix.Timespec{stat.Atim, stat.Mtim}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fmt.Errorf("set the time of %s: %w", name, err)
		}
	}
	return nil
}

// copyParents makes the parent directories of name in upper, and returns the new directories. It
// stops at a parent that no longer exists in lower, because name then does not exist either. hidden
// is true if upper has a file, a link or a whiteout in place of a parent. copyParents follows none
// of these.
func copyParents(lower, upper, name string) (made []string, hidden bool, err error) {
	for i, c := range []byte(name) {
		if c != '/' {
			continue
		}
		parent := name[:i]
		var stat unix.Stat_t
		err := unix.Lstat(filepath.Join(lower, parent), &stat)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || err == nil && stat.Mode&unix.S_IFMT != unix.S_IFDIR {
			break
		}
		if err != nil {
			return made, false, fmt.Errorf("look at %s: %w", parent, err)
		}
		to := filepath.Join(upper, parent)
		err = unix.Mkdir(to, 0o700)
		if errors.Is(err, fs.ErrExist) {
			info, err := os.Lstat(to)
			if err != nil || !info.IsDir() {
				return made, true, err
			}
			continue
		}
		if err == nil {
			err = errors.Join(unix.Chown(to, int(stat.Uid), int(stat.Gid)), unix.Chmod(to, stat.Mode&0o7777))
		}
		if err != nil {
			return made, false, fmt.Errorf("make %s: %w", parent, err)
		}
		made = append(made, parent)
	}
	return made, false, nil
}
