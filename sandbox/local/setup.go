package local

import (
	"context"
	"fmt"
	"io"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
)

// PythonLevel names the features of a Python.
type PythonLevel string

// The levels of a [Python], from most to least.
const (
	PythonPrepared PythonLevel = "venv"    // everything that Setup installs
	PythonIPython  PythonLevel = "ipython" // IPython: magics and rich results
	PythonPlain    PythonLevel = "plain"   // the standard library alone
)

// Python describes the Python with which sandboxes run code.
type Python struct {
	Path    string // path of the interpreter
	Version string
	Level   PythonLevel
	Note    string // lacks of the Python and their remedies; empty if there are none
}

// Setup prepares the Python of this machine's sandboxes, once per machine and before [Start]:
// without it they run a python3 of this machine, with the packages that it has. The first time
// Setup downloads packages; later it returns at once. It reports its progress to progress, which
// may be nil. If the environment cannot be made, Setup returns an error that says why, and clouds
// start all the same, with the Python that [FindPython] returns. Environments of other versions of
// this module that have not been used for 30 days are removed. An environment to which other users
// can write is replaced, and nothing in it is run. Where E2BCTL_PYTHON names a Python, Setup only
// looks at that.
//
// Options choose other packages than IPython, numpy, pandas, matplotlib, pillow and
// requests. The choice is this user's: it holds for all programs and for later calls
// without options, and each call with options replaces it.
func Setup(ctx context.Context, progress io.Writer, options ...SetupOption) (*Python, error) {
	if len(options) == 0 {
		return describe(pyenv.Ensure(ctx, progress))
	}
	var packages pyenv.Packages
	for i, option := range options {
		if option == nil {
			return nil, fmt.Errorf("local: setup: option %d is nil: leave it out: %w", i+1, api.ErrInvalidArgument)
		}
		option(&packages)
	}
	return describe(pyenv.EnsurePackages(ctx, progress, packages))
}

// SetupOption chooses the packages that [Setup] prepares.
type SetupOption func(*pyenv.Packages)

// WithFullPackages chooses the packages of the service's template code-interpreter-v1: some forty
// packages at its versions, and kernels of Bash, JavaScript and TypeScript. The versions are the
// service's for Python 3.11 to 3.13, and the nearest for others. It downloads about 450 MB. false
// goes back to the short list.
func WithFullPackages(full bool) SetupOption {
	return func(p *pyenv.Packages) { p.Full = full }
}

// WithPackageFile installs the packages of a requirements file, too. pip does so on
// this machine, as this user, and builds those that have no wheel. Where the file and
// the list disagree on a version, the file's is taken. A file that has changed counts
// at the next Setup.
func WithPackageFile(name string) SetupOption {
	return func(p *pyenv.Packages) { p.File = name }
}

// FindPython returns the Python that sandboxes would run now. It installs nothing.
func FindPython(ctx context.Context) (*Python, error) {
	return describe(pyenv.Find(ctx))
}

func describe(env *pyenv.Env, err error) (*Python, error) {
	if err != nil {
		return nil, err
	}
	return &Python{Path: env.Python, Version: env.Version, Level: PythonLevel(env.Level.String()), Note: env.Note}, nil
}
