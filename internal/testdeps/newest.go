package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
)

// offerNewest lets the tool pyenv start its newest Python 3.13, beside those that are chosen. The environment
// of the sandboxes is then made with this Python, and the tests run with kernels that share their objects. If
// pyenv is not installed, or has no such Python, nothing changes.
func offerNewest(ctx context.Context) {
	const version = "3.13"
	newest, err := exec.CommandContext(ctx, "pyenv", "latest", version).Output()
	if err != nil {
		return
	}
	chosen, err := exec.CommandContext(ctx, "pyenv", "version-name").Output()
	if err != nil {
		return
	}
	versions := strings.TrimSpace(string(chosen)) + ":" + strings.TrimSpace(string(newest))
	_ = os.Setenv("PYENV_VERSION", versions) // fails only for a name or value that no variable has
}
