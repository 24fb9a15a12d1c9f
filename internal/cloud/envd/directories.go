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

// makeDirs creates path and its missing parents, owned by user.
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
		return nil // somebody else created it first, and owns it
	} else if err != nil {
		return err
	}
	return owned(user, os.Lchown(path, int(user.UID), int(user.GID)))
}

// owned filters the error of changing an owner to u. Where the sandbox has a
// single id, everything already belongs to it, and the kernel may refuse to set
// the owner again.
func owned(u *User, err error) error {
	if u.Credential == nil && errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

// openDir opens a directory. It opens nothing else that has taken its name,
// such as a pipe.
func openDir(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY, 0)
}
