// Package python contains the driver, the program of a Python kernel: start.py and the modules
// that start.py imports.
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
		panic(err) // unreachable: the name is valid
	}
	return files
}

// WriteDriver writes the files of the driver below scratch, a directory for files of envd. It
// replaces existing files, and returns the path of the script to run. The zygote uses the same
// scratch path as the sandboxes of its kernels. So the driver's files have the same paths in both.
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
