package local

import (
	"context"
	"io"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker"
)

// SetupDockerParams are the optional parameters of [SetupDocker].
type SetupDockerParams struct {
	// Host is the address of the daemon, as in [DockerParams].
	Host string
}

// SetupDocker prepares this machine for [EngineDocker] where this program itself cannot be the
// first process of containers: on macOS and Windows, with a daemon on another processor, and for a
// program that is linked to libraries. Containers then run another program, which release builds
// of e2bctl carry for amd64 and arm64. Other builds compile it with this machine's Go, from the
// version of this module that they were built from, for the processor of the daemon or, while none
// answers, of this machine. It is kept in the cache directory for all programs of that version;
// later calls return at once. SetupDocker reports its progress to progress, which may be nil. The
// result is the path of the program that containers will run.
func SetupDocker(ctx context.Context, progress io.Writer, params *SetupDockerParams) (string, error) {
	if params == nil {
		params = &SetupDockerParams{}
	}
	return docker.Setup(ctx, progress, params.Host)
}
