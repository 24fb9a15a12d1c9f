package local

import (
	"context"
	"fmt"
	"io"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
)

// PythonLevel is the set of features of a Python.
type PythonLevel string

// These are the levels of a [Python], from the most features to the fewest.
const (
	PythonPrepared PythonLevel = "venv"    // everything that Setup installs
	PythonIPython  PythonLevel = "ipython" // IPython: magics and rich results
	PythonPlain    PythonLevel = "plain"   // only the standard library
)

// Python describes a Python that runs the code of sandboxes.
type Python struct {
	Path    string // path of the interpreter
	Version string
	Level   PythonLevel
	Note    string // missing features and their remedies; empty if there are none
}

// Setup prepares the Python of this machine's sandboxes. Call it once per machine, before [Start].
// Without Setup, sandboxes run a python3 of this machine, with the packages of that Python. The
// first call downloads packages; later calls return at once. Setup uses the newest of python3,
// python3.13 and python3.12 in PATH, up to 3.13 if there is one; after a newer one was installed, it
// downloads packages again. Setup writes its progress to progress, which may be nil.
//
// If the environment cannot be created, Setup returns an error with the reason. Clouds then still
// start, with the Python that [FindPython] returns. Environments of other versions of this module
// are removed if they have not been used for 30 days. An environment that other users can write to
// is replaced, without running anything in it. If E2BCTL_PYTHON names a Python, Setup only inspects
// that Python.
//
// Options select other packages than IPython, numpy, pandas, matplotlib, pillow and requests. The
// selection is stored for this user. It applies to all programs of the user and to later calls
// without options, until a call with options replaces the selection.
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

// SetupOption selects the packages that [Setup] prepares.
type SetupOption func(*pyenv.Packages)

// WithFullPackages selects the packages of the service's template code-interpreter-v1: about forty
// packages in the versions of the template, and kernels for Bash, JavaScript and TypeScript. Python
// 3.11 to 3.13 receive exactly the service's versions, and other versions of Python the nearest
// ones. The download has about 450 MB. If full is false, the option selects the short list again.
func WithFullPackages(full bool) SetupOption {
	return func(p *pyenv.Packages) { p.Full = full }
}

// WithPackageFile also installs the packages of a requirements file. pip runs on this machine, as
// this user, and builds packages without a wheel. If the file and the list of [Setup] contain
// different versions of a package, the file's version is installed. Changes of the file apply at
// the next Setup.
func WithPackageFile(name string) SetupOption {
	return func(p *pyenv.Packages) { p.File = name }
}

// FindPython returns the Python that sandboxes would use now. It installs nothing.
func FindPython(ctx context.Context) (*Python, error) {
	return describe(pyenv.Find(ctx))
}

func describe(env *pyenv.Env, err error) (*Python, error) {
	if err != nil {
		return nil, err
	}
	return &Python{Path: env.Python, Version: env.Version, Level: PythonLevel(env.Level.String()), Note: env.Note}, nil
}
