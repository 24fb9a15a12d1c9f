package pyenv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"

	"github.com/e2bctl/e2bctl/internal/cloud/hostprogram"
	"github.com/e2bctl/e2bctl/internal/cloud/shortage"
	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// marker is the name of the file that marks a virtual environment as complete. It is written
// last. An environment cannot be created elsewhere and renamed, because its scripts contain its
// path. An environment without the marker was left behind by an interrupted run.
const marker = "e2bctl-complete"

// fonts is the path of matplotlib's font list in the environment. The list is created with the
// environment, so that the first plot in a sandbox does not search the machine for fonts.
const fonts = "share/matplotlib"

// cacheDirectory returns the directory in which environments are created.
func cacheDirectory() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("python: no cache directory for the Python environment: %w", err)
	}
	return filepath.Join(cache, "e2bctl", "python"), nil
}

// errRefused reports that an environment exists but is not used, because other users of the
// machine can change it.
var errRefused = errors.New("python: the prepared environment is not used")

// findVenv returns the complete environment with the packages of c and the preferred version of
// Python. If no such environment works, findVenv returns nil. If there is only an environment that
// other users can change, the error wraps [errRefused]. findVenv runs only the environment's own
// interpreter, so the first python3 in PATH does not matter.
func findVenv(ctx context.Context, c choice) (*Env, error) {
	found, err := venvInterpreter(ctx, c)
	if found == nil || err != nil {
		return nil, err
	}
	directory := filepath.Dir(filepath.Dir(found.Executable))
	env := found.env(c.remedy())
	env.Level = Venv
	env.NoteUse()
	env.Vars = []string{"MPLCONFIGDIR=" + filepath.Join(directory, filepath.FromSlash(fonts))}
	return env, nil
}

// findMarkers returns the markers of the complete environments in cache whose names match a pattern.
func findMarkers(cache, pattern string) ([]string, error) {
	names, err := fs.Glob(os.DirFS(cache), pattern+"/"+marker)
	for i, name := range names {
		names[i] = filepath.Join(cache, name)
	}
	return names, err
}

// venvInterpreter returns the interpreter of the environment that findVenv returns.
func venvInterpreter(ctx context.Context, c choice) (*interpreter, error) {
	cache, err := cacheDirectory()
	if err != nil {
		return nil, nil //nolint:nilerr // without a cache there is no environment in it
	}
	markers, err := findMarkers(cache, c.digest()+"-*")
	if err != nil {
		return nil, fmt.Errorf("python: look for the environment in %s: %w", cache, err)
	}
	var (
		preferred *interpreter
		refused   error
	)
	for _, name := range markers {
		if err := checkUnshared(filepath.Dir(name)); err != nil {
			refused = fmt.Errorf("%w: %w", errRefused, err)
			continue
		}
		found, err := ask(ctx, venvPython(filepath.Dir(name)))
		if ctx.Err() != nil {
			return nil, fmt.Errorf("python: look for the environment in %s: %w", cache, context.Cause(ctx))
		}
		if err != nil {
			if short := shortage.Of(err); short != nil {
				return nil, fmt.Errorf("python: look for the environment in %s: %w", cache, short)
			}
			continue
		}
		if found.has("IPython") && (preferred == nil || found.isPreferredTo(preferred)) {
			preferred = found
		}
	}
	if preferred == nil {
		return nil, refused
	}
	return preferred, nil
}

func venvPython(directory string) string {
	if runtime.GOOS == "windows" {
		return filepath.Join(directory, "Scripts", "python.exe")
	}
	return filepath.Join(directory, "bin", "python3")
}

// makeVenv returns the environment for c. If the environment does not exist, or the machine has a
// Python that is preferred to the environment's, makeVenv creates it. If another process is already creating
// it, makeVenv waits for that process. The errors name the packages that the user must install.
func makeVenv(ctx context.Context, c choice, report *reporter) (*Env, error) {
	cache, err := cacheDirectory()
	if err != nil {
		return nil, err
	}
	if err := makeCache(cache, report); err != nil {
		return nil, err
	}
	if made, err := venvInterpreter(ctx, c); err != nil && !errors.Is(err, errRefused) {
		return nil, err
	} else if made != nil && !preferable(ctx, made, c.list()) {
		return findVenv(ctx, c)
	}
	lock, err := acquire(ctx, filepath.Join(cache, "lock"), report)
	if err != nil {
		return nil, err
	}
	defer func() { _ = lock.Close() }() // closing loses nothing, as the file is empty
	made, err := venvInterpreter(ctx, c)
	switch {
	case errors.Is(err, errRefused):
		report.line("%v; making another one", err)
	case err != nil:
		return nil, err
	case made != nil && !preferable(ctx, made, c.list()):
		return findVenv(ctx, c)
	}
	base, err := baseInterpreter(ctx, c.list(), report)
	if err != nil {
		return nil, err
	}
	if err := buildVenv(ctx, cache, c, base, lock, report); err != nil {
		if made == nil || ctx.Err() != nil {
			return nil, err
		}
		report.line("the environment with Python %s stays in use, as none could be made with Python %s: %v", made.version(), base.version(), err)
	}
	env, err := findVenv(ctx, c)
	if err == nil && env == nil {
		err = fmt.Errorf("python: the environment made with %s does not run", base.Base)
	}
	return env, err
}

func buildVenv(ctx context.Context, cache string, c choice, base *interpreter, lock *lockedfile.File, report *reporter) error {
	directory := filepath.Join(cache, venvName(c, base))
	if err := os.RemoveAll(directory); err != nil {
		return fmt.Errorf("python: remove a half-made environment: %w", err)
	}
	build := builder{choice: c, directory: directory, fetched: filepath.Join(cache, "fetched"), lock: lock.File, report: report}
	if err := build.run(ctx, base); err != nil {
		return errors.Join(err, os.RemoveAll(directory))
	}
	return nil
}

// bases returns the interpreters of the machine whose versions have files in the list l. The preferred ones come first.
func bases(ctx context.Context, l list) (fit []*interpreter, all int, err error) {
	newer := []string{fmt.Sprintf("python3.%d", best), fmt.Sprintf("python3.%d", best-1)} // not each machine's python3
	found, err := candidates(ctx, append(slices.Clone(usual), newer...)...)
	if err != nil {
		return nil, 0, err
	}
	first, last := l.minors()
	fit = slices.DeleteFunc(slices.Clone(found), func(i *interpreter) bool { return i.Numbers[1] < first || i.Numbers[1] > last })
	slices.SortStableFunc(fit, func(a, b *interpreter) int { return cmp.Compare(b.preference(), a.preference()) })
	return fit, len(found), nil
}

// preferable reports whether the machine has a Python that is preferred to that of an environment, and with
// which environments can be created.
func preferable(ctx context.Context, made *interpreter, l list) bool {
	fit, _, err := bases(ctx, l)
	return err == nil && slices.ContainsFunc(fit, func(i *interpreter) bool { return i.has("ensurepip") && i.preference() > made.preference() })
}

// acquire locks the lock file. If ctx ends first, the lock is released as soon as it is
// acquired.
func acquire(ctx context.Context, name string, report *reporter) (*lockedfile.File, error) {
	type result struct {
		file *lockedfile.File
		err  error
	}
	locked := make(chan result, 1)
	go func() {
		file, err := lockedfile.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
		locked <- result{file, err}
	}()
	waiting := time.NewTimer(time.Second)
	defer waiting.Stop()
	for {
		select {
		case got := <-locked:
			if got.err != nil {
				return nil, fmt.Errorf("python: lock the environment: %w", got.err)
			}
			return got.file, nil
		case <-waiting.C:
			report.line("another process is making the Python environment; waiting for it")
		case <-ctx.Done():
			go func() {
				if got := <-locked; got.err == nil {
					_ = got.file.Close()
				}
			}()
			return nil, fmt.Errorf("python: wait for the process that makes the environment (lock %s): %w", name, context.Cause(ctx))
		}
	}
}

// baseInterpreter returns the preferred interpreter that can create environments and whose version has
// files in the list l. If there are interpreters of these versions, but none of them can create
// environments, baseInterpreter installs python3-venv with apt-get and returns /usr/bin/python3,
// regardless of its version. If there is no interpreter at all, the error is [ErrNoPython].
func baseInterpreter(ctx context.Context, l list, report *reporter) (*interpreter, error) {
	found, all, err := bases(ctx, l)
	if err != nil {
		return nil, err
	}
	if all == 0 {
		return nil, ErrNoPython
	}
	if len(found) == 0 {
		first, last := l.minors()
		return nil, fmt.Errorf("python: no python3 from 3.%d to 3.%d found; install one, or name one in %s", first, last, Variable)
	}
	for _, candidate := range found {
		if candidate.has("ensurepip") {
			return candidate, nil
		}
	}
	if err := installVenvModule(ctx, report); err != nil {
		return nil, err
	}
	repaired, err := ask(ctx, "/usr/bin/python3")
	if err == nil && !repaired.has("ensurepip") {
		err = errors.New("it still has no ensurepip")
	}
	if err != nil {
		return nil, fmt.Errorf("python: /usr/bin/python3 after python3-venv was installed: %w", err)
	}
	return repaired, nil
}

// installVenvModule installs the part of Python that creates environments. Debian's package python3
// does not contain this part.
func installVenvModule(ctx context.Context, report *reporter) error {
	apt, err := hostprogram.Find("apt-get")
	if err != nil || os.Geteuid() != 0 {
		return errors.New("python: this python3 cannot make virtual environments; install python3-venv (apt-get install python3-venv)")
	}
	report.line("python3 cannot make virtual environments: installing the system's python3-venv with apt-get")
	install := []string{apt, "install", "-y", "-qq", "--no-install-recommends", "python3-venv"}
	run := builder{report: report}
	if run.command(ctx, nil, install...) == nil {
		return nil
	}
	if err := run.command(ctx, nil, apt, "update", "-qq"); err != nil {
		return err
	}
	return run.command(ctx, nil, install...)
}

// builder creates one environment.
type builder struct {
	choice    choice
	directory string
	fetched   string   // directory of the fetched packages; kept after an interruption
	scratch   string   // directory in which programs run; "": the directory that contains the program
	lock      *os.File // inherited by programs that the builder runs, so that an orphan still holds the lock
	report    *reporter
}

func (b *builder) run(ctx context.Context, base *interpreter) error {
	start := time.Now()
	pins := b.choice.list().pins(base.Numbers[1])
	b.report.line("making the Python environment with %s (Python %s) in %s: %d packages, once",
		base.Base, base.version(), b.directory, len(pins))
	b.scratch = filepath.Join(b.directory, "scratch")
	if err := os.MkdirAll(b.temporary(), 0o700); err != nil {
		return fmt.Errorf("python: make the directory that pip runs in: %w", err)
	}
	if err := b.command(ctx, nil, base.Base, "-I", "-m", "venv", b.directory); err != nil {
		return err
	}
	if err := b.fetch(ctx, pins); err != nil {
		return err
	}
	if err := b.install(ctx, pins); err != nil {
		return err
	}
	if b.choice.File != "" {
		if err := b.installFile(ctx); err != nil {
			return err
		}
	}
	if err := b.allowUser(ctx); err != nil {
		return err
	}
	if err := WriteKernelspecs(b.directory, b.choice.Full); err != nil {
		return err
	}
	b.report.stage("looking for fonts", 0)
	config := "import os, sys; os.environ['MPLCONFIGDIR'] = sys.argv[1]; import matplotlib.font_manager"
	if err := b.command(ctx, nil, venvPython(b.directory), "-I", "-c", config, filepath.Join(b.directory, filepath.FromSlash(fonts))); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(b.scratch), os.RemoveAll(b.fetched)); err != nil {
		return fmt.Errorf("python: remove the files that pip installed from: %w", err)
	}
	if err := os.WriteFile(filepath.Join(b.directory, marker), []byte(base.Base+"\n"), 0o644); err != nil {
		return fmt.Errorf("python: finish the environment: %w", err)
	}
	b.report.line("the Python environment is ready (%s)", time.Since(start).Round(time.Second/10))
	return nil
}

// temporary returns the directory for temporary files of the builder's programs. A program that is
// killed leaves its temporary files behind. These files are removed with the environment.
func (b *builder) temporary() string { return filepath.Join(b.scratch, "tmp") }

// installFile installs the packages in the user's file.
func (b *builder) installFile(ctx context.Context) error {
	b.report.stage("fetching the packages of "+b.choice.File, 0)
	files := newRequirementFiles(b.scratch)
	copied, err := files.copy(b.choice.File)
	if err != nil {
		return err
	}
	lines := func(line string) {
		if strings.HasPrefix(line, "Installing collected packages") {
			b.report.stage("installing", 0)
		}
	}
	if err := b.pip(ctx, lines, "install", "--prefer-binary", "-r", copied); err != nil {
		return &renamedError{err, files.originals()}
	}
	return nil
}

// pip runs a command of the environment's pip. It passes each line of output to lines.
func (b *builder) pip(ctx context.Context, lines func(string), command string, arguments ...string) error {
	log := filepath.Join(b.directory, "pip.log")
	pip := []string{
		venvPython(b.directory), "-I", "-m", "pip", command, "--no-input", "--disable-pip-version-check", "--progress-bar=off", "--log=" + log,
	}
	if err := b.command(ctx, lines, append(pip, arguments...)...); err != nil {
		return cmp.Or(unreadIndex(log), err)
	}
	_ = os.Remove(log) // the log has megabytes and is not needed
	return nil
}

// elsewhere lists environment variables that would make pip use another Python installation than
// the new environment, or install additional packages.
var elsewhere = []string{
	"PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_PYTHON", "PIP_REQUIREMENT", "PIP_CONSTRAINT", "PIP_EDITABLE", "PIP_GROUP",
	"PIP_REQUIREMENTS_FROM_SCRIPT",
}

// withoutPython removes Python's variables from environ. With these variables, the environment's
// Python, or processes that this Python starts, would run the caller's own files.
func withoutPython(environ []string) []string {
	return slices.DeleteFunc(environ, func(variable string) bool { return strings.HasPrefix(strings.ToUpper(variable), "PYTHON") })
}

var collecting = lazyregexp.New(`^Collecting ([\w.-]+)==`)

// command runs a program until it ends. It passes each line of output to lines. It keeps the
// environment variables that configure the index, the proxy and certificates. It removes variables
// that would make pip install elsewhere.
func (b *builder) command(ctx context.Context, lines func(string), argv ...string) error {
	run := umask(argv)
	command := hostprogram.Command(ctx, b.scratch, run[0], run[1:]...)
	command.Env = slices.DeleteFunc(withoutPython(command.Env), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains(elsewhere, name)
	})
	command.Env = append(command.Env, "DEBIAN_FRONTEND=noninteractive", "PYTHONNOUSERSITE=1")
	if b.scratch != "" {
		for _, variable := range []string{"TMPDIR", "TEMP", "TMP"} {
			command.Env = append(command.Env, variable+"="+b.temporary())
		}
	}
	command.WaitDelay = 5 * time.Second
	if b.lock != nil && runtime.GOOS != "windows" {
		command.ExtraFiles = []*os.File{b.lock}
	}
	var errs tail
	output := lineWriter{line: lines}
	command.Stderr, command.Stdout = &errs, &output
	// endWithParent sets a death signal, which is sent when the thread that starts the process
	// ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	endWithParent(command)
	if err := command.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("python: %s: %w%s", strings.Join(argv[:min(len(argv), 4)], " "), err, errs.suffix())
	}
	return nil
}
