//go:build linux

package reexec

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/inside"
	"github.com/e2bctl/e2bctl/internal/cloud/envd"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel"
	"github.com/e2bctl/e2bctl/internal/shell"
)

// settle fits envd to the image that is the root of its sandbox: the accounts are the
// image's, its working directory exists, and login shells have its PATH. None of the
// sandbox's code has run yet, and whatever links of the image lead to is in the sandbox. An
// error says what commands will lack.
func settle(config *guest.Config, g *inside.Guest) (err error) {
	for i := range g.Users {
		if !config.Contained { // where each is the user of the container
			g.Users[i] = envd.AsInFiles(g.Users[i])
		}
	}
	if filepath.IsAbs(config.Workdir) {
		err = os.MkdirAll(config.Workdir, 0o755)
	}
	return errors.Join(err, writeProfile(config.Path))
}

// writeProfile keeps the PATH of the image in login shells, which run every command line:
// what most images have in /etc/profile sets another one.
func writeProfile(path string) error {
	const dir = "/etc/profile.d"
	if !isFile("/etc/profile") {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return replace(filepath.Join(dir, "zz-image.sh"), "export PATH="+shell.Quote(path)+"\n")
}

// warm returns where kernels are forked from. What the kernels of an image run is in the
// image.
func warm(config *guest.Config, g *inside.Guest) *kernel.Warm {
	if config.Image != "" || config.Wasm != nil {
		return nil
	}
	return &kernel.Warm{Fork: g.Kernel, Environ: config.KernelEnviron()}
}
