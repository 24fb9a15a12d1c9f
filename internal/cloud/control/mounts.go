package control

import (
	"path"
	"slices"

	"github.com/e2bctl/e2bctl/internal/cloud/mounts"
)

// hostMount is a directory of the host, with its path in a sandbox. Package mounts checks the
// permission when it opens the directory.
type hostMount struct {
	Dir      string `json:"dir"`
	Path     string `json:"path"`
	Writable bool   `json:"writable"`
}

// checkHostMounts validates the host directories of a create request, together with the
// request's volumes.
func checkHostMounts(asked []hostMount, volumes []volumeMount) error {
	if len(asked) > maxVolumeMounts {
		return invalid("mounts has %d directories, and %d is the limit", len(asked), maxVolumeMounts)
	}
	for i, m := range asked {
		if !path.IsAbs(m.Dir) {
			return invalid("mounts has the directory %q: it must be absolute", bounded(m.Dir))
		}
		if err := checkTarget("mounts", m.Path); err != nil {
			return err
		}
		others := slices.Clone(volumes)
		for _, other := range asked[:i] {
			others = append(others, volumeMount{Path: other.Path})
		}
		for _, other := range others {
			if within(m.Path, other.Path) || within(other.Path, m.Path) {
				return invalid("mounts has the path %q beside %q: they must be different, and none inside the other", bounded(m.Path), bounded(other.Path))
			}
		}
	}
	return nil
}

// hostMountAnswer describes the host directories in a sandbox: the directories that every sandbox
// has, and those of this sandbox only.
func hostMountAnswer(all ...[]mounts.Mount) []hostMount {
	var answer []hostMount
	for _, m := range slices.Concat(all...) {
		answer = append(answer, hostMount(m))
	}
	return answer
}

func hostMounts(asked []hostMount) []mounts.Mount {
	var all []mounts.Mount
	for _, m := range asked {
		all = append(all, mounts.Mount(m))
	}
	return all
}
