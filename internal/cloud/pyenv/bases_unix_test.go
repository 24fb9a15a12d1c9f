//go:build unix

package pyenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// only makes a new directory the whole PATH, and python3 the only usual name of an interpreter. It returns the
// directory.
func only(t *testing.T) string {
	t.Helper()
	dir, before := t.TempDir(), usual
	usual = []string{"python3"}
	t.Cleanup(func() { usual = before })
	t.Setenv("PATH", dir)
	t.Setenv(Variable, "")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	return dir
}

// describing writes an interpreter that describes itself as Python 3.minor in prefix, with modules.
func describing(t *testing.T, path, prefix string, minor int, modules ...string) {
	t.Helper()
	text, err := json.Marshal(interpreter{
		Executable: path, Real: prefix + "/bin/python3", Base: path, Prefixes: []string{prefix}, Numbers: [3]int{3, minor, 1}, Modules: append([]string{}, modules...),
	})
	must.Do(t, err)
	must.Do(t, os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\necho '%s'\n", text), 0o755))
}

// TestBaseInterpreters checks with which interpreter of a machine environments are created, or what is missing, and whether
// it is preferred to that of an environment of Python 3.12.
func TestBaseInterpreters(t *testing.T) {
	const venv = "ensurepip"
	made := &interpreter{Numbers: [3]int{3, 12, 5}}
	for name, tt := range map[string]struct {
		minors     map[string]int // by name
		without    string         // the one without ensurepip
		want       string
		fails      string
		preferable bool
	}{
		"nothing":                   {nil, "", "", ErrNoPython.Error(), false},
		"too old":                   {map[string]int{"python3": 8}, "", "", ErrNoPython.Error(), false},
		"the oldest":                {map[string]int{"python3": 9}, "", "python3", "", false},
		"the newest of the list":    {map[string]int{"python3": 14}, "", "python3", "", false},
		"too new":                   {map[string]int{"python3": 15}, "", "", "python: no python3 from 3.9 to 3.14 found; install one, or name one in " + Variable, false},
		"a preferred name":          {map[string]int{"python3": 14, "python3.13": 13, "python3.12": 12}, "", "python3.13", "", true},
		"the second name":           {map[string]int{"python3": 14, "python3.12": 12}, "", "python3.12", "", false},
		"one without ensurepip":     {map[string]int{"python3": 11, "python3.13": 13}, "python3.13", "python3", "", false},
		"none has ensurepip":        {map[string]int{"python3.13": 13}, "python3.13", "", "this python3 cannot make virtual environments; install python3-venv (apt-get install python3-venv)", false},
		"the usual one is the best": {map[string]int{"python3": 13, "python3.12": 12}, "", "python3", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := only(t)
			for name, minor := range tt.minors {
				modules := []string{venv}
				if name == tt.without {
					modules = nil
				}
				describing(t, filepath.Join(dir, name), "/opt/"+name, minor, modules...)
			}
			const l = list("# Python 3.9 to 3.14; a list\n")
			got, err := baseInterpreter(t.Context(), l, newReporter(nil))
			switch {
			case tt.want == "" && (err == nil || !strings.Contains(err.Error(), tt.fails)):
				t.Errorf("got %+v and error %v, want %q", got, err, tt.fails)
			case tt.want != "" && (err != nil || got.Executable != filepath.Join(dir, tt.want)):
				t.Errorf("got %+v and error %v, want %s", got, err, tt.want)
			}
			if better := preferable(t.Context(), made, l); better != tt.preferable {
				t.Errorf("it is preferred to Python 3.12: %v, want %v", better, tt.preferable)
			}
			mine := errors.New("mine")
			ended, cancel := context.WithCancelCause(t.Context())
			cancel(mine)
			if got, err := baseInterpreter(ended, l, newReporter(nil)); !errors.Is(err, mine) {
				t.Errorf("given up: got %+v and error %v, want %v", got, err, mine)
			}
		})
	}
}

// TestVersionsOfAList checks which interpreters a list has files for, and their order.
func TestVersionsOfAList(t *testing.T) {
	dir := only(t)
	usual = []string{"a", "b", "c", "d"}
	for name, minor := range map[string]int{"a": 9, "b": 10, "c": 12, "d": 13} {
		describing(t, filepath.Join(dir, name), "/opt/"+name, minor)
	}
	fit, all, err := bases(t.Context(), "# Python 3.10 to 3.12; a list\n")
	var versions []string
	for _, i := range fit {
		versions = append(versions, i.version())
	}
	if diff := cmp.Diff([]string{"3.12.1", "3.10.1"}, versions); diff != "" || all != 4 || err != nil {
		t.Errorf("got %d and error %v (-want +got):\n%s", all, err, diff)
	}
}

// TestSystemPython checks that only a Python below /usr counts as one of the system, and the best one otherwise.
func TestSystemPython(t *testing.T) {
	dir := only(t)
	usual = []string{"a", "b", "c"}
	describing(t, filepath.Join(dir, "a"), "/opt/a", 11, "IPython")
	if env, err := System(t.Context(), "remedy"); !errors.Is(err, ErrNoPython) {
		t.Errorf("only one elsewhere: got %+v and error %v, want %v", env, err, ErrNoPython)
	}
	describing(t, filepath.Join(dir, "b"), "/usr", 12)
	describing(t, filepath.Join(dir, "c"), "/usr/local", 10)
	note := " lacks IPython, numpy, pandas, matplotlib, pillow, requests, jinja2, nbformat, nest-asyncio: remedy"
	want := &Env{Python: filepath.Join(dir, "b"), Version: "3.12.1", Level: Plain, Note: filepath.Join(dir, "b") + " (Python 3.12.1)" + note}
	env, err := System(t.Context(), "remedy")
	if diff := cmp.Diff(want, env); diff != "" || err != nil {
		t.Errorf("got error %v (-want +got):\n%s", err, diff)
	}
	want = &Env{
		Python: filepath.Join(dir, "a"), Version: "3.11.1", Level: IPython, Trees: []string{"/opt/a"},
		Note: filepath.Join(dir, "a") + " (Python 3.11.1)" + strings.Replace(note, "IPython, ", "", 1),
	}
	env, err = fallback(t.Context(), "remedy")
	if diff := cmp.Diff(want, env); diff != "" || err != nil {
		t.Errorf("of all: got error %v (-want +got):\n%s", err, diff)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for what, find := range map[string]func() (*Env, error){
		"System": func() (*Env, error) { return System(ended, "") }, "fallback": func() (*Env, error) { return fallback(ended, "") },
	} {
		if env, err := find(); env != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("%s, given up: got %+v and error %v, want %v", what, env, err, context.Canceled)
		}
	}
}

// TestInstallVenvModule checks the calls of apt-get: the list of packages is only updated if the package is not found.
func TestInstallVenvModule(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root installs packages")
	}
	const install, update = "install -y -qq --no-install-recommends python3-venv noninteractive\n", "update -qq noninteractive\n"
	for name, tt := range map[string]struct {
		script, calls string
		fails         string
	}{
		"installed":          {`exit 0`, install, ""},
		"after an update":    {`[ "$1" = update ] && : >updated; [ -e updated ]`, install + update + install, ""},
		"the update fails":   {`echo no network >&2; exit 1`, install + update, "no network"},
		"it is still absent": {`[ "$1" = update ] || { echo no package >&2; exit 1; }`, install + update + install, "no package"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := only(t)
			script := "#!/bin/sh\ncd " + dir + "\necho \"$* $DEBIAN_FRONTEND\" >>calls\n" + tt.script + "\n"
			must.Do(t, os.WriteFile(filepath.Join(dir, "apt-get"), []byte(script), 0o755))
			var said strings.Builder
			err := installVenvModule(t.Context(), newReporter(&said))
			if (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
				t.Errorf("got error %v, want %q", err, tt.fails)
			}
			calls, _ := os.ReadFile(filepath.Join(dir, "calls"))
			if diff := cmp.Diff(tt.calls, string(calls)); diff != "" || !strings.Contains(said.String(), "installing the system's python3-venv") {
				t.Errorf("said %q, and called apt-get (-want +got):\n%s", said.String(), diff)
			}
		})
	}
}

// TestAnswersOfInterpreters checks how an interpreter is asked about itself, and the errors of answers that cannot be used.
func TestAnswersOfInterpreters(t *testing.T) {
	dir := only(t)
	t.Setenv("PYTHONPATH", dir)
	path := filepath.Join(dir, "python3")
	const fine = `{"executable":"/opt/p/bin/python3","real":"/opt/p/bin/python3.9","base":"/opt/p/bin/python3","prefixes":["/opt/p"],"version":[3,9,0],"modules":["numpy"]}`
	for script, want := range map[string]string{
		"echo ' " + fine + " '":   "",
		"echo broken >&2; exit 3": "run " + path + ": exit status 3: broken",
		"echo hello":              path + " does not answer as Python does: ",
		"exit 0":                  path + " does not answer as Python does: ",
		"echo '" + strings.Replace(fine, `"/opt/p/bin/python3"`, `""`, 1) + "'":   "the interpreter does not know its own file",
		"echo '" + strings.Replace(fine, "3,9,0", "3,8,9", 1) + "'":               "/opt/p/bin/python3 is Python 3.8.9; 3.9 or newer is needed",
		"echo '" + strings.Replace(fine, "3,9,0", "2,9,0", 1) + "'":               "/opt/p/bin/python3 is Python 2.9.0; 3.9 or newer is needed",
		"echo '" + strings.Replace(fine, `["/opt/p"]`, `["/opt/p","/"]`, 1) + "'": "/opt/p/bin/python3 is installed into / itself",
	} {
		must.Do(t, os.WriteFile(path, []byte("#!/bin/sh\nprintf '%s\\n' \"$@\" \"$PYTHONPATH\" >"+dir+"/asked\n"+script+"\n"), 0o755))
		got, err := ask(t.Context(), "python3")
		if want == "" {
			all := &interpreter{
				Executable: "/opt/p/bin/python3", Real: "/opt/p/bin/python3.9", Base: "/opt/p/bin/python3", Prefixes: []string{"/opt/p"}, Numbers: [3]int{3, 9, 0}, Modules: []string{"numpy"},
			}
			if diff := cmp.Diff(all, got); diff != "" || err != nil {
				t.Errorf("%s: got error %v (-want +got):\n%s", script, err, diff)
			}
		} else if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got error %v, want %s", script, err, want)
		}
	}
	asked, err := os.ReadFile(filepath.Join(dir, "asked"))
	want := "-I\n-c\n" + probe + "\nIPython\nnumpy\npandas\nmatplotlib\nPIL\nrequests\njinja2\nnbformat\nnest_asyncio\nensurepip\n\n"
	if diff := cmp.Diff(want, string(asked)); diff != "" || err != nil {
		t.Errorf("asked with error %v (-want +got):\n%s", err, diff)
	}
	if _, err := ask(t.Context(), "none"); err == nil {
		t.Error("an interpreter that is not there answered")
	}
}

// TestHomesAreRefused checks that a Python is refused whose files are the whole home, even if the home is unknown.
func TestHomesAreRefused(t *testing.T) {
	for _, tt := range []struct {
		home, tree string
		fits       bool
	}{
		{"/home/ann", "/home/ann/python", true},
		{"/home/ann", "/home/ann", false},
		{"", "/root", false},
		{"", "/root/python", true},
		{"relative", "/", false},
		{"relative", "/opt", true},
	} {
		t.Setenv("HOME", tt.home)
		found := interpreter{Executable: tt.tree + "/bin/python3", Real: tt.tree + "/bin/python3", Prefixes: []string{tt.tree}, Numbers: [3]int{3, best, 0}}
		if err := found.check(); (err == nil) != tt.fits || err != nil && !strings.Contains(err.Error(), "is installed into "+tt.tree+" itself") {
			t.Errorf("home %q: got error %v for %s, want it to be usable: %v", tt.home, err, tt.tree, tt.fits)
		}
	}
}

// TestProgramsOfABuilder checks the variables, the directory, the umask and the lock that the builder's programs have, and
// the error of one that fails or is cancelled.
func TestProgramsOfABuilder(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must.Do(t, err)
	for _, name := range append([]string{"PYTHONPATH", "PYTHONHOME", "DEBIAN_FRONTEND", "TMPDIR"}, elsewhere...) {
		t.Setenv(name, "of the user")
	}
	t.Setenv("PIP_INDEX_URL", "https://of.the.user")
	lock, err := os.Create(filepath.Join(dir, "lock"))
	must.Do(t, err)
	defer lock.Close()
	const show = `pwd; umask; [ -e /dev/fd/3 ] && echo locked; echo "$PIP_INDEX_URL,$DEBIAN_FRONTEND,$PYTHONNOUSERSITE,$TMPDIR,$TEMP,$TMP,$PYTHONPATH$PYTHONHOME"`
	var pip string
	for _, name := range elsewhere {
		pip += "$" + name
	}
	for _, tt := range []struct {
		b    builder
		want []string
	}{
		{builder{scratch: dir, lock: lock}, []string{dir, "0022", "locked", "https://of.the.user,noninteractive,1," + dir + "/tmp," + dir + "/tmp," + dir + "/tmp,", ""}},
		{builder{scratch: dir}, []string{dir, "0022", "https://of.the.user,noninteractive,1," + dir + "/tmp," + dir + "/tmp," + dir + "/tmp,", ""}},
	} {
		var got []string
		must.Do(t, tt.b.command(t.Context(), func(line string) { got = append(got, line) }, "/bin/sh", "-c", show+`; echo "`+pip+`"`))
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("lock %v (-want +got):\n%s", tt.b.lock != nil, diff)
		}
	}
	b := builder{scratch: dir}
	err = b.command(t.Context(), nil, "/bin/sh", "-c", "echo https://me:secret@a.test >&2; exit 3", "four", "five")
	if want := "python: /bin/sh -c echo https://me:secret@a.test >&2; exit 3 four: exit status 3: https://a.test"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
	mine := errors.New("mine")
	ctx, cancel := context.WithCancelCause(t.Context())
	err = b.command(ctx, func(string) { cancel(mine) }, "/bin/sh", "-c", "echo begun; exec sleep 600")
	if !errors.Is(err, mine) {
		t.Errorf("cancelled: got error %v, want %v", err, mine)
	}
}
