package local

import (
	"context"
	"io"
	"runtime"

	"github.com/e2bctl/e2bctl/internal/cloud/gvisorenv"
)

// WithRunsc names the program of gVisor that [EngineGVisor] runs. The default is the one that
// [SetupGVisor] built. Nothing of it is opened before the first sandbox of a template of that
// engine, such as base-gvisor.
func WithRunsc(path string) Option { return func(s *settings) { s.runsc = path } }

// SetupGVisorParams are the optional parameters of [SetupGVisor].
type SetupGVisorParams struct {
	// Go is the go command to build with, by its path or a name in PATH. The default is go.
	Go string
	// Binary is the program that [WithBinary] will name. The default is this program.
	Binary string
}

// SetupGVisor prepares this machine for [EngineGVisor]: the go command of this machine builds
// runsc, the program of gVisor, in a fixed version, which takes some minutes. It is kept in the
// cache directory; later calls return at once, or build it again if it no longer runs. Versions
// that have not been used for 30 days are removed. It reports its progress to progress, which may
// be nil. The result is the path of the program. Where there is no Linux the error is
// [ErrUnsupported]. A program that is linked to libraries is refused before anything is built, as
// [Start] refuses it.
func SetupGVisor(ctx context.Context, progress io.Writer, params *SetupGVisorParams) (string, error) {
	if params == nil {
		params = &SetupGVisorParams{}
	}
	if err := onLinux(EngineGVisor, runtime.GOOS); err != nil {
		return "", err
	}
	if err := gvisorenv.CheckBinary(params.Binary); err != nil {
		return "", err
	}
	program, err := gvisorenv.Setup(ctx, progress, params.Go)
	return program.Path, err
}
