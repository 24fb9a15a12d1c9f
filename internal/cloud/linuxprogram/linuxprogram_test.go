package linuxprogram

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
)

func TestModuleOf(t *testing.T) {
	t.Parallel()
	dep := func(m debug.Module) []*debug.Module {
		return []*debug.Module{{Path: "example.com/other", Version: "v9.9.9"}, &m}
	}
	tests := []struct {
		name string
		info debug.BuildInfo
		want source
	}{
		{"go install", debug.BuildInfo{Main: debug.Module{Path: modulePath, Version: "v1.2.3", Sum: "h1:x"}}, source{module: modulePath, version: "v1.2.3"}},
		{"built in a working tree", debug.BuildInfo{Main: debug.Module{Path: modulePath, Version: "(devel)"}}, source{}},
		{"built in a working tree with a version", debug.BuildInfo{Main: debug.Module{Path: modulePath, Version: "v1.2.3+dirty"}}, source{}},
		{"a program of its own", debug.BuildInfo{Main: debug.Module{Path: "example.com/mine", Version: "(devel)"}, Deps: dep(debug.Module{Path: modulePath, Version: "v1.2.3", Sum: "h1:x"})}, source{module: modulePath, version: "v1.2.3"}},
		{"a fork", debug.BuildInfo{Main: debug.Module{Path: "example.com/mine"}, Deps: dep(debug.Module{Path: modulePath, Version: "v1.2.3", Replace: &debug.Module{Path: "example.com/fork", Version: "v2.0.0"}})}, source{module: "example.com/fork", version: "v2.0.0"}},
		{"replaced by a directory", debug.BuildInfo{Main: debug.Module{Path: "example.com/mine"}, Deps: dep(debug.Module{Path: modulePath, Version: "v1.2.3", Replace: &debug.Module{Path: "../e2bctl"}})}, source{}},
	}
	for _, test := range tests {
		if got := moduleOf(&test.info); got != test.want {
			t.Errorf("%s: got %+v, want %+v", test.name, got, test.want)
		}
	}
}

// TestTree checks that a test finds the working tree that it belongs to, and that no tree is found
// elsewhere.
func TestTree(t *testing.T) {
	t.Parallel()
	own, err := ownSource()
	must.Do(t, err)
	if _, err := os.Stat(filepath.Join(own.dir, "internal/cloud/linuxprogram/contained/main.go")); err != nil || own.version != "" {
		t.Errorf("got %+v, %v, want the working tree", own, err)
	}
	if dir, found := treeOf(t.TempDir()); found {
		t.Errorf("got the tree %s of a directory that is in none", dir)
	}
}

// TestKeyOfTree checks that a change of the working tree changes the key of the program, unless
// only tests have changed.
func TestKeyOfTree(t *testing.T) {
	t.Parallel()
	s := source{dir: t.TempDir()}
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(s.dir, path)
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)))
	}
	key := func() string {
		t.Helper()
		key, err := s.key()
		must.Do(t, err)
		return key
	}
	write("go.mod", "module "+modulePath)
	write("go.sum", "")
	write("internal/a/_python/a.py", "pass")
	before := key()
	write("internal/a/a_test.go", "package a")
	write("internal/a/testdata/file", "text")
	write("internal/cloud/linuxprogram/linux_amd64.gz", "packed")
	if got := key(); got != before {
		t.Error("a test changed what the program is")
	}
	for path, text := range map[string]string{"go.sum": "sum", "internal/a/_python/a.py": "raise", "internal/b/b.go": "package b"} {
		write(path, text)
		if got := key(); got == before {
			t.Errorf("%s changed, and the program is the same", path)
		} else {
			before = got
		}
	}
	if a, _ := (source{module: "m", version: "v1"}).key(); a == keyOf([]byte("m v2")) || a == "" {
		t.Errorf("got the key %q for version 1, want another one than that of version 2", a)
	}
}

// cache sets a cache directory for the test, and returns the directory of the programs in it.
func cache(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	return filepath.Join(dir, "e2bctl", "linux")
}

// TestNone checks that the error for a missing program names the architecture and the remedy.
func TestNone(t *testing.T) {
	cache(t)
	if path, err := Find("arm64"); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "for arm64 none is prepared: run `e2bctl local setup --engine docker`") {
		t.Errorf("got %q, %v, want ErrNone and what to do", path, err)
	}
	own, err := os.Executable()
	must.Do(t, err)
	for from, want := range map[string]string{own: "want e2bctl", filepath.Join(t.TempDir(), "none"): "is no e2bctl"} {
		if path, err := Take(io.Discard, from, "arm64"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, %v from %s, want %q", path, err, from, want)
		}
	}
	if path, err := Make(t.Context(), io.Discard, "riscv64"); err == nil || !strings.Contains(err.Error(), "riscv64") {
		t.Errorf("got %q, %v, want that there is none for riscv64", path, err)
	}
	t.Setenv("PATH", t.TempDir())
	if path, err := Make(t.Context(), io.Discard, "arm64"); err == nil || !strings.Contains(err.Error(), "install Go") {
		t.Errorf("got %q, %v, want that Go is needed", path, err)
	}
}

// TestPacked checks that the program in a release build is unpacked once, even if several callers
// need it at the same time, and that unused versions are removed.
func TestPacked(t *testing.T) {
	dir := cache(t)
	old, young, left := filepath.Join(dir, "old-amd64", name), filepath.Join(dir, "young-amd64", name), filepath.Join(dir, "making-1", name)
	const day = 24 * time.Hour
	for path, age := range map[string]time.Duration{old: 31 * day, young: 2 * day, left: 2 * day} {
		then := time.Now().Add(-age)
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600), os.Chtimes(path, then, then), os.Chtimes(filepath.Dir(path), then, then)))
	}
	program := []byte(strings.Repeat("program", 1000))
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(program); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	o := origin{architecture: "arm64", packed: packed.Bytes(), key: keyOf(packed.Bytes())}
	var paths [4]string
	var making sync.WaitGroup
	for i := range paths {
		making.Go(func() {
			path, err := o.make(t.Context(), io.Discard)
			if err != nil {
				t.Errorf("make it: %v", err)
			}
			paths[i] = path
		})
	}
	making.Wait()
	for _, path := range paths {
		if path != paths[0] {
			t.Errorf("got %s and %s, want one path", path, paths[0])
		}
	}
	got, err := os.ReadFile(paths[0])
	info, statErr := os.Stat(paths[0])
	if err != nil || statErr != nil || !bytes.Equal(got, program) {
		t.Fatalf("got %d bytes, %v, %v, want the program", len(got), err, statErr)
	}
	if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode != 0o755 {
		t.Errorf("got mode %v, want 0755: any user of a container runs it", mode)
	}
	if again, err := o.find(); again != paths[0] || err != nil {
		t.Errorf("got %s, %v the next time, want %s", again, err, paths[0])
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if want := []string{filepath.Dir(paths[0]), filepath.Dir(young)}; err != nil || len(names) != 2 || names[0] != want[0] || names[1] != want[1] {
		t.Errorf("left: %v, %v, want %v", names, err, want)
	}
	taken := filepath.Join(t.TempDir(), "e2bctl")
	must.Do(t, os.WriteFile(taken, []byte("another program"), 0o600))
	path, err := (origin{architecture: "arm64", taken: taken, key: "taken"}).make(t.Context(), io.Discard)
	must.Do(t, err)
	if got, err := os.ReadFile(path); err != nil || string(got) != "another program" {
		t.Errorf("got %q, %v, want the program that was named", got, err)
	}
	unknown := origin{architecture: "arm64", unknown: errors.New("unknown sources"), key: "unknown"}
	if path, err := unknown.make(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "unknown sources; or name the e2bctl of the release for linux/arm64 with --from") {
		t.Errorf("got %q, %v without sources, want that and what to do", path, err)
	}
	broken := origin{architecture: "amd64", packed: packed.Bytes()[:packed.Len()/2], key: "broken"}
	if path, err := broken.make(t.Context(), io.Discard); err == nil {
		t.Errorf("got %s from half of a program", path)
	}
	if _, err := broken.find(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("half of a program is kept: %v", err)
	}
}
