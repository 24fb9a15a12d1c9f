package pyenv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Variable is the environment variable that names a Python. This Python has precedence over
// every other.
const Variable = "E2BCTL_PYTHON"

// ErrNoPython is returned if the machine has no Python that a sandbox can run.
var ErrNoPython = errors.New("python: no usable python3 found; install Python 3.9 or newer, or name one in " + Variable)

// Level describes which packages a Python has. A lower level has more packages.
type Level int

// Levels, from the most packages to the fewest.
const (
	Venv    Level = iota // the prepared virtual environment, with all packages of the list
	IPython              // IPython, with magics and rich display; other packages only if they are installed
	Plain                // only the standard library
	Absent               // no Python
)

// String returns the name of the level, as doctor displays it.
func (l Level) String() string {
	switch l {
	case Venv:
		return "venv"
	case IPython:
		return "ipython"
	case Plain:
		return "plain"
	case Absent:
		return "none"
	}
	return fmt.Sprintf("Level(%d)", int(l))
}

// Env is a Python and the files on which it depends. It is a plain value, and need not be
// closed.
type Env struct {
	Python  string   // absolute path of the interpreter's real file, never of a shim; "" if Absent
	Version string   // version of the interpreter, such as "3.11.7"
	Trees   []string // directories that a sandbox needs besides /usr; none is inside another
	Vars    []string // variables ("NAME=value") for processes of this Python
	Level   Level
	Note    string // one line: the parts that are missing or not used, and the remedy; "": all parts are used
}

// Find returns the best Python that is available now. This is the Python that E2BCTL_PYTHON
// names, else the prepared environment, else a python3 with IPython, else any python3. Find
// runs these candidates to query their version and packages. It installs nothing.
//
// If there are several prepared environments, Find prefers the one with the packages that were
// chosen last. If Find returns a prepared environment, Find records in the directory of the
// environment that the environment is in use. Find does not use a prepared environment that users
// other than this one and root can change. In this case, the Note of the returned Env reports that
// the environment is not used.
//
// If the machine has no usable Python, the error is [ErrNoPython]. If the Python in E2BCTL_PYTHON
// does not work, the error names the file of this Python.
func Find(ctx context.Context) (*Env, error) {
	env, err := named(ctx)
	if env != nil || err != nil {
		return env, err
	}
	c, err := readChoice()
	if err != nil {
		return nil, err
	}
	env, err = findVenv(ctx, c)
	if env == nil && err == nil && c != (choice{}) {
		if env, err = findVenv(ctx, choice{}); env != nil {
			env.Note = "the packages that were chosen are not prepared for this version of e2bctl: " + c.remedy()
		}
	}
	if refused := err; errors.Is(refused, errRefused) {
		if env, err = fallback(ctx, ""); env != nil {
			env.Note = fmt.Sprintf("%v: %s, which makes another one", refused, c.remedy())
		}
	}
	if env != nil || err != nil {
		return env, err
	}
	return fallback(ctx, c.remedy())
}

// Ensure returns the Python that E2BCTL_PYTHON names, else the prepared environment with the
// packages of the last call of [EnsurePackages]. If the environment does not exist, Ensure
// creates it with the newest Python from 3.9 to 3.13 in PATH or at its usual places, or else with Python
// 3.14. This downloads about 90 MB and takes a minute. If the environment exists, and the machine
// has a newer Python from now on, Ensure creates another environment. If that fails, the one that exists stays in use. If another process is already creating
// the environment, Ensure waits for that process. If the environment cannot be created, Ensure
// returns an error with the reason. [Find] then returns the Python that sandboxes use instead.
// Ensure reports progress to the writer progress, as lines or, on a terminal, as a bar. If progress
// is nil, Ensure writes nothing.
//
// Whatever the umask, other users cannot write to the files that Ensure creates. If this user is
// not root, other users cannot even read these files. Ensure replaces an environment that other
// users can change.
//
// Ensure removes environments of other versions that have not been used for 30 days.
//
// As root, Ensure may install the system's package python3-venv. It announces this to progress
// first. Cancelling ctx leaves no unfinished environment. Packages that were downloaded before
// a cancellation or an error are kept, and the next call does not download them again.
func Ensure(ctx context.Context, progress io.Writer) (*Env, error) {
	env, err := named(ctx)
	if env != nil || err != nil {
		return env, err
	}
	c, err := readChoice()
	if err != nil {
		return nil, err
	}
	// The file may have changed. If it is no longer readable, the environment that was created
	// from it stays in use.
	if now, err := newChoice(c.Packages); err == nil {
		c = now
	}
	return ensure(ctx, progress, c)
}

// EnsurePackages creates the environment like [Ensure], but with the packages p. From then on,
// [Find] and [Ensure] use these packages, too. The full list downloads about 450 MB. The packages
// in the user's own file are installed after the packages of the list, and may replace versions in
// the list. pip installs the user's packages as this user. If a package has no wheel, pip builds
// the package from its source. A change of the file takes effect at the next call. If E2BCTL_PYTHON
// names a Python, EnsurePackages returns an error, because it does not install packages there.
func EnsurePackages(ctx context.Context, progress io.Writer, p Packages) (*Env, error) {
	if name := os.Getenv(Variable); name != "" {
		return nil, fmt.Errorf("python: nothing is installed into %s=%s, which sandboxes use as it is; unset %s, or install the packages there with pip", Variable, name, Variable)
	}
	c, err := newChoice(p)
	if err != nil {
		return nil, err
	}
	return ensure(ctx, progress, c)
}

// ensure creates the environment unless it exists, and records the choice of packages.
func ensure(ctx context.Context, progress io.Writer, c choice) (*Env, error) {
	report := newReporter(progress)
	defer removeUnused(report)
	env, err := makeVenv(ctx, c, report)
	if err != nil {
		return nil, err
	}
	if c.Full {
		names, err := copyKernelspecs(filepath.Dir(filepath.Dir(env.Python)))
		if err != nil {
			return nil, err
		}
		if len(names) > 0 {
			report.line("copied your Jupyter kernels: %s", strings.Join(names, ", "))
		}
	}
	return env, c.write()
}

// named returns the Python that E2BCTL_PYTHON names. It returns nil if the variable is not set.
func named(ctx context.Context) (*Env, error) {
	name := os.Getenv(Variable)
	if name == "" {
		return nil, nil
	}
	found, err := ask(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("python: %s=%s cannot be used: %w", Variable, name, err)
	}
	return found.env("install it there"), nil
}

// System returns the best Python whose files are all below /usr, for a sandbox without access to
// other directories. If there is no such Python, the error is [ErrNoPython]. remedy is the advice
// in the Note of the Env.
func System(ctx context.Context, remedy string) (*Env, error) {
	found, err := candidates(ctx, usual...)
	if err != nil {
		return nil, err
	}
	return mostUseful(slices.DeleteFunc(found, func(i *interpreter) bool { return len(i.trees()) > 0 }), remedy)
}

// fallback returns the best of the machine's own interpreters. remedy is the advice in the Note
// of the Env.
func fallback(ctx context.Context, remedy string) (*Env, error) {
	found, err := candidates(ctx, usual...)
	if err != nil {
		return nil, err
	}
	return mostUseful(found, remedy)
}

func mostUseful(found []*interpreter, remedy string) (*Env, error) {
	if len(found) == 0 {
		return nil, ErrNoPython
	}
	chosen := found[0]
	for _, candidate := range found {
		if candidate.has("IPython") {
			chosen = candidate
			break
		}
	}
	return chosen.env(remedy), nil
}

// env describes an interpreter that does not belong to the prepared environment.
func (i *interpreter) env(remedy string) *Env {
	env := &Env{Python: i.Executable, Version: i.version(), Trees: i.trees(), Level: Plain}
	if i.has("IPython") {
		env.Level = IPython
	}
	var missing []string
	for _, module := range modules {
		if !i.has(module.name) {
			missing = append(missing, cmp.Or(module.distribution, module.name))
		}
	}
	if len(missing) > 0 {
		env.Note = fmt.Sprintf("%s (Python %s) lacks %s: %s", i.Executable, i.version(), strings.Join(missing, ", "), remedy)
	}
	return env
}
