package control

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/mounts"
	"github.com/e2bctl/e2bctl/internal/cloud/volumes"
)

// listedVolume describes a volume in a list.
type listedVolume struct {
	VolumeID string `json:"volumeID"`
	Name     string `json:"name"`
}

// volumeAnswer describes a volume, with the token and the domain for accessing its contents.
type volumeAnswer struct {
	listedVolume
	Token  string `json:"token"`
	Domain string `json:"domain,omitempty"`
}

func (s *Service) volumeAnswer(v volumes.Volume) volumeAnswer {
	return volumeAnswer{listedVolume{v.ID, v.Name}, s.volumes.Token(v.ID), s.options.Domain}
}

func (s *Service) listVolumes(w http.ResponseWriter, _ *http.Request) error {
	all := s.volumes.List()
	answer := make([]listedVolume, len(all))
	for i, v := range all {
		answer[i] = listedVolume{v.ID, v.Name}
	}
	writeJSON(w, http.StatusOK, answer)
	return nil
}

func (s *Service) createVolume(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Name string `json:"name"`
	}
	if err := decode(w, r, &q, false); err != nil {
		return err
	}
	v, err := s.volumes.Create(newUUID(), q.Name)
	if err != nil {
		return volumeError(err, q.Name)
	}
	writeJSON(w, http.StatusCreated, s.volumeAnswer(v))
	return nil
}

func (s *Service) getVolume(w http.ResponseWriter, r *http.Request) error {
	id, err := volumeID(r)
	if err != nil {
		return err
	}
	v, err := s.volumes.Get(id)
	if err != nil {
		return volumeError(err, id)
	}
	writeJSON(w, http.StatusOK, s.volumeAnswer(v))
	return nil
}

func (s *Service) deleteVolume(w http.ResponseWriter, r *http.Request) error {
	id, err := volumeID(r)
	if err != nil {
		return err
	}
	err = s.volumes.Delete(id, func() bool {
		return len(s.sandboxes.List(func(sb *lifecycle.Sandbox) bool {
			return slices.ContainsFunc(sb.Volumes, func(m lifecycle.VolumeMount) bool { return m.ID == id })
		})) > 0
	})
	if err != nil {
		return volumeError(err, id)
	}
	s.deleted(w, r)
	return nil
}

// volumeID returns the volume id in the path.
func volumeID(r *http.Request) (string, error) {
	id := r.PathValue("id")
	if !isUUID(id) {
		return "", errorf(http.StatusBadRequest, "Invalid volume ID")
	}
	return id, nil
}

// isUUID reports whether text is a UUID in the form that newUUID returns.
func isUUID(text string) bool {
	const hex = "0123456789abcdef"
	groups := strings.Split(text, "-")
	return len(groups) == 5 && !slices.ContainsFunc(groups, func(s string) bool { return strings.Trim(s, hex) != "" }) &&
		slices.Equal([]int{8, 4, 4, 4, 12}, []int{len(groups[0]), len(groups[1]), len(groups[2]), len(groups[3]), len(groups[4])})
}

// volumeError returns the answer for an error about the volume name.
func volumeError(err error, name string) error {
	switch {
	case errors.Is(err, volumes.ErrNotFound):
		return errorf(http.StatusNotFound, "Volume %q doesn't exist or you don't have access to it", bounded(name))
	case errors.Is(err, volumes.ErrExists):
		return errorf(http.StatusBadRequest, "there is a volume %q already", bounded(name))
	case errors.Is(err, volumes.ErrName):
		return invalid("name must have 1 to 128 letters, digits, hyphens and underscores")
	case errors.Is(err, volumes.ErrTooMany):
		return errorf(http.StatusTooManyRequests, "there are %d volumes, which is the limit: delete one that is no longer needed", volumes.Max)
	case errors.Is(err, volumes.ErrInUse):
		return errorf(http.StatusConflict, "Volume %q is in use: a sandbox, running or paused, has it mounted, or files are being copied; kill those sandboxes first", bounded(name))
	}
	return err
}

// volumeMount is the name of a volume, and the path of its mount in the sandbox.
type volumeMount struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// maxVolumeMounts bounds the number of volumes of a sandbox.
const maxVolumeMounts = 32

// checkMounts validates the volumes of a create request.
func checkMounts(mounts []volumeMount) error {
	if len(mounts) > maxVolumeMounts {
		return invalid("volumeMounts has %d volumes, and %d is the limit", len(mounts), maxVolumeMounts)
	}
	for i, m := range mounts {
		if m.Name == "" {
			return invalid("volumeMounts has a volume without a name")
		}
		if err := checkTarget("volumeMounts", m.Path); err != nil {
			return err
		}
		for _, other := range mounts[:i] {
			if within(m.Path, other.Path) || within(other.Path, m.Path) {
				return invalid("volumeMounts has the paths %q and %q: they must be different, and none inside the other", bounded(other.Path), bounded(m.Path))
			}
		}
	}
	return nil
}

// checkTarget returns an error if a path of a sandbox cannot be a mount point.
func checkTarget(field, target string) error {
	if err := mounts.CheckTarget(target); err != nil {
		return invalid("%s has the path %q: %v", field, bounded(target), err)
	}
	return nil
}

// within reports whether the path name is dir or below it.
func within(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }

// mounts returns the volumes that a create request names.
func (s *Service) mounts(asked []volumeMount) ([]lifecycle.VolumeMount, error) {
	var found []lifecycle.VolumeMount
	for _, m := range asked {
		v, err := s.volumes.Named(m.Name)
		if errors.Is(err, volumes.ErrNotFound) {
			return nil, notThere("volume_not_found", "volumeMounts names the volume %q, which does not exist", bounded(m.Name))
		}
		if err != nil {
			return nil, err
		}
		found = append(found, lifecycle.VolumeMount{ID: v.ID, Name: v.Name, Path: m.Path})
	}
	return found, nil
}

// mountAnswer describes the volumes of a sandbox.
func mountAnswer(mounts []lifecycle.VolumeMount) []volumeMount {
	answer := make([]volumeMount, len(mounts))
	for i, m := range mounts {
		answer[i] = volumeMount{m.Name, m.Path}
	}
	return answer
}
