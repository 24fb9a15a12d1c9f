//go:build unix

package pyenv

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// umask returns a command that runs argv with a umask of 022, so that only the owner can write
// to new files. Go cannot set the umask of a child process alone.
func umask(argv []string) []string {
	return append([]string{"/bin/sh", "-c", `umask 022 && exec "$@"`, "sh"}, argv...)
}

// makeCache creates the cache directory. If the directory exists, makeCache removes the rights of
// other users. Other users must not write to the cache. They may read it only if the cache belongs
// to root, because root's sandboxes may run with user ids that have no rights.
func makeCache(cache string, report *reporter) error {
	closed := fs.FileMode(0o077)
	if os.Geteuid() == 0 {
		closed = 0o022
	}
	if err := os.MkdirAll(cache, 0o777&^closed); err != nil {
		return fmt.Errorf("python: make the cache directory: %w", err)
	}
	// The parent also belongs to e2bctl: it contains the instances of the cloud.
	err := errors.Join(closeDirectory(cache, filepath.Dir(cache), 0o022, report), closeDirectory(cache, cache, closed, report))
	if err != nil {
		return fmt.Errorf("python: the cache directory: %w", err)
	}
	return nil
}

// closeDirectory removes from directory the permissions in closed. directory is the cache, or the
// directory that contains the cache. Once the permissions are removed, a later check could not
// detect that other users had these permissions. Therefore closeDirectory first removes the marker
// of each environment that other users could change. Without the marker, the environment is
// incomplete.
func closeDirectory(cache, directory string, closed fs.FileMode, report *reporter) error {
	info, err := os.Stat(directory)
	if err != nil {
		return err
	}
	if owner(info) != os.Geteuid() || info.Mode().Perm()&closed == 0 {
		return checkOwn(directory)
	}
	markers, err := findMarkers(cache, "*")
	if err != nil {
		return err
	}
	for _, name := range markers {
		if err := checkUnshared(filepath.Dir(name)); err != nil {
			report.line("%v: %v", errRefused, err)
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	return os.Chmod(directory, info.Mode().Perm()&^closed)
}

// checkUnshared returns an error if a user other than this one and root can change the environment
// in directory. Such an environment is not safe, because its files are executed as this user. If
// other users cannot reach the directory, checkUnshared checks no file. Otherwise, it checks every
// file.
func checkUnshared(directory string) error {
	directory, err := filepath.EvalSymlinks(directory)
	if err != nil {
		return err
	}
	cache := filepath.Dir(directory)
	for _, directory := range []string{filepath.Dir(cache), cache, directory} {
		if err := checkOwn(directory); err != nil {
			return err
		}
	}
	if unreachable(cache) {
		return nil
	}
	return filepath.WalkDir(directory, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return checkOwn(path)
	})
}

// checkOwn returns an error if a user other than this one and root owns the file at path, or may
// write to this file. For a symbolic link, checkOwn checks only the owner, because a link has no
// mode.
func checkOwn(path string) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return err
	case owner(info) != os.Geteuid() && owner(info) != 0:
		return fmt.Errorf("%s belongs to user %d", path, owner(info))
	case info.Mode().Type() != fs.ModeSymlink && info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others can write to %s (mode %v)", path, info.Mode())
	}
	return nil
}

// unreachable reports whether directory is inside a directory that only its owner can enter,
// and whose owner is this user or root. The path must not contain symbolic links.
func unreachable(directory string) bool {
	for {
		info, err := os.Lstat(directory)
		if err == nil && info.Mode().Perm()&0o011 == 0 && (owner(info) == os.Geteuid() || owner(info) == 0) {
			return true
		}
		parent := filepath.Dir(directory)
		if parent == directory {
			return false
		}
		directory = parent
	}
}

func owner(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }
