// Package pyenv finds or makes the Python environment that sandboxes run.
//
// The environment is one virtual environment for each machine user, created once by [Ensure] from
// the pinned and hashed list in requirements.txt, in the user's cache directory. [EnsurePackages]
// chooses instead the list in full.txt, which is the list of the service's template, and the
// user's own packages. Sandboxes see the environment at the same absolute path, so it is
// described by its directories ([Env.Trees]). If it cannot be created, [Find] falls back to an
// installed Python, and reports the missing parts.
//
// The environment runs as the user, so no other user may be able to change it: the programs that
// create it run with umask 022, an ordinary user's cache directory is closed to others, and an
// environment that others can write to is not used. An interpreter named by E2BCTL_PYTHON is used
// without these checks.
package pyenv
