//go:build !unix

package pyenv

import (
	"fmt"
	"os"
)

// Where files have no modes, the directory of the user's profile determines who can change its
// files.

func umask(argv []string) []string { return argv }

func makeCache(cache string, _ *reporter) error {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return fmt.Errorf("python: make the cache directory: %w", err)
	}
	return nil
}

func checkUnshared(string) error { return nil }
