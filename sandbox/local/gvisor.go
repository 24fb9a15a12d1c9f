package local

import (
	"context"
	"io"
	"runtime"

	"github.com/e2bctl/e2bctl/internal/cloud/gvisorenv"
)

// WithRunsc sets the program of gVisor for [EngineGVisor]. The default is the program that
// [SetupGVisor] built. The cloud does not open the program before it creates the first sandbox of
// this engine, from a template such as base-gvisor.
func WithRunsc(path string) Option { return func(s *settings) { s.runsc = path } }

// SetupGVisorParams are the optional parameters of [SetupGVisor].
type SetupGVisorParams struct {
	// Go is the go command for the build, as a path or a name in PATH. The default is go.
	Go string
	// Binary is the program that will be passed to [WithBinary]. The default is this program.
	Binary string
}

// SetupGVisor prepares this machine for [EngineGVisor]. The go command of this machine builds a
// fixed version of runsc, the program of gVisor. The build takes some minutes. The built runsc is
// stored in the cache directory. Later calls return at once, or build runsc again if the stored one
// no longer runs. SetupGVisor removes versions that have not been used for 30 days.
//
// SetupGVisor writes its progress to progress, which may be nil. It returns the path of runsc. On
// systems other than Linux the error is [ErrUnsupported]. Like [Start], SetupGVisor refuses a
// program that is linked to libraries. It does so before it builds anything.
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
