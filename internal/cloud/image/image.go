package image

import (
	"maps"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Image is an image that has been pulled.
type Image struct {
	// Reference is the reference that was asked for. Digest is that of the manifest for
	// this machine's architecture, or of the configuration if the image came from an
	// archive of docker save, which has no manifest.
	Reference, Digest string
	// Layers are the ids of its layers, lowest first. The caller holds each of them once.
	Layers []string
	Config Config
}

// Config has the settings for an image's programs, from the image's configuration.
type Config struct {
	Env          []string // NAME=VALUE
	User         string
	Workdir      string
	Entrypoint   []string
	Cmd          []string
	Shell        []string
	ExposedPorts []string // such as 80/tcp, in order
	Labels       map[string]string
}

func configOf(c v1.Config) Config {
	return Config{
		Env: c.Env, User: c.User, Workdir: c.WorkingDir, Entrypoint: c.Entrypoint, Cmd: c.Cmd, Shell: c.Shell,
		ExposedPorts: slices.Sorted(maps.Keys(c.ExposedPorts)), Labels: c.Labels,
	}
}

// Auth are credentials for a registry.
type Auth struct{ Username, Password string }
