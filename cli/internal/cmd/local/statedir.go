package local

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"
)

// addStateDir adds the flag that chooses the local cloud with a state directory.
func addStateDir(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "state-dir", "", "the one with the state directory `DIR`; \"\": the first one")
}

// absolute returns the one absolute path of a state directory, without symbolic links: the local
// cloud with a directory is found by its path, which must not depend on the name used for it. ""
// stays "".
func absolute(dir string) (string, error) {
	if dir == "" {
		return "", nil
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return withoutLinks(path)
}

// withoutLinks resolves the symbolic links in the part of an absolute path that exists.
func withoutLinks(path string) (string, error) {
	resolved, err := filepath.EvalSymlinks(path)
	parent := filepath.Dir(path)
	if !errors.Is(err, fs.ErrNotExist) || parent == path {
		return resolved, err
	}
	if parent, err = withoutLinks(parent); err != nil {
		return "", err
	}
	return filepath.Join(parent, filepath.Base(path)), nil
}
