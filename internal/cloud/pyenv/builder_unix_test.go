//go:build unix

package pyenv

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// stepper is a Python for tests that records each call, and the content of a file that is its last argument. Then it runs
// the commands in HOOK. last is the last argument, and n the number of the call.
const stepper = `#!/bin/sh
cd DIR || exit 9
for last; do :; done
echo "$*" >>calls
[ -f "$last" ] && cat "$last" >>calls
n=$(grep -c ^-I calls)
eval "$HOOK"
case "$*" in
*"-m venv DIR/"*) mkdir -p DIR/environment/bin && cp DIR/python3 DIR/environment/bin/python3 ;;
*" --no-index "*) : >DIR/environment/pip.log ;;
*" download "*) echo "Collecting p0==1" ;;
*" --prefer-binary "*) echo "Installing collected packages: mine" ;;
*sysconfig*) echo DIR/packages ;;
esac
`

// stepping returns a builder whose Python is the stepper, in a new directory, and its reports. The list has ten
// packages; the first is there already.
func stepping(t *testing.T, hook string) (b *builder, dir string, said *strings.Builder) {
	t.Helper()
	dir, before := t.TempDir(), short
	t.Cleanup(func() { short = before })
	text := "# Python 3.9 to 3.14; a list\n"
	for i := range 10 {
		text += fmt.Sprintf("p%d==1 \\\n    --hash=sha256:%x\n", i, sha256.Sum256(fmt.Append(nil, i)))
	}
	short = list(text)
	writeFiles(t, dir, map[string]string{"python3": strings.ReplaceAll(stepper, "DIR", dir), "fetched/p0": "0", "fetched/half": "half", "mine.txt": "mine\n", "packages/a": ""})
	t.Setenv("HOOK", hook)
	said = &strings.Builder{}
	return &builder{
		choice: choice{Packages: Packages{File: dir + "/mine.txt"}}, directory: dir + "/environment", fetched: dir + "/fetched", report: newReporter(said),
	}, dir, said
}

// builds runs the builder, and returns its calls of Python.
func builds(t *testing.T, b *builder, dir string) ([]string, error) {
	t.Helper()
	failed := b.run(t.Context(), &interpreter{Base: dir + "/python3", Numbers: [3]int{3, 12, 1}})
	calls, err := os.ReadFile(dir + "/calls")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	return strings.SplitAfter(strings.ReplaceAll(string(calls), dir, "DIR"), "-I "), failed
}

// TestStepsOfABuilder checks each call of Python with which an environment is made, the reports, and the files that are left. Then each call
// fails once.
func TestStepsOfABuilder(t *testing.T) {
	b, dir, said := stepping(t, "")
	pins := short.pins(12)
	const pip = " --no-input --disable-pip-version-check --progress-bar=off --log=DIR/environment/pip.log "
	const exact = " --no-deps --require-hashes --only-binary=:all: -r DIR/environment/scratch/pins.txt\n"
	want := []string{
		"-I ",
		"-m venv DIR/environment\n-I ",
		"-m pip download" + pip + "--dest=DIR/fetched" + exact + strings.Join(pins[1:9], "") + "-I ",
		"-m pip download" + pip + "--dest=DIR/fetched" + exact + pins[9] + "-I ",
		"-m pip install" + pip + "--no-index --find-links=DIR/fetched" + exact + strings.Join(pins, "") + "-I ",
		"-m pip install" + pip + "--prefer-binary -r DIR/environment/scratch/packages-1.txt\nmine\n\n-I ",
		"-c import sysconfig; print(sysconfig.get_path('purelib'))\n-I ",
		"-c import os, sys; os.environ['MPLCONFIGDIR'] = sys.argv[1]; import matplotlib.font_manager DIR/environment/share/matplotlib\n",
	}
	calls, err := builds(t, b, dir)
	if diff := cmp.Diff(want, calls); diff != "" || err != nil {
		t.Errorf("got error %v and calls (-want +got):\n%s", err, diff)
	}
	report := "making the Python environment with DIR/python3 (Python 3.12.1) in DIR/environment: 10 packages, once\n" +
		"fetching 10 packages\n1 of them were fetched before\nfetched 9 of 10 packages\nfetched 10 of 10 packages\n" +
		"installing 10 packages\ninstalled 10 of 10 packages\nfetching the packages of DIR/mine.txt\ninstalling\n" +
		"looking for fonts\nthe Python environment"
	got, _, ready := strings.Cut(strings.ReplaceAll(said.String(), dir, "DIR"), " is ready (")
	if diff := cmp.Diff(report, got); diff != "" || !ready {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
	for name, content := range map[string]string{"environment/" + marker: dir + "/python3\n", "packages/_e2bctl_user.pth": userPath} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != content {
			t.Errorf("%s: got %q and error %v, want %q", name, text, err, content)
		}
	}
	for _, name := range []string{"fetched", "environment/scratch", "environment/pip.log"} {
		if exists(filepath.Join(dir, name)) {
			t.Errorf("%s is left", name)
		}
	}
	hasKernels(t, &Env{Python: dir + "/environment/bin/python3"}, "bash")

	for n := 1; n < len(want); n++ {
		b, dir, _ := stepping(t, fmt.Sprintf(`[ $n = %d ] && { echo "refused $last" >&2; exit 3; }`, n))
		calls, err := builds(t, b, dir)
		if len(calls) != n+1 || err == nil || !strings.Contains(err.Error(), ": exit status 3: refused ") || exists(filepath.Join(b.directory, marker)) {
			t.Errorf("call %d fails: got error %v after %d calls, and an environment: %v", n, err, len(calls)-1, exists(filepath.Join(b.directory, marker)))
		}
		if n == 5 && !strings.HasSuffix(err.Error(), "refused "+dir+"/mine.txt") {
			t.Errorf("got error %v, want the name of the user's file", err)
		}
	}
}

// TestDirectoryOfPackages checks that nothing is written if Python does not name the directory of its packages.
func TestDirectoryOfPackages(t *testing.T) {
	for _, printed := range []string{"", "packages"} {
		b, dir, _ := stepping(t, `case "$*" in *sysconfig*) echo `+printed+`; exit ;; esac`)
		t.Chdir(dir)
		_, err := builds(t, b, dir)
		if want := fmt.Sprintf("bin/python3 names %q as the directory of its packages", printed); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %s", err, want)
		}
		if exists(dir+"/_e2bctl_user.pth") || exists(dir+"/packages/_e2bctl_user.pth") {
			t.Errorf("%q: a file was written", printed)
		}
	}
}

// TestFilesOfABuilder checks the errors of files and directories that cannot be made, and that there is no complete environment
// then.
func TestFilesOfABuilder(t *testing.T) {
	for want, tt := range map[string]struct {
		hook    string
		prepare func(dir string) error
	}{
		"python: make the directory that pip runs in: ": {"", func(dir string) error { return os.WriteFile(dir+"/environment", nil, 0o600) }},
		"python: make the directory for what is fetched: ": {"", func(dir string) error {
			return errors.Join(os.RemoveAll(dir+"/fetched"), os.WriteFile(dir+"/fetched", nil, 0o600))
		}},
		"python: look for what was fetched before: ":      {"", func(dir string) error { return os.Symlink("none", dir+"/fetched/link") }},
		"python: write the list of packages to download":  {"mkdir -p environment/scratch/pins.txt", nil},
		"python: read the list of packages: ":             {"", func(dir string) error { return os.Remove(dir + "/mine.txt") }},
		"python: let pip take --user: ":                   {"", func(dir string) error { return os.RemoveAll(dir + "/packages") }},
		"python: make the directory of the kernel bash: ": {"mkdir -p environment && : >environment/share", nil},
		"python: finish the environment: ":                {"mkdir -p environment/" + marker + "/below", nil},
	} {
		b, dir, _ := stepping(t, tt.hook)
		if tt.prepare != nil {
			must.Do(t, tt.prepare(dir))
		}
		_, err := builds(t, b, dir)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got error %v, want %s", err, want)
		}
		if info, err := os.Stat(filepath.Join(b.directory, marker)); err == nil && info.Mode().IsRegular() {
			t.Errorf("%s: the environment is complete", want)
		}
	}
}

// TestFetchOnATerminal checks that the bar counts the packages that pip collects.
func TestFetchOnATerminal(t *testing.T) {
	b, dir, said := stepping(t, "")
	must.Do(t, os.RemoveAll(b.fetched))
	must.Do(t, os.MkdirAll(b.directory+"/bin", 0o700))
	must.Do(t, os.Rename(dir+"/python3", venvPython(b.directory)))
	b.scratch, b.report.terminal = dir, true
	must.Do(t, b.fetch(t.Context(), short.pins(12)[:2]))
	want := "fetching 2 packages\n\r[" + strings.Repeat("#", barWidth/2) + strings.Repeat(".", barWidth/2) + "] 1/2 " + fmt.Sprintf("%-30s", "p0")
	if diff := cmp.Diff(want, said.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
