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

// settle adapts envd to the image that is the root of its sandbox. It adds the accounts of the
// image, creates the image's working directory, and makes login shells use the image's PATH. No
// code of the sandbox has run yet, and links in the image cannot lead out of the sandbox. The
// error names the part that commands in the sandbox will lack.
func settle(config *guest.Config, g *inside.Guest) (err error) {
	for i := range g.Users {
		if !config.Contained { // in a container, every user is the container's user
			g.Users[i] = envd.AsInFiles(g.Users[i])
		}
	}
	if filepath.IsAbs(config.Workdir) {
		err = os.MkdirAll(config.Workdir, 0o755)
	}
	return errors.Join(err, writeProfile(config.Path))
}

// maxProfile bounds the size of an image's /etc/profile. A larger file is not changed.
const maxProfile = 1 << 20

// writeProfile makes login shells keep PATH, and read the profile files in the user's home, as
// shells of E2B's service do. This matters because every command line runs in a login shell.
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

// warm returns a [kernel.Warm] that forks kernels from the zygote. It returns nil for a sandbox
// with an image, because the kernels of such a sandbox run the Python of the image.
func warm(config *guest.Config, g *inside.Guest) *kernel.Warm {
	if config.Image != "" || config.Wasm != nil {
		return nil
	}
	return &kernel.Warm{Fork: g.Kernel, Environ: config.KernelEnviron()}
}
