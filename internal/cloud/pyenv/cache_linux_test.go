package pyenv

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestWithoutACache checks that without a home there is neither a choice nor an environment, and that none is looked for
// in the current directory.
func TestWithoutACache(t *testing.T) {
	dir := only(t)
	t.Chdir(t.TempDir())
	t.Setenv("HOME", "")
	t.Setenv("XDG_CACHE_HOME", "")
	environment := (choice{}).digest() + "-a"
	writeFiles(t, ".", map[string]string{chosen: `{"full":true}`, environment + "/" + marker: "", environment + "/bin/a": ""})
	here, err := os.Getwd()
	must.Do(t, err)
	describing(t, filepath.Join(here, venvPython(environment)), here, best, "IPython")
	if c, err := readChoice(); c != (choice{}) || err != nil {
		t.Errorf("got the choice %+v and error %v, want none", c, err)
	}
	if found, err := venvInterpreter(t.Context(), choice{}); found != nil || err != nil {
		t.Errorf("got the interpreter %+v and error %v, want none", found, err)
	}
	describing(t, filepath.Join(dir, "python3"), "/opt/p", best, "ensurepip")
	_, made := Ensure(t.Context(), nil)
	for what, err := range map[string]error{"writing a choice": (choice{Packages: Packages{Full: true}}).write(), "Ensure": made} {
		if err == nil || !strings.HasPrefix(err.Error(), "python: no cache directory for the Python environment: ") {
			t.Errorf("%s: got error %v", what, err)
		}
	}
	left, err := filepath.Glob("*")
	if diff := cmp.Diff([]string{environment, chosen}, left); diff != "" || err != nil {
		t.Errorf("the current directory: error %v (-want +got):\n%s", err, diff)
	}
}

// TestPythonsThatCannotAnswer checks what is found if a Python of the machine or of an environment does not describe itself.
// A shortage of the machine and the end of the context are errors. Any other Python is left out.
func TestPythonsThatCannotAnswer(t *testing.T) {
	const broken, short = "#!/bin/sh\nexit 1\n", "#!/bin/sh\necho too many open files >&2\nexit 1\n"
	const remedy = "no more files can be opened; raise ulimit -n: "
	for name, tt := range map[string]struct {
		environment string // the Python of the environment; "": one without IPython
		machine     string // one of the machine's; "": none
		want        string // name of the Python that is found
		fails       string
	}{
		"a broken environment":       {broken, "", "python3", ""},
		"one without IPython":        {"", "", "python3", ""},
		"a shortage there":           {short, "", "", "python: look for the environment in CACHE: " + remedy},
		"a broken Python":            {broken, broken, "python3", ""},
		"a shortage for one Python":  {broken, short, "python3", ""},
		"a shortage for each Python": {broken, short, "", "python: look for an interpreter: " + remedy},
	} {
		t.Run(name, func(t *testing.T) {
			dir := only(t)
			usual = []string{"first", "python3"}
			cache, err := cacheDirectory()
			must.Do(t, err)
			environment := filepath.Join(cache, (choice{}).digest()+"-3.13-a")
			writeFiles(t, environment, map[string]string{marker: "", "bin/python3": tt.environment})
			if tt.environment == "" {
				describing(t, venvPython(environment), environment, best, "numpy")
			}
			if tt.machine != "" {
				writeFiles(t, dir, map[string]string{"first": tt.machine})
			}
			if tt.want != "" || tt.machine == "" {
				describing(t, filepath.Join(dir, "python3"), "/opt/p", best, "IPython", "ensurepip")
			}
			env, err := Find(t.Context())
			fails := strings.Replace(tt.fails, "CACHE", cache, 1)
			switch {
			case tt.fails == "" && (err != nil || env.Python != filepath.Join(dir, tt.want) || env.Level != IPython):
				t.Errorf("got %+v and error %v, want %s", env, err, tt.want)
			case tt.fails != "" && (env != nil || err == nil || !strings.HasPrefix(err.Error(), fails)):
				t.Errorf("got %+v and error %v, want %s", env, err, fails)
			}
			if tt.fails != "" {
				if env, err := Ensure(t.Context(), nil); env != nil || err == nil || !strings.HasPrefix(err.Error(), fails) {
					t.Errorf("Ensure: got %+v and error %v, want %s", env, err, fails)
				}
				if locked := exists(filepath.Join(cache, "lock")); locked != (tt.machine != "") {
					t.Errorf("it was locked: %v, want that only a new environment is", locked)
				}
			}
			mine := errors.New("mine")
			ended, cancel := context.WithCancelCause(t.Context())
			cancel(mine)
			if found, err := venvInterpreter(ended, choice{}); found != nil || !errors.Is(err, mine) {
				t.Errorf("given up: got %+v and error %v, want %v", found, err, mine)
			}
		})
	}
}

// TestEnsureWithoutPython checks the errors of a machine on which no environment can be made, and that nothing is left of it.
func TestEnsureWithoutPython(t *testing.T) {
	dir := only(t)
	if env, err := Ensure(t.Context(), nil); env != nil || !errors.Is(err, ErrNoPython) {
		t.Errorf("no Python: got %+v and error %v, want %v", env, err, ErrNoPython)
	}
	describing(t, filepath.Join(dir, "python3"), "/opt/p", best, "ensurepip")
	cache, err := cacheDirectory()
	must.Do(t, err)
	must.Do(t, os.WriteFile(filepath.Join(cache, chosen), []byte("{"), 0o600))
	if env, err := Ensure(t.Context(), nil); env != nil || err == nil || !strings.HasPrefix(err.Error(), "python: read which packages were chosen from ") {
		t.Errorf("half a choice: got %+v and error %v", env, err)
	}
	must.Do(t, os.Remove(filepath.Join(cache, chosen)))
	must.Do(t, os.Remove(filepath.Join(cache, "lock")))
	writeFiles(t, cache, map[string]string{"lock/below": ""})
	if env, err := Ensure(t.Context(), nil); env != nil || err == nil || !strings.HasPrefix(err.Error(), "python: lock the environment: ") {
		t.Errorf("no lock: got %+v and error %v", env, err)
	}
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "python3"))
	if env, err := Ensure(t.Context(), nil); env != nil || err == nil || !strings.HasPrefix(err.Error(), "python: make the cache directory: ") {
		t.Errorf("no cache: got %+v and error %v", env, err)
	}
}

// TestSharedChoice checks that no other environment replaces the chosen one if other users can change it.
func TestSharedChoice(t *testing.T) {
	dir := only(t)
	usual = nil
	cache, err := cacheDirectory()
	must.Do(t, err)
	all := choice{Packages: Packages{Full: true}}
	must.Do(t, os.MkdirAll(cache, 0o755))
	must.Do(t, all.write())
	for c, mode := range map[choice]fs.FileMode{all: 0o777, {}: 0o755} {
		environment := filepath.Join(cache, c.digest()+"-3.13-a")
		writeFiles(t, environment, map[string]string{marker: "", "bin/a": ""})
		describing(t, venvPython(environment), environment, best, "IPython")
		must.Do(t, os.Chmod(environment, mode))
	}
	if env, err := Find(t.Context()); env != nil || !errors.Is(err, ErrNoPython) {
		t.Errorf("got %+v and error %v, want %v", env, err, ErrNoPython)
	}
	usual = []string{"python3"}
	describing(t, filepath.Join(dir, "python3"), "/opt/p", best)
	env, err := Find(t.Context())
	if err != nil || env.Python != filepath.Join(dir, "python3") || !strings.HasSuffix(env.Note, ": "+all.remedy()+", which makes another one") {
		t.Errorf("got %+v and error %v, want the machine's Python and a note", env, err)
	}
}

// TestChoiceThatChanges checks that the choice of the default packages is recorded if another process removes the file at
// the same time, and the error if this is not possible.
func TestChoiceThatChanges(t *testing.T) {
	for below, fails := range map[string]bool{"": false, "below": true} {
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
		cache, err := cacheDirectory()
		must.Do(t, err)
		must.Do(t, os.MkdirAll(cache, 0o700))
		name := filepath.Join(cache, chosen)
		must.Do(t, syscall.Mkfifo(name, 0o600))
		changed := make(chan error, 1)
		go func() {
			file, err := os.OpenFile(name, os.O_WRONLY, 0) // this waits for the reader
			if err != nil {
				changed <- err
				return
			}
			err = os.Remove(name)
			if below != "" {
				err = errors.Join(err, os.MkdirAll(filepath.Join(name, below), 0o700))
			}
			_, failed := file.WriteString("{")
			changed <- errors.Join(err, failed, file.Close())
		}()
		err = (choice{}).write()
		if (err != nil) != fails || err != nil && !strings.HasPrefix(err.Error(), "python: record which packages were chosen: ") {
			t.Errorf("below it is %q: got error %v, want one: %v", below, err, fails)
		}
		must.Do(t, patience.Receive(t, "the change", changed))
	}
}

// TestProgramsEndWithTheirGroup checks that the programs that a builder's program has started end when it is cancelled.
func TestProgramsEndWithTheirGroup(t *testing.T) {
	t.Parallel()
	held, lock, err := os.Pipe() // a program that runs on holds this lock
	must.Do(t, err)
	b := builder{scratch: t.TempDir(), lock: lock}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err = b.command(ctx, func(string) { cancel() }, "/bin/sh", "-c", "sleep 60 & echo begun; wait")
	must.Is(t, err, context.Canceled)
	must.Do(t, lock.Close())
	must.Do(t, held.SetReadDeadline(patience.Deadline()))
	if n, err := held.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %d bytes and error %v, want that nobody has the lock", n, err)
	}
	must.Do(t, held.Close())

	ended := exec.CommandContext(t.Context(), "/bin/sh", "-c", "exit 0")
	endWithParent(ended)
	must.Do(t, ended.Run())
	must.Is(t, ended.Cancel(), os.ErrProcessDone)
}

// TestTerminals checks that progress is shown as a bar on a terminal.
func TestTerminals(t *testing.T) {
	t.Parallel()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		skip(t, "a terminal is needed: %v", err)
	}
	if !newReporter(terminal).terminal {
		t.Error("a terminal counts as a file")
	}
	must.Do(t, terminal.Close())
}

// TestRepairedPython checks that the system's Python is used after apt-get installed python3-venv.
func TestRepairedPython(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root installs packages")
	}
	dir := only(t)
	describing(t, filepath.Join(dir, "python3"), "/opt/p", best)
	writeFiles(t, dir, map[string]string{"apt-get": "#!/bin/sh\n"})
	want, missing := ask(t.Context(), "/usr/bin/python3")
	if missing == nil && !want.has("ensurepip") {
		want, missing = nil, fmt.Errorf("it still has no ensurepip")
	}
	got, err := baseInterpreter(t.Context(), short, newReporter(nil))
	if missing != nil {
		if got != nil || err == nil || !strings.HasSuffix(err.Error(), "after python3-venv was installed: "+missing.Error()) {
			t.Errorf("got %+v and error %v, want %v", got, err, missing)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
}

// TestCachesThatAreNotClosed checks that a cache keeps its mode if it belongs to another user, or if an environment in it
// cannot be marked as incomplete.
func TestCachesThatAreNotClosed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		owner  int
		mode   fs.FileMode
		marker string // path of a file in the environment
		want   string
	}{
		"another user's":                {12345, 0o755, marker, " belongs to user 12345"},
		"another user's, and open":      {12345, 0o777, marker, " belongs to user 12345"},
		"the marker cannot be removed":  {os.Geteuid(), 0o777, marker + "/below", "directory not empty"},
		"only the environment is open":  {os.Geteuid(), 0o755, marker, ""},
		"the environment has no marker": {os.Geteuid(), 0o755, "another", ""},
	} {
		if tt.owner != os.Geteuid() && os.Geteuid() != 0 {
			continue // only root can give a directory to another user
		}
		parent := filepath.Join(t.TempDir(), "e2bctl")
		cache := filepath.Join(parent, "python")
		writeFiles(t, cache, map[string]string{"environment/" + tt.marker: ""})
		must.Do(t, os.Chmod(filepath.Join(cache, "environment"), 0o777))
		must.Do(t, os.Chmod(parent, 0o700))
		must.Do(t, os.Chmod(cache, tt.mode))
		must.Do(t, os.Chown(cache, tt.owner, -1))
		err := makeCache(cache, newReporter(nil))
		if (err == nil) != (tt.want == "") || err != nil && (!strings.HasPrefix(err.Error(), "python: the cache directory: ") || !strings.HasSuffix(err.Error(), tt.want)) {
			t.Errorf("%s: got error %v, want %q", name, err, tt.want)
		}
		if info, err := os.Stat(cache); err != nil || tt.want != "" && info.Mode().Perm() != tt.mode {
			t.Errorf("%s: got mode %v and error %v, want %v", name, info.Mode(), err, tt.mode)
		}
		if !exists(filepath.Join(cache, "environment", tt.marker)) {
			t.Errorf("%s: the marker was removed", name)
		}
	}
}
