package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// volumeName matches the names that a service accepts for a new volume.
var volumeName = lazyregexp.New(`^[A-Za-z0-9_-]{1,128}$`)

// Volume is a set of files that outlives sandboxes and that several sandboxes can share.
type Volume struct {
	ID   string `json:"volumeID"`
	Name string `json:"name"`
	// Token authorizes access to the files of the volume for some days. Get returns a new token. List
	// returns volumes without a token.
	Token Key `json:"token"`
	// Domain is the domain of the service that stores the files; often empty.
	Domain string `json:"domain"`
}

// VolumeMount connects a volume to a directory of a sandbox.
type VolumeMount struct {
	// Name is the name of the volume.
	Name string `json:"name"`
	// Path is the absolute path in the sandbox; it must not be the root.
	Path string `json:"path"`
}

// VolumeService makes the calls about volumes. It is safe for concurrent use.
type VolumeService struct{ client *Client }

// List returns all volumes, without tokens.
func (s *VolumeService) List(ctx context.Context) ([]Volume, error) {
	volumes, _, err := list[Volume](ctx, s.client, "a volume", call{method: http.MethodGet, path: volumesPath})
	return volumes, err
}

// Create creates an empty volume. The error is [ErrInvalidArgument] if the name contains
// anything but letters, digits, - and _. It is [ErrConflict] if another volume has the name.
// Create is retried only when provably nothing was sent, or when the service answers 429.
func (s *VolumeService) Create(ctx context.Context, name string) (*Volume, error) {
	request := struct {
		Name string `json:"name"`
	}{name}
	volume, err := s.fetchVolume(ctx, call{method: http.MethodPost, path: volumesPath, body: request, once: true})
	if volumeName().MatchString(name) {
		err = conflictOf(err)
	}
	return volume, err
}

// Get returns a volume with a new token. It returns [ErrNotFound] when there is no such
// volume.
func (s *VolumeService) Get(ctx context.Context, id string) (*Volume, error) {
	path, err := volumePath(volumesPath, id, "")
	if err != nil {
		return nil, err
	}
	return s.fetchVolume(ctx, call{method: http.MethodGet, path: path})
}

func (s *VolumeService) fetchVolume(ctx context.Context, c call) (*Volume, error) {
	v := &Volume{}
	if _, err := s.client.do(ctx, c, v); err != nil {
		return nil, err
	}
	if _, err := volumePath(volumesPath, v.ID, ""); err != nil || v.Token == "" {
		return nil, errors.New("api: the service's answer has no usable volumeID and token")
	}
	return v, nil
}

// Delete deletes a volume and its files. It returns [ErrNotFound] when there is no such volume.
// A local cloud returns [ErrConflict] while a sandbox, running or paused, uses the volume.
func (s *VolumeService) Delete(ctx context.Context, id string) error {
	path, err := volumePath(volumesPath, id, "")
	if err != nil {
		return err
	}
	_, err = s.client.do(ctx, call{method: http.MethodDelete, path: path}, nil)
	return err
}

const volumesPath = "/volumes"

func volumePath(collection, id, route string) (string, error) {
	return objectPath(collection+"/", "volume", id, route)
}
