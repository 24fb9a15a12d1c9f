package image

import (
	"maps"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Image is an image that has been pulled.
type Image struct {
	// Reference is the reference that was requested. Digest is the digest of the manifest for this
	// machine's architecture. For an archive in the format of docker save, which has no manifest,
	// Digest is the digest of the configuration.
	Reference, Digest string
	// Layers lists the ids of the image's layers, lowest first. The caller holds each of them
	// once.
	Layers []string
	Config Config
}

// Config contains the settings for programs from the configuration of an image.
type Config struct {
	Env          []string // NAME=VALUE
	User         string
	Workdir      string
	Entrypoint   []string
	Cmd          []string
	Shell        []string
	ExposedPorts []string // such as 80/tcp, sorted
	Labels       map[string]string
}

func configOf(c v1.Config) Config {
	return Config{
		Env: c.Env, User: c.User, Workdir: c.WorkingDir, Entrypoint: c.Entrypoint, Cmd: c.Cmd, Shell: c.Shell,
		ExposedPorts: slices.Sorted(maps.Keys(c.ExposedPorts)), Labels: c.Labels,
	}
}

// Auth is the login for a registry.
type Auth struct{ Username, Password string }
