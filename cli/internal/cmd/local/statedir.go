package local

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
)

// addStateDir adds the flag that chooses the local cloud with a state directory.
func addStateDir(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "state-dir", "", "the one with the state directory `DIR`; \"\": the first one")
}

// stateOf returns the state directory that a command is about: dir, whose path is absolute, or if it
// is "" that of the local cloud that runs, or else of the next one. With it comes the place of that
// local cloud, and its record, which is the zero one if none runs there.
func stateOf(dir string) (string, localcloud.Record, localcloud.Place, error) {
	place, err := localcloud.FindFor(dir)
	if err != nil {
		return "", localcloud.Record{}, place, err
	}
	record, err := place.Read()
	if errors.Is(err, localcloud.ErrNone) {
		err = nil
	}
	switch {
	case err != nil || dir != "":
	case record.State != "":
		dir = record.State
	default:
		if dir, _, err = localcloud.StateDir(); err == nil {
			dir, err = absolute(dir)
		}
	}
	return dir, record, place, err
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
