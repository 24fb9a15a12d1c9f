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

// Variable is the environment variable that names a Python. It takes precedence over every found
// or created one.
const Variable = "E2BCTL_PYTHON"

// ErrNoPython is returned when the machine has no Python that a sandbox could
// run.
var ErrNoPython = errors.New("python: no usable python3 found; install Python 3.9 or newer, or name one in " + Variable)

// Level is the extent of a Python's packages, from most to least.
type Level int

// The levels.
const (
	Venv    Level = iota // the prepared virtual environment: everything on the list
	IPython              // IPython, so magics and rich display; the other packages only if they are installed
	Plain                // the standard library alone
	Absent               // no Python
)

// String returns the level's name as doctor shows it.
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

// Env is a Python and the files it depends on. It is a plain value: nothing has
// to be closed.
type Env struct {
	Python  string   // absolute path of the interpreter: its real file, never a shim; "" if Absent
	Version string   // of the interpreter, such as "3.11.7"
	Trees   []string // directories besides /usr that a sandbox must be shown, none inside another
	Vars    []string // variables ("NAME=value") that its processes should have
	Level   Level
	Note    string // one line: the missing or unused parts, and the remedy; "" if everything is in use
}

// Find returns the best Python available now: the one that E2BCTL_PYTHON names, else the prepared
// environment, else a python3 with IPython, else any python3. It runs the candidates to learn
// their version and packages, and installs nothing. If it returns the prepared environment, it
// records there that the environment is in use. If there are several, it prefers the one with the
// packages that were chosen last. A prepared environment that users other than this one and root
// can change is not used; the Note of the returned Env then says so. Find returns [ErrNoPython]
// if the machine has no usable Python, and an error that names the file if E2BCTL_PYTHON does not
// work.
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
// packages that [EnsurePackages] was given last. If that does not exist, Ensure creates it first,
// which downloads about 90 MB and takes a minute. Processes that call Ensure at the same time
// wait for the one that is creating it. If it cannot be created, Ensure returns an error with the
// reason; [Find] then returns the Python that sandboxes run without it. Progress is written to
// progress as lines, or as a bar if it is a terminal; nil is silent.
//
// Regardless of the umask, nobody else can write to the files that Ensure creates. Files that it
// creates for an ordinary user cannot be read by others either. An environment that others can
// change is replaced.
//
// Environments of other versions that nobody has used for 30 days are removed.
//
// When run as root, Ensure may install the system's python3-venv package, which progress
// announces first. Cancelling ctx leaves no unfinished environment. Packages that were downloaded
// before an interruption or an error stay, and the next call continues with them.
func Ensure(ctx context.Context, progress io.Writer) (*Env, error) {
	env, err := named(ctx)
	if env != nil || err != nil {
		return env, err
	}
	c, err := readChoice()
	if err != nil {
		return nil, err
	}
	// The file may have changed. If it can no longer be read, the environment that was made from
	// it stays in use.
	if now, err := newChoice(c.Packages); err == nil {
		c = now
	}
	return ensure(ctx, progress, c)
}

// EnsurePackages does the work of [Ensure] with the packages p instead of those chosen before.
// From now on [Find] and [Ensure] use them, too. The full list downloads about 450 MB. The
// packages of the user's own file are installed after those of the list, whose versions they may
// change, as this user and by pip's rules: without a wheel, pip builds a package from its source.
// A change of the file takes effect at the next call. EnsurePackages returns an error if
// E2BCTL_PYTHON names a Python, because nothing is installed there.
func EnsurePackages(ctx context.Context, progress io.Writer, p Packages) (*Env, error) {
	if name := os.Getenv(Variable); name != "" && p != (Packages{}) {
		return nil, fmt.Errorf("python: nothing is installed into %s=%s, which sandboxes use as it is; unset %s, or install the packages there with pip", Variable, name, Variable)
	}
	c, err := newChoice(p)
	if err != nil {
		return nil, err
	}
	return ensure(ctx, progress, c)
}

// ensure makes the environment unless it exists, and records the choice.
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

// named returns the Python that E2BCTL_PYTHON names, or nil if it names none.
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

// System returns the best Python that lies entirely below /usr, for a sandbox that sees no other
// directories. remedy is the advice to the user in its Note. It returns [ErrNoPython] if there is
// none.
func System(ctx context.Context, remedy string) (*Env, error) {
	found, err := candidates(ctx)
	if err != nil {
		return nil, err
	}
	return best(slices.DeleteFunc(found, func(i *interpreter) bool { return len(i.trees()) > 0 }), remedy)
}

// fallback returns the best of the machine's own interpreters. remedy is the advice to the user
// in its Note.
func fallback(ctx context.Context, remedy string) (*Env, error) {
	found, err := candidates(ctx)
	if err != nil {
		return nil, err
	}
	return best(found, remedy)
}

func best(found []*interpreter, remedy string) (*Env, error) {
	if len(found) == 0 {
		return nil, ErrNoPython
	}
	best := found[0]
	for _, candidate := range found {
		if candidate.has("IPython") {
			best = candidate
			break
		}
	}
	return best.env(remedy), nil
}

// env describes an interpreter that is not the prepared environment.
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
