package local

import (
	"context"
	"io"

	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
)

// Python is what sandboxes run code with.
type Python struct {
	Path    string // of the interpreter
	Version string
	Level   string // "venv": everything prepared; "ipython": IPython; "plain": the standard library alone
	Note    string // what is missing and what to do about it; empty when nothing is
}

// Setup prepares the Python of this machine's sandboxes, once: the first time it
// downloads packages, later it returns at once. progress is told what is done;
// nil is silent. When the environment cannot be made, the best Python that is
// there is returned, with the reason in its Note. Environments of other versions of
// this module that nobody has used for 30 days are removed. One that other users
// can write to is replaced, and nothing of it is run.
func Setup(ctx context.Context, progress io.Writer) (*Python, error) {
	return describe(pyenv.Ensure(ctx, progress))
}

// FindPython returns what sandboxes would run now. It installs nothing.
func FindPython(ctx context.Context) (*Python, error) {
	return describe(pyenv.Find(ctx))
}

func describe(env *pyenv.Env, err error) (*Python, error) {
	if err != nil {
		return nil, err
	}
	return &Python{Path: env.Python, Version: env.Version, Level: env.Level.String(), Note: env.Note}, nil
}
