package pyenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/fdtest"
	"github.com/e2bctl/e2bctl/internal/must"
)

func TestMain(m *testing.M) {
	if os.Getenv(listVariable) != "" {
		os.Exit(setUp()) //nolint:forbidigo // this is the main function of that process
	}
	goleak.VerifyTestMain(m)
}

// listVariable makes the test binary prepare the environment of a list of packages, as the command
// local setup does.
const listVariable = "PYENV_TEST_LIST"

func setUp() int {
	short = list(os.Getenv(listVariable))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if _, err := Ensure(ctx, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// pretender is a python3 for tests. It answers the probe, makes environments of copies of itself,
// and counts them. Its pip fetches and installs nothing, and runs the command in PRETEND instead of
// an installation. The directory of its base is not the directory of the python3, as with pyenv. It is
// preferred to the machine's own.
const pretender = `#!/bin/sh
self=$(readlink -f "$0")
prefix=$(dirname "$(dirname "$self")")
if [ "$1$2" = -I-c ]; then
  case "$3" in
  *sysconfig*) echo "$prefix" ;;
  *importlib*) echo '{"executable":"'$self'","real":"'$self'","base":"'$self'","prefixes":["'$prefix'"],"version":[3,MINOR,'${PATCH:-0}'],"modules":["ensurepip","IPython","numpy","pandas","matplotlib","PIL","requests","jinja2","nbformat","nest_asyncio"]}' ;;
  esac
elif [ "$1$2$3" = -I-mvenv ]; then
  [ -n "$4" ] || exit 9 # never the machine's own /bin
  echo run >> "$PIP_RUNS"
  mkdir -p "$4/bin" && cp "$self" "$4/bin/python3"
elif [ "$1$2$3$4" = -I-mpipinstall ]; then
  echo "Collecting numpy==1.0 (from -r x)"
  eval "$PRETEND"
fi
`

// pretend puts the pretender first in PATH, and gives the test its own cache. It returns the
// directory of the cache, and the file that counts the runs of pip.
func pretend(t *testing.T, behaviour string) (cache, runs string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the pretender is a shell script for Linux")
	}
	directory := t.TempDir()
	python := filepath.Join(directory, "opt", "bin", "python3")
	must.Do(t, os.MkdirAll(filepath.Dir(python), 0o755))
	pretendToBe(t, python, best)
	writeFiles(t, filepath.Dir(python), map[string]string{"apt-get": "#!/bin/sh\nexit 1\n"}) // nothing is installed on the machine
	cache, runs = filepath.Join(directory, "cache"), filepath.Join(directory, "runs")
	t.Setenv("PATH", filepath.Dir(python)+":/usr/bin:/bin")
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("PIP_RUNS", runs)
	t.Setenv("PRETEND", behaviour)
	t.Setenv(Variable, "")
	return cache, runs
}

// pretendToBe writes a pretender of Python 3.minor.
func pretendToBe(t *testing.T, path string, minor int) {
	t.Helper()
	must.Do(t, os.WriteFile(path, []byte(strings.Replace(pretender, "MINOR", strconv.Itoa(minor), 1)), 0o755))
}

func environments(t *testing.T, cache string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(cache, "e2bctl", "python", "*-*"))
	must.Do(t, err)
	return found
}

func TestEnsureMakesOneEnvironment(t *testing.T) {
	cache, runs := pretend(t, "[ -e /dev/fd/3 ] || exit 1") // pip holds the lock, too
	var group sync.WaitGroup
	results := make([]*Env, 4)
	for i := range results {
		group.Go(func() {
			env, err := Ensure(t.Context(), nil)
			if err != nil {
				t.Errorf("Ensure: %v", err)
			}
			results[i] = env
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
	made := environments(t, cache)
	if len(made) != 1 {
		t.Fatalf("environments = %q, want one", made)
	}
	want := &Env{
		Python: filepath.Join(made[0], "bin", "python3"), Version: "3.13.0", Trees: made, Level: Venv,
		Vars: []string{"MPLCONFIGDIR=" + filepath.Join(made[0], "share", "matplotlib")},
	}
	for _, env := range results {
		if diff := cmp.Diff(want, env); diff != "" {
			t.Errorf("Ensure (-want +got):\n%s", diff)
		}
	}
	if content, _ := os.ReadFile(runs); string(content) != "run\n" {
		t.Errorf("environments were made at %q, want once", content)
	}
	if open := fdtest.Open(t, cache); len(open) > 0 {
		t.Errorf("%q are still open, want none", open)
	}
	lock := filepath.Join(filepath.Dir(made[0]), "lock")
	must.Do(t, os.Remove(lock))
	for name, get := range map[string]func() (*Env, error){
		"Find": func() (*Env, error) { return Find(t.Context()) }, "Ensure": func() (*Env, error) { return Ensure(t.Context(), nil) },
	} {
		found, err := get()
		if diff := cmp.Diff(want, found); err != nil || diff != "" || exists(lock) {
			t.Errorf("%s takes the lock: %v; error %v (-want +got):\n%s", name, exists(lock), err, diff)
		}
	}
}

// TestEnsureNewerPython checks that an environment is made with the preferred Python of the machine,
// that another is made when the machine has a preferred one later, and that the first stays in use if
// that fails.
func TestEnsureNewerPython(t *testing.T) {
	cache, _ := pretend(t, "")
	usual := filepath.SplitList(os.Getenv("PATH"))[0]
	pretendToBe(t, filepath.Join(usual, "python3"), best+1)
	pretendToBe(t, filepath.Join(usual, "python3.12"), best-1)
	check := func(want string, environs int) string {
		t.Helper()
		var said strings.Builder
		env, err := Ensure(t.Context(), &said)
		if err != nil || env.Version != want || len(environments(t, cache)) != environs {
			t.Errorf("got %+v, %v, %q, want Python %s of %d environments; output: %s", env, err, environments(t, cache), want, environs, said.String())
		}
		if found, err := Find(t.Context()); err != nil || found.Version != want {
			t.Errorf("Find: %+v, %v, want Python %s", found, err, want)
		}
		return said.String()
	}
	check("3.12.0", 1)
	check("3.12.0", 1)

	pretendToBe(t, filepath.Join(usual, "python3.13"), best)
	t.Setenv("PRETEND", "exit 1")
	if said := check("3.12.0", 1); !strings.Contains(said, "the environment with Python 3.12.0 stays in use, as none could be made with Python 3.13.0: ") {
		t.Errorf("reported %q, want which environment stays in use", said)
	}
	t.Setenv("PRETEND", "")
	check("3.13.0", 2)
	must.Do(t, os.Remove(filepath.Join(usual, "python3.13")))
	check("3.13.0", 2)
}

// TestNewestEnvironment checks that the environment with the newest patch version is in use, whatever its
// name.
func TestNewestEnvironment(t *testing.T) {
	cache, _ := pretend(t, "")
	_, err := Ensure(t.Context(), nil)
	must.Do(t, err)
	made := environments(t, cache)[0]
	for suffix, patch := range map[string]int{"a": 10, "b": 9} {
		copied := made + suffix
		must.Do(t, os.CopyFS(copied, os.DirFS(made)))
		script := strings.NewReplacer("MINOR", strconv.Itoa(best), "'${PATCH:-0}'", strconv.Itoa(patch)).Replace(pretender)
		must.Do(t, os.WriteFile(filepath.Join(copied, "bin", "python3"), []byte(script), 0o755))
	}
	want := fmt.Sprintf("3.%d.10", best)
	if found, err := Find(t.Context()); err != nil || found.Version != want {
		t.Errorf("Find: %+v, %v, want Python %s", found, err, want)
	}
}

func TestEnsureReplacesHalfMade(t *testing.T) {
	cache, runs := pretend(t, "")
	env, err := Ensure(t.Context(), nil)
	must.Do(t, err)
	directory := environments(t, cache)[0]
	ruin := filepath.Join(directory, "ruin")
	must.Do(t, os.WriteFile(ruin, nil, 0o644))
	must.Do(t, os.Remove(filepath.Join(directory, marker)))
	if found, err := Find(t.Context()); err != nil || found.Level == Venv {
		t.Errorf("Find = %+v, %v; want no environment without its marker", found, err)
	}
	again, err := Ensure(t.Context(), nil)
	if diff := cmp.Diff(env, again); err != nil || diff != "" {
		t.Errorf("Ensure again: %v (-want +got):\n%s", err, diff)
	}
	if _, err := os.Stat(ruin); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the half-made environment was built upon: %v, want os.ErrNotExist", err)
	}
	if content, _ := os.ReadFile(runs); string(content) != "run\nrun\n" {
		t.Errorf("environments were made at %q, want twice", content)
	}
}

func TestEnsureFails(t *testing.T) {
	const logged = `for a; do case $a in --log=*) log=${a#--log=};; esac; done; `
	tests := []struct{ name, pip, want, not string }{
		{
			"of its own", "echo no route to https://me:secret@index.test/simple >&2; exit 3",
			"no route to https://index.test/simple", "secret",
		},
		{
			"the index refuses", logged + `echo "2026-01-01T00:00:00,000 Could not fetch URL http://me:secret@127.0.0.1:1/simple/numpy/: ` +
				`connection error: [Errno 111] Connection refused - skipping" >>"$log"; echo "ERROR: No matching distribution found for numpy==1.0" >&2; exit 1`,
			"cannot read the package index: http://127.0.0.1:1/simple/numpy/: connection error: [Errno 111] Connection refused; check the network", "No matching",
		},
		{
			"the index has no such package", logged + `echo "Could not fetch URL http://127.0.0.1:1/simple/numpy/: ` +
				`404 Client Error: Not Found for url: x - skipping" >>"$log"; echo "ERROR: No matching distribution found for numpy==1.0" >&2; exit 1`,
			"No matching distribution found for numpy", "cannot read",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cache, _ := pretend(t, test.pip)
			env, err := Ensure(t.Context(), nil)
			if env != nil || err == nil {
				t.Fatalf("Ensure = %+v, %v; want an error", env, err)
			}
			if text := err.Error(); !strings.Contains(text, test.want) || strings.Contains(text, test.not) {
				t.Errorf("Ensure: %v; want %q and no %q", err, test.want, test.not)
			}
			if left := environments(t, cache); len(left) != 0 {
				t.Errorf("left behind: %q, want none", left)
			}
			if env, err := Find(t.Context()); err != nil || env.Level != IPython {
				t.Errorf("Find = %+v, %v; want what there is without the environment", env, err)
			}
		})
	}
}

// TestEnvironmentThatDoesNotRun checks the error of an environment whose interpreter cannot describe itself.
func TestEnvironmentThatDoesNotRun(t *testing.T) {
	cache, _ := pretend(t, `printf '#!/bin/sh\ncase "$*" in *importlib*) exit 1;; esac\ndirname "$0"\n' >"$prefix/bin/python3"`)
	env, err := EnsurePackages(t.Context(), nil, Packages{Full: true})
	if env != nil || err == nil || !strings.HasPrefix(err.Error(), "python: the environment made with ") || !strings.HasSuffix(err.Error(), " does not run") {
		t.Errorf("got %+v and error %v, want that the environment does not run", env, err)
	}
	if env, err := Find(t.Context()); err != nil || env.Level != IPython {
		t.Errorf("Find: got %+v and error %v, want what there is without the environment", env, err)
	}
	if _, err := os.Stat(filepath.Join(cache, "e2bctl", "python", chosen)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the choice of packages: got error %v, want that it is not recorded", err)
	}
}

// TestIndexRefuses runs a real pip, because unreadIndex parses the messages of pip.
func TestIndexRefuses(t *testing.T) {
	env, err := Find(t.Context())
	if err != nil || env.Level != Venv {
		skip(t, "the pip of the prepared environment is needed")
	}
	t.Setenv("PIP_INDEX_URL", "http://me:secret@127.0.0.1:1/simple")
	t.Setenv("PIP_EXTRA_INDEX_URL", "")
	t.Setenv("PIP_RETRIES", "0")
	directory := t.TempDir()
	log := filepath.Join(directory, "pip.log")
	build := builder{directory: directory}
	err = build.command(t.Context(), nil, env.Python, "-I", "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--log="+log, "--target", directory, "e2bctl-no-such-package==1.0")
	if err == nil {
		t.Fatal("pip read an index that nobody serves")
	}
	const want = "http://127.0.0.1:1/simple/e2bctl-no-such-package/: connection error: "
	if err := unreadIndex(log); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "Connection refused") {
		t.Errorf("unreadIndex = %v, want %q and the reason", err, want)
	}
}

// notifier is a writer that calls cancel when a stage is reported.
type notifier struct {
	stage  string
	cancel context.CancelFunc
}

func (n notifier) Write(data []byte) (int, error) {
	if strings.Contains(string(data), n.stage) {
		n.cancel()
	}
	return len(data), nil
}

func TestEnsureCancelled(t *testing.T) {
	cache, _ := pretend(t, "echo Installing collected packages: x; sleep 600 & wait")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	env, err := Ensure(ctx, notifier{"installing", cancel})
	if env != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("Ensure = %+v, %v; want context.Canceled", env, err)
	}
	if left := environments(t, cache); len(left) != 0 {
		t.Errorf("left behind: %q, want none", left)
	}
}

func TestVariable(t *testing.T) {
	cache, _ := pretend(t, "")
	real, err := exec.LookPath("python3")
	must.Do(t, err)
	must.Do(t, os.MkdirAll(cache, 0o755))
	shim := filepath.Join(cache, "shim")
	must.Do(t, os.WriteFile(shim, []byte("#!/bin/sh\nexec "+real+" \"$@\"\n"), 0o755))
	broken := filepath.Join(cache, "broken")
	must.Do(t, os.WriteFile(broken, []byte("#!/bin/sh\necho hello\n"), 0o755))
	t.Run("shim", func(t *testing.T) {
		t.Setenv(Variable, shim)
		if env, err := Ensure(t.Context(), nil); err != nil || env.Python != real {
			t.Errorf("Ensure: got %+v and error %v, want %s behind the shim", env, err, real)
		}
		t.Setenv("PATH", "/usr/bin:/bin")
		if env, err := Find(t.Context()); err != nil || env.Python != real {
			t.Errorf("Find: got %+v and error %v, want %s behind the shim", env, err, real)
		}
		if made := environments(t, cache); len(made) > 0 {
			t.Errorf("got the environments %q, want none", made)
		}
	})
	for _, name := range []string{broken, filepath.Join(cache, "missing")} {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Setenv(Variable, name)
			for _, find := range []func() (*Env, error){
				func() (*Env, error) { return Find(t.Context()) },
				func() (*Env, error) { return Ensure(t.Context(), nil) },
			} {
				if env, err := find(); err == nil || !strings.Contains(err.Error(), Variable+"="+name) {
					t.Errorf("got %+v, %v; want an error that names %s", env, err, name)
				}
			}
		})
	}
}

// TestMachine queries all interpreters of this machine.
func TestMachine(t *testing.T) {
	t.Setenv(Variable, "")
	env, err := Find(t.Context())
	if errors.Is(err, ErrNoPython) {
		t.Skip(err)
	}
	must.Do(t, err)
	trees := append([]string{"/usr"}, env.Trees...)
	if !slices.ContainsFunc(trees, func(tree string) bool { return below(env.Python, tree) }) {
		t.Errorf("%s is in none of %q", env.Python, trees)
	}
	command := exec.CommandContext(t.Context(), env.Python, "-I", "-c", "import sys, json; print(sys.version.split()[0])")
	output, err := command.Output()
	if version := strings.TrimSpace(string(output)); err != nil || version != env.Version {
		t.Errorf("%s says %q, %v; want %s", env.Python, version, err, env.Version)
	}
	if (env.Note == "") != (env.Level == Venv) && env.Level != IPython {
		t.Errorf("Level %v with note %q", env.Level, env.Note)
	}
}

func TestTrees(t *testing.T) {
	t.Setenv("HOME", "/home/ann")
	tests := []struct {
		name  string
		found interpreter
		trees []string
		fails string
	}{
		{"system", interpreter{Executable: "/usr/bin/python3", Real: "/usr/bin/python3.11", Prefixes: []string{"/usr"}}, nil, ""},
		{"local", interpreter{Executable: "/usr/local/bin/python3", Real: "/usr/local/bin/python3.13", Prefixes: []string{"/usr/local"}}, nil, ""},
		{
			"venv over pyenv",
			interpreter{Executable: "/srv/v/bin/python3", Real: "/home/ann/.pyenv/versions/3.11.7/bin/python3.11", Prefixes: []string{"/home/ann/.pyenv/versions/3.11.7", "/srv/v"}},
			[]string{"/home/ann/.pyenv/versions/3.11.7", "/srv/v"}, "",
		},
		{
			"behind a link",
			interpreter{Executable: "/opt/py/bin/python3", Real: "/opt/py-3.12.4/bin/python3.12", Prefixes: []string{"/opt/py"}},
			[]string{"/opt/py", "/opt/py-3.12.4"}, "",
		},
		{"nested", interpreter{Executable: "/opt/a/b/bin/python3", Real: "/opt/a/bin/python3", Prefixes: []string{"/opt/a/b", "/opt/a"}}, []string{"/opt/a"}, ""},
		{"not nested", interpreter{Executable: "/opt/ab/bin/python3", Real: "/opt/a/bin/python3", Prefixes: []string{"/opt/ab", "/opt/a"}}, []string{"/opt/a", "/opt/ab"}, ""},
		{"home", interpreter{Executable: "/home/ann/bin/python3", Real: "/home/ann/bin/python3", Prefixes: []string{"/home/ann"}}, []string{"/home/ann"}, "installed into /home/ann itself"},
		{"homes", interpreter{Executable: "/home/bin/python3", Real: "/home/bin/python3", Prefixes: []string{"/home"}}, []string{"/home"}, "installed into /home itself"},
		{"root", interpreter{Executable: "/bin/python3", Real: "/bin/python3", Prefixes: []string{"/"}}, []string{"/"}, "installed into / itself"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.found.Numbers = [3]int{3, 11, 0}
			if diff := cmp.Diff(test.trees, test.found.trees()); diff != "" {
				t.Errorf("trees (-want +got):\n%s", diff)
			}
			switch err := test.found.check(); {
			case test.fails == "" && err != nil, test.fails != "" && (err == nil || !strings.Contains(err.Error(), test.fails)):
				t.Errorf("check = %v, want %q", err, test.fails)
			}
		})
	}
}

// TestTemporaryFilesOfPip checks that temporary files that a killed pip left behind are removed
// with the environment.
func TestTemporaryFilesOfPip(t *testing.T) {
	for name, behaviour := range map[string]string{"made": "", "killed": "; kill -9 $$"} {
		t.Run(name, func(t *testing.T) {
			cache, _ := pretend(t, `mktemp -d "${TMPDIR:-/tmp}/pip-install-XXXXXX" >&2 && touch "${TMPDIR:-/tmp}/a"`+behaviour)
			temporary := t.TempDir()
			t.Setenv("TMPDIR", temporary)
			if _, err := Ensure(t.Context(), nil); (err != nil) != (name == "killed") {
				t.Errorf("Ensure: %v", err)
			}
			left, err := filepath.Glob(filepath.Join(temporary, "*"))
			if scratch, _ := filepath.Glob(filepath.Join(cache, "e2bctl", "python", "*", "scratch")); err != nil || len(left)+len(scratch) > 0 {
				t.Errorf("pip left %v and %v, %v, want nothing", left, scratch, err)
			}
		})
	}
}
