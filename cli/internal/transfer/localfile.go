package transfer

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// writeLocal writes a file of this machine. The file appears only when all of r has been read.
// Until then an earlier file remains. writeLocal creates missing directories. If name exists and is
// not a regular file, but for example a terminal or a pipe, writeLocal writes to it directly. An
// existing file keeps its permissions. A new file is executable if mode is executable.
func writeLocal(name string, r io.Reader, mode fs.FileMode) error {
	permissions := 0o666 | mode&0o111
	if there, err := filepath.EvalSymlinks(name); err == nil {
		name = there
	}
	there, err := os.Stat(name)
	switch {
	case err == nil && !there.Mode().IsRegular():
		return writeTo(name, os.O_WRONLY, 0, r)
	case errors.Is(err, fs.ErrNotExist):
		err = os.MkdirAll(filepath.Dir(name), 0o755)
	}
	if err != nil {
		return err
	}
	beside := filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+"."+rand.Text())
	if err := writeTo(beside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, permissions, r); err != nil {
		return errors.Join(err, removed(beside))
	}
	if there != nil {
		err = os.Chmod(beside, there.Mode().Perm())
	}
	if err == nil {
		err = os.Rename(beside, name)
	}
	if err != nil {
		return errors.Join(err, removed(beside))
	}
	return nil
}

// writeTo writes the bytes of r to a file that it opens with flags.
func writeTo(name string, flags int, permissions fs.FileMode, r io.Reader) error {
	file, err := os.OpenFile(name, flags, permissions)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, r)
	return errors.Join(err, file.Close())
}

// removed removes a file. It returns nil if the file does not exist.
func removed(name string) error {
	if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
