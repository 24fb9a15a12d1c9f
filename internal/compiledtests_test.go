package internal_test

import (
	"go/build"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// byName reports whether only the name of a Go file keeps it from being compiled on linux/amd64, and
// no constraint in its text.
func byName(dir, name string) (bool, error) {
	here := build.Default
	here.GOOS, here.GOARCH = "linux", "amd64"
	compiled, err := here.MatchFile(dir, name)
	if compiled || err != nil {
		return false, err
	}
	here.OpenFile = func(string) (io.ReadCloser, error) { return os.Open(filepath.Join(dir, name)) }
	return here.MatchFile(dir, "of_any_system.go")
}

// TestTestsAreCompiled checks that no test file is left out by accident, because its name ends with the
// name of a system or processor: a file x_wasm_test.go is compiled for WebAssembly alone. A file that is
// meant for another system says so in a line //go:build, too.
func TestTestsAreCompiled(t *testing.T) {
	t.Parallel()
	must.Do(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != ".." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		left, err := byName(filepath.Dir(path), entry.Name())
		if left {
			t.Errorf("%s is not compiled because of its name: choose another one, or give it a line //go:build", path)
		}
		return err
	}))
	for name, want := range map[string]bool{
		"x_test.go": false, "x_linux_test.go": false, "x_linux_amd64_test.go": false, "wasm_test.go": false, "x_windowslike_test.go": false,
		"x_wasm_test.go": true, "x_js_test.go": true, "x_plan9_test.go": true, "x_arm64_test.go": true, "x_linux_arm64_test.go": true, "x_windows_test.go": true,
	} {
		dir := t.TempDir()
		for constraint, meant := range map[string]bool{"": false, "//go:build linux\n\n": false, "//go:build !linux\n\n": true, "//go:build !amd64\n\n": true} {
			must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(constraint+"package x\n"), 0o600))
			if got, err := byName(dir, name); err != nil || got != (want && !meant) {
				t.Errorf("%s with %q: got %v and error %v, want it to be left out by its name: %v", name, constraint, got, err, want && !meant)
			}
		}
	}
}
