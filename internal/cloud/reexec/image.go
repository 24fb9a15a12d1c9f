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

// settle fits envd to the image that is the root of its sandbox: it takes the image's
// accounts, makes its working directory, and gives login shells its PATH. No code of the
// sandbox has run yet, and links of the image cannot lead out of the sandbox. An error says
// what commands will lack.
func settle(config *guest.Config, g *inside.Guest) (err error) {
	for i := range g.Users {
		if !config.Contained { // in a container, each user is that of the container
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

// writeProfile makes login shells, which run every command line, keep PATH and read the
// files of the user's home, as the service's do.
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

// warm returns the process from which kernels are forked, or nil. Kernels of an image run
// its own Python, which is not warm.
func warm(config *guest.Config, g *inside.Guest) *kernel.Warm {
	if config.Image != "" || config.Wasm != nil {
		return nil
	}
	return &kernel.Warm{Fork: g.Kernel, Environ: config.KernelEnviron()}
}
