package sandbox

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clip"
)

// VolumeInfo describes a volume.
type VolumeInfo struct {
	ID   string
	Name string
	// Token authorizes access to the files of the volume for some days. It is empty in a list.
	Token Key
	// Domain is the domain of the service that stores the files. It is often empty.
	Domain string
}

func volumeInfoOf(v api.Volume) VolumeInfo { return VolumeInfo(v) }

// VolumeMount describes a volume that is mounted in a sandbox.
type VolumeMount struct {
	// Name is the name of the volume.
	Name string
	// Path is the absolute path in the sandbox; it must not be the root.
	Path string
}

func volumeMountOf(m api.VolumeMount) VolumeMount { return VolumeMount(m) }

func (m VolumeMount) wire() api.VolumeMount { return api.VolumeMount(m) }

// Volumes manages the volumes of the service. A volume is a set of files that outlives sandboxes
// and that several sandboxes can share: see [WithVolume]. Volumes is safe for concurrent use.
type Volumes struct{ client *Client }

// Create creates an empty volume. The name may contain letters, digits, - and _. The error is
// [ErrConflict] if a volume with that name exists.
func (v *Volumes) Create(ctx context.Context, name string) (*Volume, error) {
	about, err := v.client.api.Volumes.Create(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("sandbox: create volume %s: %w", clip.Line(name, maxVolumeName), err)
	}
	return v.volume(about), nil
}

// Open returns a volume, by its id or name. The error is a [*NoVolumeError] if there is no such
// volume.
func (v *Volumes) Open(ctx context.Context, idOrName string) (*Volume, error) {
	about, err := v.open(ctx, idOrName)
	if err != nil {
		return nil, fmt.Errorf("sandbox: open volume: %w", err)
	}
	return v.volume(about), nil
}

func (v *Volumes) open(ctx context.Context, idOrName string) (*api.Volume, error) {
	id, err := v.find(ctx, idOrName)
	if err != nil {
		return nil, err
	}
	return v.client.api.Volumes.Get(ctx, id)
}

// find returns the id of the volume with the given id or name.
func (v *Volumes) find(ctx context.Context, idOrName string) (string, error) {
	all, err := v.client.api.Volumes.List(ctx)
	if err != nil {
		return "", err
	}
	for _, one := range all {
		if one.ID == idOrName || one.Name == idOrName {
			return one.ID, nil
		}
	}
	return "", &NoVolumeError{idOrName}
}

// NoVolumeError reports that a volume does not exist. It also matches [ErrNotFound].
type NoVolumeError struct {
	// Name is the requested id or name.
	Name string
}

func (e *NoVolumeError) Error() string {
	return "there is no volume " + clip.Line(e.Name, maxVolumeName)
}

// Is reports whether target is [ErrNotFound].
func (e *NoVolumeError) Is(target error) bool { return target == api.ErrNotFound }

// List describes all volumes, without their tokens.
func (v *Volumes) List(ctx context.Context) ([]VolumeInfo, error) {
	all, err := v.client.api.Volumes.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("sandbox: list volumes: %w", err)
	}
	return allAs(all, volumeInfoOf), nil
}

// Delete deletes a volume with all its files, by its id or name. The error is a [*NoVolumeError] if
// there is no such volume. It is [ErrConflict] while a running or paused sandbox of a local cloud
// uses the volume.
func (v *Volumes) Delete(ctx context.Context, idOrName string) error {
	id, err := v.find(ctx, idOrName)
	if err == nil {
		err = v.client.api.Volumes.Delete(ctx, id)
	}
	if err != nil {
		return fmt.Errorf("sandbox: delete volume: %w", err)
	}
	return nil
}

const maxVolumeName = 128

func (v *Volumes) volume(about *api.Volume) *Volume {
	return &Volume{about.ID, about.Name, v.client.api.Volumes.Content(about)}
}

// WithVolume mounts a volume in the sandbox at dir, an absolute path. Other sandboxes may use the
// volume at the same time. The files of the volume outlive the sandbox. Pauses and snapshots do not
// include these files. The option may be given several times.
func WithVolume(name, dir string) CreateOption {
	return createOption(func(c *config) error {
		if name == "" || !path.IsAbs(dir) || path.Clean(dir) != dir || dir == "/" {
			return errors.New("sandbox: WithVolume(" + clip.Line(name, maxVolumeName) + ", " + clip.Line(dir, maxVolumeName) + "): want the name of a volume and an absolute directory other than /")
		}
		mounts := make([]VolumeMount, 0, len(c.volumes)+1)
		c.volumes = append(append(mounts, c.volumes...), VolumeMount{Name: name, Path: dir})
		return nil
	})
}

// WithVolumeURL sets the address of the files in volumes. The default is E2B_VOLUME_API_URL, or
// depends on the API's address and the volume.
func WithVolumeURL(url string) ClientOption {
	return ofAPI("WithVolumeURL", api.WithVolumeURL(url))
}
