//go:build linux

package envd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// makeDirs creates path and its missing parents. The new directories belong to user.
func makeDirs(path string, user *User) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return fmt.Errorf("path is a file: %s", path)
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR):
		return err
	}
	if parent := filepath.Dir(path); parent != path {
		if err := makeDirs(parent, user); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o755); errors.Is(err, fs.ErrExist) {
		return nil // another process created the directory first, and owns it
	} else if err != nil {
		return err
	}
	return owned(user, os.Lchown(path, int(user.UID), int(user.GID)))
}

// owned returns err, the error of changing an owner to u. It returns nil if the error can be
// ignored. If the sandbox has a single id, the error can be ignored: every file already has this
// owner, and the kernel may still refuse to set the owner.
func owned(u *User, err error) error {
	if u.Credential == nil && errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

// openDir opens a directory. It fails for anything else that now has this path, such as a pipe.
func openDir(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
}
