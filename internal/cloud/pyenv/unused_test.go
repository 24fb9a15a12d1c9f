package pyenv

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
)

// place creates a directory in the cache. finished is the time at which it was completed; zero
// means that it is incomplete.
func place(t *testing.T, cache, name string, finished time.Time) string {
	t.Helper()
	directory := filepath.Join(cache, "e2bctl", "python", name)
	must.Do(t, os.MkdirAll(filepath.Join(directory, "lib"), 0o755))
	if finished.IsZero() {
		return directory
	}
	name = filepath.Join(directory, marker)
	must.Do(t, errors.Join(os.WriteFile(name, nil, 0o644), os.Chtimes(name, finished, finished)))
	return directory
}

func TestUnusedEnvironmentsAreRemoved(t *testing.T) {
	cache, _ := pretend(t, "")
	const kept = 30 * 24 * time.Hour
	old, recent := time.Now().Add(-kept-time.Hour), time.Now().Add(-kept+time.Hour)
	unused := place(t, cache, "0123456789ab-3.9-0123456789ab", old)
	refused := place(t, cache, "0123456789ab-3.12-0123456789ab", time.Time{})
	writeFiles(t, refused, map[string]string{marker + "/below": ""}) // so that the marker cannot be removed
	must.Do(t, os.Chtimes(filepath.Join(refused, marker), old, old))
	stay := []string{
		refused,
		place(t, cache, "0123456789ab-3.10-0123456789ab", recent),
		place(t, cache, "0123456789ab-3.11-0123456789ab", time.Time{}),
		place(t, cache, "somebody's", old),
	}
	var progress strings.Builder
	env, err := Ensure(t.Context(), &progress)
	must.Do(t, err)
	if _, err := os.Stat(unused); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(progress.String(), "removing the Python environment "+unused) {
		t.Errorf("the unused one: %v\n%s, want fs.ErrNotExist and %q in it", err, progress.String(), "removing the Python environment "+unused)
	}
	if said := "unused since " + old.Format(time.DateOnly) + "\nit could not be removed: "; !strings.Contains(progress.String(), said) {
		t.Errorf("got %s, want %q in it", progress.String(), said)
	}
	for _, directory := range stay {
		if _, err := os.Stat(filepath.Join(directory, "lib")); err != nil {
			t.Error(err)
		}
	}

	// An environment whose use is noted stays.
	own := filepath.Join(filepath.Dir(filepath.Dir(env.Python)), marker)
	for _, use := range []func() (*Env, error){
		func() (*Env, error) { return Find(t.Context()) },
		func() (*Env, error) { return Ensure(t.Context(), nil) },
		func() (*Env, error) { env.NoteUse(); return env, nil },
	} {
		must.Do(t, os.Chtimes(own, old, old))
		if got, err := use(); err != nil || got.Python != env.Python {
			t.Errorf("got %+v, %v, want the Python %s and no error", got, err, env.Python)
		}
		if info, err := os.Stat(own); err != nil || info.ModTime().Before(recent) {
			t.Errorf("its use is not noted: %v", err)
		}
	}
	must.Do(t, os.Chtimes(own, old, old))
	(&Env{Python: env.Python, Level: IPython}).NoteUse()
	if info, err := os.Stat(own); err != nil || !info.ModTime().Before(recent) {
		t.Errorf("the use of another Python is noted: error %v", err)
	}
}
