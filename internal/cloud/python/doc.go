// Package python finds or makes the Python environment that sandboxes run.
//
// The environment is one virtual environment for each machine user, made once by
// [Ensure] from the pinned and hashed list in requirements.txt, in the user's
// cache directory. Sandboxes see it at the same absolute path, so what it
// consists of is said as directories ([Env.Trees]). Where it cannot be made,
// [Find] steps down to a Python that is there, and says what is missing.
package python
