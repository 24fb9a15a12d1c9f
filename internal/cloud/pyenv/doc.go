// Package pyenv finds or makes the Python environment that sandboxes run.
//
// The environment is one virtual environment for each machine user, made once by
// [Ensure] from the pinned and hashed list in requirements.txt, in the user's
// cache directory. Sandboxes see it at the same absolute path, so what it
// consists of is said as directories ([Env.Trees]). Where it cannot be made,
// [Find] steps down to a Python that is there, and says what is missing.
//
// The environment is run as the user, so no other user may be able to change it:
// programs that make it have the umask 022, an ordinary user's cache directory is
// closed to others, and an environment that others can write to is not run. What
// E2BCTL_PYTHON names is used as it is.
package pyenv
