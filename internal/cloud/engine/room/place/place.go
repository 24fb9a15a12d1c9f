//go:build linux

package place

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Root is the root directory of a sandbox without namespaces.
type Root struct {
	Dir        string `json:"dir,omitempty"` // directory that contains home and tmp
	Restricted bool   `json:"restricted,omitempty"`
}

// Home returns the home of the sandbox's users.
func (p Root) Home() string { return filepath.Join(p.Dir, "home", "user") }

// Temp returns the directory for temporary files.
func (p Root) Temp() string { return filepath.Join(p.Dir, "tmp") }

// Run returns the directory for envd's own files; it need not exist.
func (p Root) Run() string { return filepath.Join(p.Dir, "run") }

// Remove removes a directory of sandboxes. It also removes directories with a mode that denies
// access to the owner.
func Remove(dir string) error {
	// On a read-only file system it is an error to remove a directory that is not there.
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	walk := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return err
	})
	return errors.Join(walk, os.RemoveAll(dir))
}
