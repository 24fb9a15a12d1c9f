//go:build linux

package packaging_test

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/interop"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/packaging"
)

// contents returns the files of a wheel or a .zip by their names.
func contents(t *testing.T, path string) map[string][]byte {
	t.Helper()
	r, err := zip.OpenReader(path)
	must.Do(t, err)
	defer r.Close()
	all := map[string][]byte{}
	for _, f := range r.File {
		from, err := f.Open()
		must.Do(t, err)
		all[f.Name], err = io.ReadAll(from)
		must.Do(t, errors.Join(err, from.Close()))
	}
	return all
}

// pytestFiles are tests of a user, with the official SDK.
var pytestFiles = map[string]string{
	"conftest.py": `
import os, pytest

@pytest.fixture(scope="session", autouse=True)
def variables():
    os.environ["E2B_API_KEY"] = "before"
    yield
    assert os.environ["E2B_API_KEY"] == "before", "the fixture did not set the variables back"
`,
	"test_cloud.py": `
import os
from e2b import Sandbox
import e2bctl

def test_fixture(e2b_cloud):
    assert os.environ["E2B_API_KEY"] == e2b_cloud.api_key
    with Sandbox.create() as sandbox:
        assert sandbox.commands.run("echo hi").stdout == "hi\n"

def test_local_cloud():
    with e2bctl.local_cloud():
        with Sandbox.create() as sandbox:
            assert sandbox.commands.run("echo hi").stdout == "hi\n"
`,
}

// TestWheel installs a wheel as a user would, and runs a cloud with its module, with the official SDK, and with
// the fixture of pytest.
func TestWheel(t *testing.T) {
	t.Parallel()
	python, sdk := interop.NewestPython.FindPython(t)
	_, pytest := interop.Pytest.FindPython(t)
	r, dir := released(t), t.TempDir()
	b, err := packaging.ReadBuild(r.program())
	must.Do(t, err)
	if b.System != runtime.GOOS || b.Architecture != runtime.GOARCH || len(b.Modules) < 20 {
		t.Errorf("the program is %+v", b)
	}
	wheel := r.made(t, "e2bctl-*.whl")
	venv := filepath.Join(dir, "venv")
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Env = append(os.Environ(), "PIP_DISABLE_PIP_VERSION_CHECK=1", "E2B_API_KEY=before", "XDG_STATE_HOME="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	run(python, "-m", "venv", venv)
	cutInstall(t, venv, wheel)
	if got := run(venv+"/bin/python", "-c", "import e2bctl\ntry:\n    e2bctl.binary()\nexcept FileNotFoundError as error:\n    print(error)"); got != venv+"/bin/e2bctl is not complete: run pip install --force-reinstall e2bctl" {
		t.Errorf("after an installation that was cut, the module says %q", got)
	}
	run(venv+"/bin/pip", "install", "--no-index", "--force-reinstall", wheel)
	if got := run(venv+"/bin/e2bctl", "version"); !strings.HasPrefix(got, "e2bctl ") {
		t.Errorf("the installed command prints %q", got)
	}
	got := run(venv+"/bin/python", "-c", `
import os, urllib.request
import e2bctl
print(e2bctl.binary())
with e2bctl.local_cloud(["--warm", "0"]) as cloud:
    request = urllib.request.Request(os.environ["E2B_API_URL"] + "/v2/sandboxes", headers={"X-API-KEY": os.environ["E2B_API_KEY"]})
    print(urllib.request.urlopen(request).read().decode().strip(), cloud.url == os.environ["E2B_API_URL"])
print(os.environ["E2B_API_KEY"], "E2B_API_URL" in os.environ)
try:
    urllib.request.urlopen(request)
except OSError:
    print("ended")
try:
    with e2bctl.local_cloud(["--nonsense"]):
        pass
except RuntimeError as error:
    print("unknown flag" in str(error))
`)
	if want := venv + "/bin/e2bctl\n[] True\nbefore False\nended\nTrue"; got != want {
		t.Errorf("the module prints %q, want %q", got, want)
	}
	for _, path := range []string{"test_cloud.py", "conftest.py"} {
		must.Do(t, os.WriteFile(filepath.Join(dir, path), []byte(pytestFiles[path]), 0o600))
	}
	got = run("env", "PYTHONPATH="+sdk+":"+pytest, venv+"/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", dir+"/test_cloud.py")
	if !strings.Contains(got, "2 passed") {
		t.Errorf("pytest prints %s", got)
	}
	run(venv+"/bin/pip", "uninstall", "--yes", "e2bctl")
	if _, err := os.Stat(venv + "/bin/e2bctl"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after pip uninstall the command is there: %v", err)
	}
}

// cutInstall installs a wheel, and cuts it in the middle of the program, as a full disk or a kill does.
func cutInstall(t *testing.T, venv, wheel string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `ulimit -f 10000 && exec "$@"`, "sh", venv+"/bin/pip", "install", "--no-index", wheel)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "File too large") {
		t.Fatalf("pip install that is cut: %v\n%s", err, out)
	}
}

// TestArchives checks the files of archives, for each kind of system.
func TestArchives(t *testing.T) {
	t.Parallel()
	files := []packaging.File{{Name: "e2bctl", Content: []byte("program"), Mode: 0o755}, {Name: "man/e2bctl.1", Content: []byte("page")}}
	dir := t.TempDir()
	var paths []string
	for _, system := range []string{"linux", "windows"} {
		b := &packaging.Build{System: system, Architecture: "arm64", Version: "v1.2.3"}
		path, err := packaging.Archive(b, dir, files)
		must.Do(t, err)
		paths = append(paths, path)
	}
	f, err := os.Open(paths[0])
	must.Do(t, err)
	defer f.Close()
	compressed, err := gzip.NewReader(f)
	must.Do(t, err)
	archive := tar.NewReader(compressed)
	for _, want := range []struct {
		name string
		mode int64
	}{{"e2bctl_1.2.3_linux_arm64/e2bctl", 0o755}, {"e2bctl_1.2.3_linux_arm64/man/e2bctl.1", 0o644}} {
		header, err := archive.Next()
		if err != nil || header.Name != want.name || header.Mode != want.mode {
			t.Errorf("got %+v and %v, want %+v", header, err, want)
		}
	}
	if got := contents(t, paths[1]); string(got["e2bctl_1.2.3_windows_arm64/e2bctl"]) != "program" {
		t.Errorf("the archive for Windows has %v", got)
	}
	must.Do(t, packaging.WriteChecksums(dir, paths))
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "checksums.txt")
	check.Dir = dir
	if out, err := check.CombinedOutput(); err != nil || strings.Count(string(out), ": OK") != 2 {
		t.Errorf("sha256sum --check: %v\n%s", err, out)
	}
}

// TestCarry checks that notices and the list of parts name also the modules of a contained program, once.
func TestCarry(t *testing.T) {
	t.Parallel()
	common := packaging.Module{Path: "example.test/m", Version: "v1.0.0"}
	b := &packaging.Build{System: "darwin", Modules: []packaging.Module{common}}
	other := packaging.Module{Path: "example.test/linux", Version: "v1.0.0"}
	b.Carry(&packaging.Build{Modules: []packaging.Module{other, common}})
	if want := []packaging.Module{other, common}; !slices.Equal(b.Modules, want) {
		t.Errorf("got the modules %v, want %v", b.Modules, want)
	}
}

// TestNotices checks that every module that is linked has a licence, and that one without is an error.
func TestNotices(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := []packaging.Module{{Path: "example.test/m", Version: "v1.0.0"}}
	dirOf := func(packaging.Module) (string, error) { return dir, nil }
	goRoot := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(goRoot, "LICENSE"), []byte("of Go"), 0o600))
	must.Do(t, os.WriteFile(filepath.Join(dir, "license.go"), nil, 0o600))
	if _, err := packaging.Notices(m, goRoot, dirOf); err == nil || !strings.Contains(err.Error(), "example.test/m v1.0.0 has no licence") {
		t.Errorf("without a licence: got %v", err)
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, "LICENCE.txt"), []byte("of m"), 0o600))
	must.Do(t, os.WriteFile(filepath.Join(dir, "NOTICE"), []byte("by m"), 0o600))
	text, err := packaging.Notices(m, goRoot, dirOf)
	must.Do(t, err)
	for _, want := range []string{"of Go", "of m", "by m", "example.test/m v1.0.0: LICENCE.txt"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the notices have no %q:\n%s", want, text)
		}
	}
}

// TestSBOM checks that a list of parts names each module and depends on nothing else.
func TestSBOM(t *testing.T) {
	t.Parallel()
	b := &packaging.Build{System: "linux", Architecture: "amd64", Version: "v1.2.3", Modules: []packaging.Module{{Path: "example.test/m", Version: "v1.0.0", Sum: "h1:x"}}}
	text, err := packaging.SBOM(b)
	must.Do(t, err)
	var got struct {
		BOMFormat    string
		SerialNumber string
		Components   []struct{ Name, Version, PURL string }
		Dependencies []struct {
			Ref       string
			DependsOn []string
		}
	}
	must.Do(t, json.Unmarshal(text, &got))
	if got.BOMFormat != "CycloneDX" || got.SerialNumber != "" || len(got.Components) != 1 || got.Components[0].PURL != "pkg:golang/example.test/m@v1.0.0" {
		t.Errorf("got %+v", got)
	}
	if len(got.Dependencies) != 1 || !slices.Equal(got.Dependencies[0].DependsOn, []string{"pkg:golang/example.test/m@v1.0.0"}) {
		t.Errorf("got the dependencies %+v", got.Dependencies)
	}
}

// TestNotes checks that a release has the notes of its version, and that a tag without notes is an error.
func TestNotes(t *testing.T) {
	t.Parallel()
	changelog := []byte("# Changes\n\n## Unreleased\n\n- new\n\n## v0.2.0 (2026-12-01)\n\n- second\n  ### not a version\n\n## v0.2.0-rc.1\n\n- candidate\n")
	for version, want := range map[string]string{
		"(devel)": "- new\n", "v0.2.1-0.20261129014105-8b66269e0000": "- new\n", "v0.2.0": "- second\n  ### not a version\n", "v0.2.0-rc.1": "- candidate\n",
	} {
		if got, err := packaging.Notes(&packaging.Build{Version: version}, changelog); err != nil || string(got) != want {
			t.Errorf("%s has the notes %q and %v, want %q", version, got, err, want)
		}
	}
	if got, err := packaging.Notes(&packaging.Build{Version: "v0.3.0"}, changelog); err == nil || !strings.Contains(err.Error(), `no section "## v0.3.0"`) {
		t.Errorf("a tag without notes: got %q and %v", got, err)
	}
}
