package local

import (
	"context"
	"io"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker"
)

// SetupDockerParams are the optional parameters of [SetupDocker].
type SetupDockerParams struct {
	// Host is the address of the daemon, like [DockerParams].Host.
	Host string
	// From is the path of a static e2bctl for Linux, of this version, to copy in place of making the
	// program.
	From string
}

// SetupDocker prepares this machine for [EngineDocker] if this program itself cannot run as the
// first process of containers. That is so on macOS and Windows, with a daemon on another processor
// architecture, and for a program that is linked to libraries. Containers then run another program.
// Release builds of e2bctl for macOS and Windows contain that program for amd64 and arm64. Other builds
// compile it with this machine's Go, from the same version of this module. They compile it for the
// processor architecture of the daemon or, if no daemon answers, for that of this machine.
//
// The program is stored in the cache directory, for all programs with this version of the module.
// Later calls return at once. SetupDocker writes its progress to progress, which may be nil. It
// returns the path of the program.
func SetupDocker(ctx context.Context, progress io.Writer, params *SetupDockerParams) (string, error) {
	if params == nil {
		params = &SetupDockerParams{}
	}
	return docker.Setup(ctx, progress, params.Host, params.From)
}
