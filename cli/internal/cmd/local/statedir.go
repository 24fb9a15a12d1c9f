package local

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/localcloud"
)

// addStateDir adds the flag that chooses a local cloud by its state directory.
func addStateDir(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "state-dir", "", "the one with the state directory `DIR`; \"\": the first one")
}

// stateOf returns the state directory of a command. That is dir, an absolute path. If dir is "", it is the
// directory of the running local cloud or, if none runs, of the next one. stateOf also returns the place and the
// record of that local cloud. The record is zero if the local cloud does not run.
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

// absolute returns the absolute path of a state directory, with symbolic links resolved, because
// the local cloud of a directory is found by this path. It returns "" for "".
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

// withoutLinks resolves the symbolic links in an absolute path, as far as the path exists.
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
