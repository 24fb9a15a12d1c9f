package hostprogram

import (
	"os"
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
	if got, err := Find("tool"); err == nil {
		t.Errorf("got %q from the caller's directory, want an error", got)
	}
	want := filepath.Join(caller, "bin", "tool")
	if got, err := Find("bin/tool"); err != nil || got != want {
		t.Errorf("a path: got %q, %v; want %s", got, err, want)
	}
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
