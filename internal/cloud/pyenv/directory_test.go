package pyenv

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// wheel returns the content of a wheel without modules.
func wheel(t *testing.T, name string) string {
	t.Helper()
	var packed bytes.Buffer
	files := zip.NewWriter(&packed)
	info := name + "-1.0.dist-info/"
	for _, file := range []struct{ name, content string }{
		{info + "METADATA", "Metadata-Version: 2.1\nName: " + name + "\nVersion: 1.0\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "RECORD", ""},
	} {
		w, err := files.Create(file.name)
		if err == nil {
			_, err = io.WriteString(w, file.content)
		}
		must.Do(t, err)
	}
	must.Do(t, files.Close())
	return packed.String()
}

func wheelName(name string) string { return name + "-1.0-py3-none-any.whl" }

// writeFiles writes files below dir, keyed by path.
func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(t, os.WriteFile(path, []byte(content), 0o755))
	}
}

// TestCallersDirectory runs a real Python and pip in a directory that belongs to another user. None
// of the files there is run, but files that a list names are found.
func TestCallersDirectory(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a virtual environment has other paths there")
	}
	t.Setenv(Variable, "")
	caller, ran := filepath.Join(t.TempDir(), "its code"), filepath.Join(t.TempDir(), "ran")
	hostile := fmt.Sprintf("open(%q, 'a').write(__name__ + ' ' + __file__ + '\\n')\n", ran)
	files := map[string]string{"python3": "#!/bin/sh\necho python3 >>" + ran + "\n"}
	for _, name := range []string{"pip/__main__.py", "pip/__init__.py", "venv/__main__.py", "sitecustomize.py", "usercustomize.py", "json.py", "startup.py", "ensurepip.py"} {
		files[name] = hostile
	}
	files["hostile.pth"] = "import sitecustomize\n"
	for path, name := range map[string]string{"one": ".", "two": "wheels", "three": ".", "four": "links", "five": "sub/links", "six": "found"} {
		files[filepath.Join(name, wheelName(path))] = wheel(t, path)
	}
	files["list.txt"] = wheelName("one") + "\n./wheels/" + wheelName("two") + " ; python_version > '3.0'\n-r sub/more.txt\n-f links\nfour==1.0\nsix\n"
	files["sub/more.txt"] = "# found beside the caller\n./" + wheelName("three") + "\n--find-links=links\nfive\n"
	writeFiles(t, caller, files)
	t.Chdir(caller)
	for name, value := range map[string]string{
		"PATH": ".:" + os.Getenv("PATH") + ":", "PYTHONPATH": ".", "PYTHONSTARTUP": "startup.py", "PYTHONUSERBASE": ".",
		"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "found", "PIP_CACHE_DIR": "cache", "PIP_CERT": "", "PIP_CONFIG_FILE": os.DevNull,
	} {
		t.Setenv(name, value)
	}
	base, err := baseInterpreter(t.Context(), short, newReporter(nil))
	if err != nil {
		skip(t, "a Python that makes environments is needed: %v", err)
	}
	directory := filepath.Join(t.TempDir(), "environment")
	b := builder{choice: choice{Packages: Packages{File: filepath.Join(caller, "list.txt")}}, directory: directory, scratch: t.TempDir(), report: newReporter(nil)}
	must.Do(t, b.command(t.Context(), nil, base.Base, "-I", "-m", "venv", directory))
	must.Do(t, b.installFile(t.Context()))
	for _, name := range []string{"one", "two", "three", "four", "five", "six"} {
		if found, err := filepath.Glob(filepath.Join(directory, "lib/python3*/site-packages", name+"-1.0.dist-info")); err != nil || len(found) != 1 {
			t.Errorf("the package %s is not installed", name)
		}
	}
	if said, err := os.ReadFile(ran); err == nil {
		t.Errorf("files of the caller's directory were run:\n%s", said)
	}
	writeFiles(t, caller, map[string]string{"list.txt": "one\n\\\n ./missing.whl\n"})
	if err := b.installFile(t.Context()); err == nil || !strings.Contains(err.Error(), filepath.Join(caller, "missing.whl")) || strings.Contains(err.Error(), b.scratch) {
		t.Errorf("a missing file: got %v, want its path in the caller's directory and none of the copy", err)
	}
}

// TestRequirementLines checks which paths in a requirements file are made absolute.
func TestRequirementLines(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the paths are those of Unix")
	}
	caller := t.TempDir()
	writeFiles(t, caller, map[string]string{"x.whl": "", "a@x.whl": "", "numpy": "", "lists/links/x": "", "lists/opt/x": ""})
	t.Chdir(caller)
	t.Setenv("WHEELS", "./wheels")
	t.Setenv("TOKEN", "secret")
	t.Setenv("ROOT", "/opt")
	tests := []struct{ line, want string }{
		{"numpy==1.0 ; python_version >= '3.9' # why", "numpy==1.0 ; python_version >= '3.9'"},
		{"numpy==1.0 --hash=sha256:00", "numpy==1.0 --hash=sha256:00"},
		{"x.whl", caller + "/x.whl"},
		{"missing.whl", "missing.whl"},
		{"numpy", "numpy"},
		{"a@x.whl", caller + "/a@x.whl"},
		{"./a@file:x.whl", caller + "/a@file:x.whl"},
		{"${ROOT}/x.whl", "${ROOT}/x.whl"},
		{"${E2BCTL_UNSET}/x.whl", caller + "/${E2BCTL_UNSET}/x.whl"},
		{"./missing.whl[extra] ; python_version > '3'", caller + "/missing.whl[extra] ; python_version > '3'"},
		{"/opt/x.whl", "/opt/x.whl"},
		{"a @ https://${TOKEN}@files.test/x.whl", "a @ https://${TOKEN}@files.test/x.whl"},
		{"a.b@file:x.whl", "a.b@ file://" + caller + "/x.whl"},
		{"git+https://files.test/a@v1", "git+https://files.test/a@v1"},
		{"${WHEELS}/x.whl", caller + "/wheels/x.whl"},
		{"-e .", "-e " + caller},
		{" -e .", " -e " + caller},
		{"-e './a b'", "-e '" + caller + "/a b'"},
		{"-e git+https://files.test/a[b]", "-e git+https://files.test/a[b]"},
		{"-e ./a/[b]", "-e '" + caller + "/a[b]'"},
		{"-e ./a[b]", "-e '" + caller + "/a[b]'"},
		{`--editable "./a b"`, "--editable '" + caller + "/a b'"},
		{"-e git+https://files.test/a#egg=a", "-e git+https://files.test/a#egg=a"},
		{"-flinks", "-f" + caller + "/lists/links"},
		{"--find-links elsewhere --no-index", "--find-links " + caller + "/elsewhere --no-index"},
		{"-i https://${TOKEN}@index.test/simple?a=b", "-i https://${TOKEN}@index.test/simple?a=b"},
		{"--extra-index-url=./simple", "--extra-index-url=" + caller + "/simple"},
		{"-f /opt", "-f /opt"},
		{"-c /opt/missing.txt", "-c /opt/missing.txt"},
		{"-r https://files.test/a.txt", "-r https://files.test/a.txt"},
		{"-c missing.txt", "-c " + caller + "/lists/missing.txt"},
		{"--only-binary :all:", "--only-binary :all:"},
		{"", ""},
	}
	for _, test := range tests {
		files := newRequirementFiles(t.TempDir())
		if got := files.line(test.line, filepath.Join(caller, "lists")); got != test.want {
			t.Errorf("%q (-want +got):\n%s", test.line, cmp.Diff(test.want, got))
		}
	}
}
