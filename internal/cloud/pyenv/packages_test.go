package pyenv

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// service lists the packages of the service's template, with their versions.
const service = `aiohttp 3.14.3, beautifulsoup4 4.15.0, bokeh 3.9.1, e2b-charts 1.0.0, gensim 4.4.0, imageio 2.37.3, ipykernel 6.31.0,
ipython 9.15.0, joblib 1.5.3, jupyter-server 2.20.0, kaleido 1.3.0, librosa 0.11.0, matplotlib 3.10.9, nltk 3.10.0, numba 0.66.0,
numpy 2.3.5, opencv-python 4.11.0.86, openpyxl 3.1.5, orjson 3.11.9, pandas 2.2.3, pillow 12.3.0, plotly 6.0.1, pytest 9.0.3,
python-docx 1.1.2, pytz 2025.2, requests 2.33.0, scikit-image 0.25.2, scikit-learn 1.6.1, scipy 1.17.1, seaborn 0.13.2,
soundfile 0.13.1, spacy 3.8.14, sympy 1.14.0, textblob 0.19.0, tornado 6.5.7, urllib3 2.7.0, xarray 2025.4.0, xlrd 2.0.2`

// unavailable maps packages to a Python version for which they have no release.
var unavailable = map[string]string{"e2b-charts": "3.9", "gensim": "3.14"}

// TestFullList checks that the full list has the service's versions for Python 3.11 to 3.13, and
// any versions for other Pythons.
func TestFullList(t *testing.T) {
	t.Parallel()
	first, last := full.minors()
	for minor := first; minor <= last; minor++ {
		python := fmt.Sprintf("3.%d", minor)
		versions := full.versions(t, minor)
		for item := range strings.SplitSeq(strings.ReplaceAll(service, "\n", " "), ", ") {
			name, want, _ := strings.Cut(item, " ")
			switch got := versions[name]; {
			case got == "" && unavailable[name] != python:
				t.Errorf("Python %s: no %s", python, name)
			case minor >= 11 && minor <= 13 && got != want:
				t.Errorf("Python %s: got %s %s, want %s", python, name, got, want)
			}
		}
		// For 3.11 matplotlib removed boxplot(labels=), which models write.
		if got := versions["matplotlib"]; !strings.HasPrefix(got, "3.10.") && !strings.HasPrefix(got, "3.9.") {
			t.Errorf("Python %s: got matplotlib %s, want 3.10 or older", python, got)
		}
		for _, kernel := range []string{"bash-kernel", "deno"} {
			if versions[kernel] == "" {
				t.Errorf("Python %s: no %s", python, kernel)
			}
		}
	}
}

// TestDefaultHasTheVersionsOfTheTemplate checks that a package in both lists has the same version
// in both. So code that runs in the service's template also runs with the default packages.
func TestDefaultHasTheVersionsOfTheTemplate(t *testing.T) {
	t.Parallel()
	for minor := 9; minor <= 14; minor++ {
		all := full.versions(t, minor)
		for name, got := range short.versions(t, minor) {
			if want := all[name]; got != want {
				t.Errorf("Python 3.%d: %s %s, want %q", minor, name, got, want)
			}
		}
	}
}

// skip skips the test. In CI, it fails the test.
func skip(t *testing.T, format string, arguments ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, arguments...)
	}
	t.Skipf(format, arguments...)
}

// hasKernels checks that an environment describes exactly the wanted Jupyter kernels.
func hasKernels(t *testing.T, env *Env, want ...string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(kernelspecs(filepath.Dir(filepath.Dir(env.Python))), "*", "kernel.json"))
	must.Do(t, err)
	var got []string
	for _, file := range found {
		got = append(got, filepath.Base(filepath.Dir(file)))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kernels (-want +got):\n%s", diff)
	}
}

func TestPackagesAreChosen(t *testing.T) {
	cache, _ := pretend(t, `for a; do last=$a; done; cat "$last" >>"$PIP_RUNS"`)
	ensure := func(p Packages) *Env {
		t.Helper()
		env, err := EnsurePackages(t.Context(), nil, p)
		must.Do(t, err)
		return env
	}
	found := func(step string, want *Env) {
		t.Helper()
		for name, get := range map[string]func() (*Env, error){
			"Find": func() (*Env, error) { return Find(t.Context()) }, "Ensure": func() (*Env, error) { return Ensure(t.Context(), nil) },
		} {
			if got, err := get(); err != nil || got.Python != want.Python || got.Note != "" {
				t.Errorf("%s: %s = %+v, %v; want %+v", step, name, got, err, want)
			}
		}
	}
	short, err := Ensure(t.Context(), nil)
	must.Do(t, err)
	hasKernels(t, short, "bash")
	full := ensure(Packages{Full: true})
	if full.Python == short.Python || full.Level != Venv {
		t.Errorf("full: got %+v, want another environment than %+v", full, short)
	}
	found("after --full", full)
	hasKernels(t, full, "bash", "deno")
	list := filepath.Join(cache, "mine.txt")
	write := func(content string) {
		t.Helper()
		must.Do(t, os.WriteFile(list, []byte(content), 0o644))
	}
	write("humanize==4.*\n")
	mine := ensure(Packages{File: list})
	found("after --packages", mine)
	runs, err := os.ReadFile(os.Getenv("PIP_RUNS"))
	if err != nil || !strings.HasSuffix(string(runs), "humanize==4.*\n\n") {
		t.Errorf("pip ran %q, %v; want the content of the user's file last", runs, err)
	}
	// A change of the file takes effect at the next Ensure, not before.
	write("humanize==3.*\n")
	if env, err := Find(t.Context()); err != nil || env.Python != mine.Python {
		t.Errorf("Find after the file changed: got %+v, %v; want %+v", env, err, mine)
	}
	changed, err := Ensure(t.Context(), nil)
	if err != nil || changed.Python == mine.Python {
		t.Errorf("Ensure after the file changed: got %+v, %v; want another environment", changed, err)
	}
	must.Do(t, os.Remove(list))
	found("after the file went", changed)
	// The chosen environment may be missing, as after an update of this program.
	must.Do(t, os.Remove(filepath.Join(filepath.Dir(filepath.Dir(changed.Python)), marker)))
	if env, err := Find(t.Context()); err != nil || env.Python != short.Python || !strings.Contains(env.Note, "run `e2bctl local setup --packages "+list) {
		t.Errorf("Find without what was chosen: got %+v, %v; want %s and what to run", env, err, short.Python)
	}
	ensure(Packages{})
	found("after --full=false", short)
}

func TestPackagesAreRefused(t *testing.T) {
	cache, _ := pretend(t, "")
	empty := filepath.Join(cache, "empty.txt")
	must.Do(t, os.MkdirAll(cache, 0o755))
	must.Do(t, os.WriteFile(empty, []byte("\n"), 0o644))
	tests := []struct {
		variable string
		packages Packages
		want     string
	}{
		{"", Packages{File: empty}, empty + " has no packages"},
		{"", Packages{File: empty + "x"}, "no such file"},
		{"/opt/python3", Packages{Full: true}, "unset " + Variable},
		{"/opt/python3", Packages{}, "unset " + Variable},
	}
	for _, test := range tests {
		t.Setenv(Variable, test.variable)
		if env, err := EnsurePackages(t.Context(), nil, test.packages); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("EnsurePackages(%+v) = %+v, %v; want an error with %q", test.packages, env, err, test.want)
		}
	}
	if made := environments(t, cache); len(made) != 0 {
		t.Errorf("got the environments %q, want none", made)
	}
	t.Setenv(Variable, "")
	directory := filepath.Join(cache, "e2bctl", "python")
	must.Do(t, os.MkdirAll(directory, 0o755))
	must.Do(t, os.WriteFile(filepath.Join(directory, chosen), []byte("{"), 0o644))
	if env, err := Find(t.Context()); err == nil || !strings.Contains(err.Error(), chosen+": unexpected end of JSON input; remove it") {
		t.Errorf("Find with half a choice = %+v, %v; want an error that names the file", env, err)
	}
}

// TestKernelsAreCopied checks that a sandbox has the user's kernels of R and Java, and that the
// paths in these are right.
func TestKernelsAreCopied(t *testing.T) {
	cache, _ := pretend(t, "")
	home := filepath.Join(cache, "home")
	t.Setenv("HOME", home)
	var none strings.Builder
	_, err := EnsurePackages(t.Context(), &none, Packages{Full: true})
	if err != nil || strings.Contains(none.String(), "copied") {
		t.Errorf("a user without kernels: said %q and error %v, want no copies", none.String(), err)
	}
	java := filepath.Join(home, ".local/share/jupyter/kernels/java")
	must.Do(t, os.MkdirAll(java, 0o755))
	for name, content := range map[string]string{
		"kernel.json": `{"argv": ["java", "-jar", "` + java + `/ijava.jar", "{connection_file}"], "language": "java"}`,
		"ijava.jar":   "PK",
	} {
		must.Do(t, os.WriteFile(filepath.Join(java, name), []byte(content), 0o600))
	}
	var said strings.Builder
	short, err := EnsurePackages(t.Context(), &said, Packages{})
	must.Do(t, err)
	hasKernels(t, short, "bash")
	if strings.Contains(said.String(), "copied") {
		t.Errorf("the short list: said %q, want no copies", said.String())
	}
	for range 2 { // a kernel may have changed between the calls
		said.Reset()
		env, err := EnsurePackages(t.Context(), &said, Packages{Full: true})
		must.Do(t, err)
		hasKernels(t, env, "bash", "deno", "java")
		if !strings.HasSuffix(said.String(), "copied your Jupyter kernels: java\n") {
			t.Errorf("said %q, want which kernels were copied", said.String())
		}
		copied := filepath.Join(kernelspecs(filepath.Dir(filepath.Dir(env.Python))), "java")
		want := `{"argv": ["java", "-jar", "` + copied + `/ijava.jar", "{connection_file}"], "language": "java"}`
		if got, err := os.ReadFile(filepath.Join(copied, "kernel.json")); err != nil || string(got) != want {
			t.Errorf("kernel.json: got %s, %v; want %s", got, err, want)
		}
		if got, err := os.ReadFile(filepath.Join(copied, "ijava.jar")); err != nil || string(got) != "PK" {
			t.Errorf("ijava.jar: got %q, %v; want %q", got, err, "PK")
		}
	}
	must.Do(t, os.WriteFile(filepath.Join(java, "kernel.json"), []byte(`{`), 0o600))
	if env, err := EnsurePackages(t.Context(), nil, Packages{Full: true}); env != nil || err == nil || !strings.Contains(err.Error(), "copy the kernel in "+java) {
		t.Errorf("a broken kernel: got %+v and error %v", env, err)
	}
}

// TestListHasWhatKernelsBring checks that for each Python version, the short list contains the
// packages that every ipykernel installs, and their dependencies.
func TestListHasWhatKernelsBring(t *testing.T) {
	t.Parallel()
	first, last := short.minors()
	for minor := first; minor <= last; minor++ {
		versions, complete := short.versions(t, minor), full.versions(t, minor)
		for _, name := range []string{
			"bash-kernel", "comm", "debugpy", "filetype", "ipykernel", "jupyter-client", "psutil", "pyzmq", "tornado", "typing-extensions",
			"jinja2", "markupsafe", "nest-asyncio", "nbformat", "fastjsonschema", "jsonschema", "jsonschema-specifications", "referencing", "rpds-py", "attrs", "jupyter-core", "platformdirs", "traitlets",
		} {
			if versions[name] == "" || versions[name] != complete[name] {
				t.Errorf("Python 3.%d: got %s %q, want %q as in the full list", minor, name, versions[name], complete[name])
			}
		}
	}
}
