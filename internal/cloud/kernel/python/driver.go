// Package python has the program of a Python kernel, its driver: start.py and the modules
// that it imports.
package python

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

//go:embed start.py _e2bctl_kernel/*.py
var driver embed.FS

// Files returns the files of the driver's package, for a Python that does not run start.py.
func Files() fs.FS {
	files, err := fs.Sub(driver, "_e2bctl_kernel")
	if err != nil {
		panic(err) // the name is right
	}
	return files
}

// WriteDriver writes the driver's files below scratch, a directory for files of the envd,
// and returns the path of the script to run. Existing files are replaced. The zygote and
// the sandboxes of its kernels have the same scratch directory, and so the same paths.
func WriteDriver(scratch string) (string, error) {
	dir := filepath.Join(scratch, "kernel")
	err := fs.WalkDir(driver, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dir, filepath.FromSlash(name))
		if entry.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		data, err := fs.ReadFile(driver, name)
		if err != nil {
			return err
		}
		return os.WriteFile(to, data, 0o644)
	})
	if err != nil {
		return "", fmt.Errorf("python: write the driver: %w", err)
	}
	return filepath.Join(dir, "start.py"), nil
}
