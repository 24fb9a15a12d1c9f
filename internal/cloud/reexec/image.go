//go:build linux

package reexec

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest/login"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/inside"
	"github.com/e2bctl/e2bctl/internal/cloud/envd"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel"
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

// maxProfile bounds an image's /etc/profile. Shells read a longer one as it is.
const maxProfile = 1 << 20

// writeProfile has login shells, which run every command line, keep PATH and read the files
// of the user's home as the service's do.
func writeProfile(path string) error {
	const name = "/etc/profile"
	if err := os.MkdirAll(filepath.Dir(login.PathFile), 0o755); err != nil {
		return err
	}
	if err := replace(login.PathFile, login.PathText(path)); err != nil {
		return err
	}
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return replace(name, login.Profile(login.PlainProfile))
	}
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxProfile {
		return err
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if made := login.Profile(string(text)); made != string(text) {
		return os.WriteFile(name, []byte(made), info.Mode().Perm())
	}
	return nil
}

// warm returns where kernels are forked from. What the kernels of an image run is in the
// image.
func warm(config *guest.Config, g *inside.Guest) *kernel.Warm {
	if config.Image != "" || config.Wasm != nil {
		return nil
	}
	return &kernel.Warm{Fork: g.Kernel, Environ: config.KernelEnviron()}
}
