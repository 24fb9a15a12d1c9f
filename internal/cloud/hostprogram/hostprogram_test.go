package hostprogram

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestFind checks that a directory of PATH that depends on the caller's directory is not searched.
func TestFind(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the program is a shell script")
	}
	caller, system := t.TempDir(), t.TempDir()
	for _, path := range []string{filepath.Join(caller, "tool"), filepath.Join(caller, "bin", "tool"), filepath.Join(system, "tool")} {
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(t, os.WriteFile(path, []byte("#!/bin/sh\npwd; echo \"$PATH\"\n"), 0o755))
	}
	t.Chdir(caller)
	t.Setenv("GODEBUG", "execerrdot=0")
	for _, list := range []string{".:bin::" + system, ":" + system, "./bin:" + system + ":."} {
		t.Setenv("PATH", list+":/bin")
		want := filepath.Join(system, "tool")
		got, err := Find("tool")
		if err != nil || got != want {
			t.Fatalf("PATH=%s: got %q, %v; want %s", list, got, err, want)
		}
		output, err := Command(t.Context(), "", got).Output()
		if want := system + "\n" + system + ":/bin\n"; err != nil || string(output) != want {
			t.Errorf("PATH=%s: the program said %q, %v; want its own directory and %q", list, output, err, want)
		}
	}
	t.Setenv("PATH", ".:bin:")
	got, err := Find("tool")
	if failed, ok := errors.AsType[*exec.Error](err); got != "" || !ok || *failed != (exec.Error{Name: "tool", Err: exec.ErrNotFound}) {
		t.Errorf("got %q from the caller's directory and error %v, want %v", got, err, exec.ErrNotFound)
	}
	want := filepath.Join(caller, "bin", "tool")
	if got, err := Find("bin/tool"); err != nil || got != want {
		t.Errorf("a path: got %q, %v; want %s", got, err, want)
	}
	if got, err := Find("bin/none"); got != "" || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a path to no file: got %q, %v; want %v", got, err, fs.ErrNotExist)
	}
}

// TestFindOfRoot checks that the usual directories for administrators are searched, but only after
// those of PATH.
func TestFindOfRoot(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the directories are those of Unix")
	}
	first := t.TempDir()
	t.Setenv("PATH", first)
	tool := programOfRoot(t)
	got, err := FindOfRoot(tool)
	if wants := []string{"/usr/sbin/" + tool, "/sbin/" + tool}; err != nil || !slices.Contains(wants, got) {
		t.Fatalf("got %q, %v; want one of %q", got, err, wants)
	}
	want := filepath.Join(first, tool)
	must.Do(t, os.WriteFile(want, []byte("#!/bin/sh\n"), 0o755))
	if got, err := FindOfRoot(tool); err != nil || got != want {
		t.Errorf("a program in PATH: got %q, %v; want %s", got, err, want)
	}
	if got, err := FindOfRoot("no-such-tool"); got != "" || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no program: got %q, %v; want %v", got, err, fs.ErrNotExist)
	}
}

// programOfRoot returns the name of a program for administrators that everybody may execute.
func programOfRoot(t *testing.T) string {
	t.Helper()
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, entry := range entries {
			if info, err := os.Stat(filepath.Join(dir, entry.Name())); err == nil && info.Mode().IsRegular() && info.Mode()&0o001 != 0 {
				return entry.Name()
			}
		}
	}
	t.Skip("this machine has no programs for administrators")
	return ""
}

// TestEnviron checks to which file a program resolves the relative path in a variable.
func TestEnviron(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the paths are those of Unix")
	}
	caller := t.TempDir()
	t.Chdir(caller)
	tests := []struct{ variable, value, want string }{
		{"PIP_CERT", "ca.pem", caller + "/ca.pem"},
		{"PIP_CONFIG_FILE", "/dev/null", "/dev/null"},
		{"PIP_CACHE_DIR", "~/pip", "~/pip"},
		{"PIP_FIND_LINKS", "./a https://index.test/x ../b", caller + "/a https://index.test/x " + filepath.Dir(caller) + "/b"},
		{"PIP_BUILD_CONSTRAINT", "c.txt", caller + "/c.txt"},
		{"PIP_INDEX_URL", "simple", caller + "/simple"},
		{"PIP_EXTRA_INDEX_URL", "file:simple", "file://" + caller + "/simple"},
		{"REQUESTS_CA_BUNDLE", "./ca.pem", caller + "/ca.pem"},
		{"SSL_CERT_DIR", "certs:/etc/ssl", caller + "/certs:/etc/ssl"},
		{"npm_config_cafile", "ca.pem", caller + "/ca.pem"},
		{"LD_LIBRARY_PATH", "/opt/lib:.:", "/opt/lib"},
		{"PIP_PROXY", "./kept", "./kept"},
		{"PWD", caller, "/opt/work"},
	}
	for _, test := range tests {
		t.Setenv(test.variable, test.value)
	}
	environ := Environ("/opt/work")
	for _, test := range tests {
		if !slices.Contains(environ, test.variable+"="+test.want) {
			i := slices.IndexFunc(environ, func(v string) bool { return strings.HasPrefix(v, test.variable+"=") })
			t.Errorf("%s=%s: got %q, want %q", test.variable, test.value, environ[max(i, 0)], test.want)
		}
	}
}

// TestResolve checks that only a relative path becomes another one.
func TestResolve(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the paths are those of Unix")
	}
	caller := t.TempDir()
	t.Chdir(caller)
	for path, want := range map[string]string{
		"": "", "a": caller + "/a", "/a": "/a", "~/a": "~/a", "https://index.test": "https://index.test",
		"file:": "file:", "file:a": "file://" + caller + "/a", "file:/a": "file:/a", "file:///a": "file:///a",
	} {
		if got := Resolve(path); got != want {
			t.Errorf("%q: got %q, want %q", path, got, want)
		}
	}
}

// TestFileURL checks that a path with a drive also becomes the path of a URL.
func TestFileURL(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{"/a b": "file:///a%20b", "C:/a": "file:///C:/a"} {
		if got := fileURL(path); got != want {
			t.Errorf("%q: got %q, want %q", path, got, want)
		}
	}
}

// TestEnvironOfSpaces checks that a relative path in a list that is separated by spaces becomes a URL
// if the caller's directory contains a space.
func TestEnvironOfSpaces(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the paths are those of Unix")
	}
	caller := filepath.Join(t.TempDir(), "of me")
	must.Do(t, os.Mkdir(caller, 0o755))
	t.Chdir(caller)
	t.Setenv("PIP_FIND_LINKS", "a /b https://index.test/x")
	want := "PIP_FIND_LINKS=file://" + filepath.Dir(caller) + "/of%20me/a /b https://index.test/x"
	if environ := Environ("/opt/work"); !slices.Contains(environ, want) {
		t.Errorf("got %q, want %s in it", environ, want)
	}
}

// TestResolveNowhere checks that paths stay the same if the current directory no longer exists.
func TestResolveNowhere(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a current directory cannot be removed")
	}
	caller := filepath.Join(t.TempDir(), "removed")
	must.Do(t, os.Mkdir(caller, 0o755))
	t.Chdir(caller)
	must.Do(t, os.Remove(caller))
	for _, path := range []string{"a", "./a", "file:a", "/a"} {
		if got := Resolve(path); got != path {
			t.Errorf("%q: got %q, want it unchanged", path, got)
		}
	}
}

// TestIsURL checks where the name of a drive ends and a scheme begins.
func TestIsURL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"": false, ":a": false, "a": false, "ab": false, "c:/a": false, "ab:a": true, "git+ssh://a": true, "HTTPS://a": true, "x-9:a": true,
		"a_b:c": false, "./a:b": false, "a b:c": false,
	} {
		if got := IsURL(text); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}
