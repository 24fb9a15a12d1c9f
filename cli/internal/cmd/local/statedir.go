package local

import (
	"path/filepath"

	"github.com/spf13/cobra"
)

// addStateDir adds the flag that chooses the local cloud with a state directory.
func addStateDir(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "state-dir", "", "the one with the state directory `DIR`; \"\": the first one")
}

// absolute returns the absolute path of a state directory, and "" as it is.
func absolute(dir string) (string, error) {
	if dir == "" {
		return "", nil
	}
	return filepath.Abs(dir)
}
