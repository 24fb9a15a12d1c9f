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

// Variable is the environment variable that names the Python to use instead of
// anything that would be found or created.
const Variable = "E2BCTL_PYTHON"

// ErrNoPython is returned when the machine has no Python that a sandbox could
// run.
var ErrNoPython = errors.New("python: no usable python3 found; install Python 3.9 or newer, or name one in " + Variable)

// Level says how much a Python can do, from most to least.
type Level int

// The levels.
const (
	Venv    Level = iota // the prepared virtual environment: everything on the list
	IPython              // IPython, so magics and rich display; the other packages as they are
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
	Note    string // one line: what is missing or not used, and what to do; "" if there is nothing to say
}

// Find returns the best Python available now: the one that E2BCTL_PYTHON names,
// else the prepared environment, else a python3 with IPython, else any python3.
// It runs the candidates to find out about them, and installs nothing. If it
// returns the prepared environment, it records there that the environment is in
// use. Of several it prefers the one with the packages that were chosen last. A
// prepared environment that users other than this one and root can change is not
// used; the Note of the Env returned instead says so. Find returns [ErrNoPython]
// when there is none, and an error that names the file when E2BCTL_PYTHON does not
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

// Ensure returns the Python that E2BCTL_PYTHON names, else the prepared
// environment with the packages that [EnsurePackages] was given last. If that does
// not exist, Ensure creates it first, which downloads about 90 MB and takes a
// minute. Processes that call Ensure at the same time wait for the one that is
// creating it. If it cannot be created, Ensure returns an error that says why;
// [Find] then returns what sandboxes run without it. Progress is written to progress
// as lines, or as a bar when it is a terminal; nil is silent.
//
// Regardless of the umask, nobody else can write to what Ensure creates, or read
// what it creates for an ordinary user. An environment that others can change is
// replaced.
//
// Environments of other versions that nobody has used for 30 days are removed.
//
// When run as root, Ensure may install the system's python3-venv package, which
// progress announces first. Cancelling ctx leaves nothing half made. What was fetched by then stays,
// however the work ended, and the next call goes on from it.
func Ensure(ctx context.Context, progress io.Writer) (*Env, error) {
	env, err := named(ctx)
	if env != nil || err != nil {
		return env, err
	}
	c, err := readChoice()
	if err != nil {
		return nil, err
	}
	// The file may have changed. One that can no longer be read does not take away
	// the environment that was made from it.
	if now, err := newChoice(c.Packages); err == nil {
		c = now
	}
	return ensure(ctx, progress, c)
}

// EnsurePackages does what [Ensure] does, for these packages instead of those that
// were chosen before. They are what [Find] and [Ensure] return from now on. The full
// list downloads about 450 MB. The packages of a file of the user's own are installed
// after those of the list, whose versions they may change, as this user and by pip's
// rules: where there is no wheel, pip builds one from the source. A file that changed
// counts at the next call. EnsurePackages returns an error if E2BCTL_PYTHON names a
// Python, where nothing is installed.
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

// ensure makes the environment unless it is there, and records that it was chosen.
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

// System returns the best Python that lies entirely below /usr, for a sandbox
// that can be shown nothing else. remedy is what its note tells the user to do.
// It returns [ErrNoPython] when there is none.
func System(ctx context.Context, remedy string) (*Env, error) {
	found, err := candidates(ctx)
	if err != nil {
		return nil, err
	}
	return best(slices.DeleteFunc(found, func(i *interpreter) bool { return len(i.trees()) > 0 }), remedy)
}

// fallback returns the best of the machine's own interpreters. remedy is what
// its note tells the user to do.
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
