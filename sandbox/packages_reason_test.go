package sandbox

import (
	"strings"
	"testing"
)

// TestPipReason has the output of pip 26.3, shortened only where "..." stands.
func TestPipReason(t *testing.T) {
	t.Parallel()
	var versions []string
	for _, v := range "abcdefghijklmnopqrstuvwxyz" {
		versions = append(versions, "1."+string(v))
	}
	for _, tt := range []struct{ name, stdout, stderr, want string }{
		{
			"conflict", `Processing ./left-1.0-py3-none-any.whl

The conflict is caused by:
    The user requested base>=2
    left 1.0 depends on base<2

Additionally, some packages in these conflicts have no matching distributions available for your environment:
    base

To fix this you could try to:
1. loosen the range of package versions you've specified
2. remove package versions to allow pip to attempt to solve the dependency conflict

`, `ERROR: Cannot install base>=2 and left==1.0 because these package versions have conflicting dependencies.
ERROR: ResolutionImpossible: for help visit ...
`, "the requirements contradict each other: The user requested base>=2; left 1.0 depends on base<2",
		},
		{"no such version", "", `ERROR: Could not find a version that satisfies the requirement base==9 (from versions: 1.0, 1.1, 2.0)
ERROR: No matching distribution found for base==9
`, "No matching distribution found for base==9: the index has 1.0, 1.1, 2.0"},
		{"many versions", "", "ERROR: Could not find a version that satisfies the requirement base==9 (from versions: " + strings.Join(versions, ", ") + ")\n" +
			"ERROR: No matching distribution found for base==9\n", "No matching distribution found for base==9: the newest of 26 versions are 1.s, 1.t, 1.u, 1.v, 1.w, 1.x, 1.y, 1.z"},
		{"other versions", "", `ERROR: Ignored the following versions that require a different python version: 3.0 Requires-Python >=3.99
ERROR: Could not find a version that satisfies the requirement base>=3 (from versions: 1.0)
ERROR: No matching distribution found for base>=3
`, "No matching distribution found for base>=3: the index has 1.0; versions for other Pythons: 3.0 Requires-Python >=3.99"},
		{"no package", "", `ERROR: Could not find a version that satisfies the requirement nothing (from versions: none)
ERROR: No matching distribution found for nothing
`, "No matching distribution found for nothing: the index has no such package, or none for this Python"},
		{"Python", "", `INFO: pip is looking at multiple versions of newpy to determine which version is compatible with other requirements. ...
ERROR: Packages require a different Python. 3.11.7 not in:
'>=3.99' (required by newpy 1.0 ...)
'>=3.98' (required by newpy 0.5 ...)
`, "the sandbox has Python 3.11.7, wanted is '>=3.99' (required by newpy 1.0 ...); '>=3.98' (required by newpy 0.5 ...)"},
		{"compiler", "", `  error: subprocess-exited-with-error
  
  × Building wheel for native (pyproject.toml) did not run successfully.
  │ exit code: 1
  ╰─> [6 lines of output]
      running bdist_wheel
      building 'native' extension
      gcc -Wsign-compare -DNDEBUG -g -fwrapv -O3 -Wall -fPIC ... -c native.c -o build/temp.linux-x86_64-cpython-311/native.o
      error: [Errno 2] No such file or directory: 'gcc'
      [end of output]
  
  note: This error originates from a subprocess, and is likely not a problem with pip.
  ERROR: Failed building wheel for native
error: failed-wheel-build-for-install

× Failed to build installable wheels for some pyproject.toml based projects
╰─> native
`, "Building wheel for native (pyproject.toml) failed: error: [Errno 2] No such file or directory: 'gcc'; what a build needs can be installed first, as root, or in the template"},
		{"mistake of a build", "", `  error: subprocess-exited-with-error
  
  × Getting requirements to build wheel did not run successfully.
  │ exit code: 1
  ╰─> [3 lines of output]
      Traceback (most recent call last):
        File "setup.py", line 1, in <module>
      ValueError: no
      [end of output]
`, "Getting requirements to build wheel failed: ValueError: no"},
		{"another error", "", "notice\nERROR: first\nERROR: second\nnotice\n", "ERROR: second"},
		{"killed", "", "one\ntwo\n", "two"},
		{"nothing", "", "", ""},
	} {
		if got := pipReason(tt.stdout, tt.stderr); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
