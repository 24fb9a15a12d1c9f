package sandbox

import (
	"errors"
	"path"
	"path/filepath"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clip"
)

// Mount is a directory of the local cloud's machine that is mounted in a sandbox.
type Mount struct {
	// Dir is the absolute path of the directory on the machine.
	Dir string `json:"dir"`
	// Path is the absolute path of the directory in the sandbox; it must not be the root.
	Path string `json:"path"`
	// Writable lets the sandbox change the files of the directory.
	Writable bool `json:"writable,omitempty"`
}

func mountOf(m api.Mount) Mount { return Mount(m) }

func (m Mount) wire() api.Mount { return api.Mount(m) }

// WithMount mounts a directory of the local cloud's machine in the sandbox. The mount is read-only
// if m.Writable is not set. The cloud must have been started with permission for the directory
// (local.WithAllowedMounts, e2bctl local up --allow-mount). The error is [ErrForbidden] without
// that permission, and [errors.ErrUnsupported] for other services. Pauses and snapshots do not
// include the files of the directory. The option may be given several times.
func WithMount(m Mount) CreateOption {
	return createOption(func(c *config) error {
		if !filepath.IsAbs(m.Dir) || !path.IsAbs(m.Path) || path.Clean(m.Path) != m.Path || m.Path == "/" {
			return errors.New("sandbox: WithMount(" + clip.Line(m.Dir, maxVolumeName) + ", " + clip.Line(m.Path, maxVolumeName) + "): want an absolute directory of the machine, and one of the sandbox other than /")
		}
		mounts := make([]Mount, 0, len(c.mounts)+1)
		c.mounts = append(append(mounts, c.mounts...), m)
		return nil
	})
}
