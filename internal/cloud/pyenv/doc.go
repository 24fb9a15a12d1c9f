// Package pyenv finds or makes the Python environment that sandboxes run.
//
// The environment is one virtual environment for each machine user, created once
// by [Ensure] from the pinned and hashed list in requirements.txt, in the user's
// cache directory. [EnsurePackages] chooses the list in full.txt instead, which is
// that of the service's template, and packages of the user's own. Sandboxes see it at the same absolute path, so it is described
// by its directories ([Env.Trees]). If it cannot be created, [Find] falls back to
// an installed Python, and reports what is missing.
//
// The environment runs as the user, so no other user may be able to change it:
// the programs that create it run with umask 022, an ordinary user's cache
// directory is closed to others, and an environment that others can write to is
// not used. What E2BCTL_PYTHON names is used as it is.
package pyenv
