package wasmenv

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestSetupRefuses checks that only the files in lock.json are accepted, that the error on a
// machine without npm names the remedy, and that a failed setup leaves nothing behind.
func TestSetupRefuses(t *testing.T) {
	all, err := packages(system())
	if err != nil {
		t.Skip(err)
	}
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("PATH", t.TempDir())
	if _, err := Find(); !errors.Is(err, ErrNotSetUp) {
		t.Errorf("find: got %v, want %v", err, ErrNotSetUp)
	}
	_, err = Setup(t.Context(), io.Discard, "")
	for _, want := range []string{"install Node.js", "--from", "npm pack " + all[0].String(), all[1].archive()} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without npm: got %v, want %q in it", err, want)
		}
	}
	from := t.TempDir()
	if _, err := Setup(t.Context(), io.Discard, from); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), all[0].archive()) {
		t.Errorf("an empty directory: got %v, want the name of what is not there", err)
	}
	must.Do(t, os.WriteFile(filepath.Join(from, all[0].archive()), []byte("other"), 0o600))
	if _, err := Setup(t.Context(), io.Discard, from); err == nil || !strings.Contains(err.Error(), "want "+all[0].Integrity) {
		t.Errorf("another file: got %v, want its digest and the right one", err)
	}
	if left, err := filepath.Glob(filepath.Join(cache, "e2bctl", "wasm", "*")); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v, want nothing", left, err)
	}
}

// TestCheck checks that the error of Check names the file that was removed or changed.
func TestCheck(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, pyodideName, "file")
	must.Do(t, errors.Join(os.Mkdir(filepath.Dir(name), 0o755), os.WriteFile(name, []byte("four"), 0o600), writeSizes(dir), Check(dir)))
	for _, damage := range []struct {
		do   func() error
		want string
	}{
		{func() error { return os.Truncate(name, 3) }, "pyodide/file has 3 bytes, not 4"},
		{func() error { return os.Remove(name) }, "no such file"},
		{func() error { return os.Truncate(filepath.Join(dir, sizesName), 1) }, "JSON"},
		{func() error { return os.RemoveAll(dir) }, sizesName},
	} {
		must.Do(t, damage.do())
		if err := Check(dir); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), damage.want) {
			t.Errorf("got %v, want %v with %q", err, ErrDamaged, damage.want)
		}
	}
}

func TestPackages(t *testing.T) {
	t.Parallel()
	if _, err := packages("plan9/386"); err == nil || !strings.Contains(err.Error(), "linux/amd64") || !strings.Contains(err.Error(), "plan9/386") {
		t.Errorf("got %v, want the systems that there are, and this one", err)
	}
	all, err := packages("linux/amd64")
	must.Do(t, err)
	for _, p := range all {
		if !strings.HasPrefix(p.Integrity, "sha512-") || len(wanted(p)) == 0 {
			t.Errorf("%v: got %+v with the files %v, want a digest and files", p, p, wanted(p))
		}
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		memory uint64
		want   string
	}{
		{0, "--v8-flags=--wasm-max-mem-pages=65536"},
		{16 << 20, "--v8-flags=--wasm-max-mem-pages=1024"},
		{512 << 20, "--v8-flags=--wasm-max-mem-pages=4096"},
		{64 << 30, "--v8-flags=--wasm-max-mem-pages=65536"},
	} {
		command, err := Command("/env", []string{"/home/user", "/tmp"}, test.memory)
		if got := strings.Join(command, " "); err != nil || !strings.Contains(got, test.want+" --allow-read=/env,/home/user,/tmp --allow-write=/home/user,/tmp /env/main.mjs") {
			t.Errorf("%d bytes: got %s, %v, want %s", test.memory, got, err, test.want)
		}
	}
	command, err := Command("/env", nil, 0)
	if got := strings.Join(command, " "); err != nil || strings.Contains(got, "--allow-write") {
		t.Errorf("no places: got %s, %v, want no permission to write", got, err)
	}
	for _, place := range []string{"/a,/b", "data", ""} {
		if _, err := Command("/env", []string{place}, 0); err == nil {
			t.Errorf("the place %q: got no error", place)
		}
	}
}

// TestUnused checks that a setup removes unused versions, and keeps those in use.
func TestUnused(t *testing.T) {
	if _, err := packages(system()); err != nil {
		t.Skip(err)
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("PATH", t.TempDir()) // without npm it gets no further
	version, err := home()
	must.Do(t, err)
	cache := filepath.Dir(version)
	unused, used := filepath.Join(cache, "1111"), filepath.Join(cache, "2222")
	then := time.Now().Add(-31 * 24 * time.Hour)
	for _, dir := range []string{unused, used} {
		snapshot := filepath.Join(dir, snapshotName)
		must.Do(t, errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(snapshot, nil, 0o644), os.Chtimes(snapshot, then, then)))
	}
	(&Env{used}).NoteUse()
	var progress strings.Builder
	if _, err := Setup(t.Context(), &progress, ""); err == nil || !strings.Contains(progress.String(), "removing "+unused) {
		t.Errorf("got %v and %q, want that there is no npm and that %s is removed", err, &progress, unused)
	}
	if left, err := filepath.Glob(filepath.Join(cache, "*")); err != nil || !slices.Equal(left, []string{used}) {
		t.Errorf("left are %v, %v, want %s", left, err, used)
	}
}
