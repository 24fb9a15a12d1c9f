// Package pyenv finds or makes the Python environment that sandboxes run.
//
// Each user of the machine has one virtual environment, in the user's cache directory. [Ensure]
// creates it once, from the list in requirements.txt, which has a version and hashes for each
// package. [EnsurePackages] can choose another list and add the user's own packages. The other list
// is full.txt, the list of the service's template. In sandboxes, the environment has the same
// absolute path as on the machine. Therefore [Env.Trees] lists the environment's directories. If
// the environment cannot be created, [Find] falls back to an installed Python, and reports the
// missing parts.
//
// The environment's files are executed as the user, so no other user may be able to change them.
// The programs that create the environment run with umask 022. An ordinary user's cache directory
// is closed to others. An environment that others can write to is not used. These checks do not
// apply to an interpreter that E2BCTL_PYTHON names.
package pyenv
