package mcp

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/lockedfile"

	"github.com/e2bctl/e2bctl/internal/privatedir"
)

// errChanged means that another program changed a configuration after readConfig read it.
var errChanged = errors.New("the file changed meanwhile")

// configFile is a configuration file as readConfig found it.
type configFile struct {
	path string      // the path of the file, with symbolic links resolved
	text []byte      // the content of the file; empty if there is no file
	info fs.FileInfo // the description of the file; nil if there is no file
}

// readConfig reads a configuration. It treats a missing file as an empty one. It returns an error
// for a file that replace could not replace, such as a read-only one.
func readConfig(path string) (configFile, error) {
	there, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		if to, err := os.Readlink(path); err == nil {
			return configFile{}, fmt.Errorf("%s is a link to %s, which does not exist: make that file, or remove the link", path, to)
		}
		return configFile{path: path}, nil
	}
	if err != nil {
		return configFile{}, err
	}
	info, err := os.Stat(there)
	if err != nil {
		return configFile{}, err
	}
	switch {
	case !info.Mode().IsRegular():
		return configFile{}, fmt.Errorf("%s is a %s, not a file: move it away", path, kindOf(info))
	case info.Mode().Perm()&0o200 == 0:
		return configFile{}, fmt.Errorf("%s is read-only: make it writable, or add the output of --print to the file from which it is made", path)
	}
	text, err := os.ReadFile(there)
	return configFile{there, text, info}, err
}

func kindOf(info fs.FileInfo) string {
	if info.IsDir() {
		return "directory"
	}
	return "device or pipe"
}

// backup returns the name of the backup of a configuration.
func (c configFile) backup() string { return c.path + ".e2bctl-backup" }

// replace replaces the configuration by text, completely or not at all. It writes the earlier text
// to a backup in the same directory, and creates a missing directory. It returns the name of the
// backup, or "" if there was no earlier text. If the configuration has changed since it was read,
// replace writes nothing and returns errChanged.
func (c configFile) replace(text []byte, isProject bool) (backup string, err error) {
	dirMode, fileMode := fs.FileMode(0o700), fs.FileMode(0o600)
	if isProject {
		dirMode, fileMode = 0o755, 0o644
	}
	unlock, err := lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	if now, err := os.ReadFile(c.path); !bytes.Equal(now, c.text) || (err == nil) != (c.info != nil) {
		return "", errChanged
	}
	if err := os.MkdirAll(filepath.Dir(c.path), dirMode); err != nil {
		return "", err
	}
	if c.info != nil {
		backup, fileMode = c.backup(), c.info.Mode().Perm()
		if err := c.write(backup, c.text, fileMode); err != nil {
			return "", fmt.Errorf("keep a backup: %w", err)
		}
	}
	return backup, c.write(c.path, text, fileMode)
}

// lock keeps other processes of this user from replacing configurations.
func lock() (unlock func(), err error) {
	dir, err := privatedir.Make("mcp", privatedir.Runtime, privatedir.Cache, privatedir.Temporary)
	if err != nil {
		return nil, err
	}
	return lockedfile.MutexAt(filepath.Join(dir, "install.lock")).Lock()
}

// write writes a file atomically. The file gets the owner of the configuration.
func (c configFile) write(name string, text []byte, mode fs.FileMode) error {
	beside := filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+"."+rand.Text())
	file, err := os.OpenFile(beside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = file.Write(text)
	if err == nil {
		err = file.Chmod(mode)
	}
	if err == nil && c.info != nil {
		err = keepOwner(file, c.info)
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(beside, name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(beside))
	}
	return nil
}
