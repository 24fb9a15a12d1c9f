//go:build linux

package kernel

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pydriver "github.com/e2bctl/e2bctl/internal/cloud/kernel/python"
	"github.com/e2bctl/e2bctl/internal/must"
)

// A Python that cannot run the driver reports the reason, and a Python whose IPython
// is broken runs without it: an image may have any Python.
func TestStartPython(t *testing.T) {
	t.Parallel()
	_, plain := pythons()
	if plain == "" {
		t.Skip("no Python without IPython here")
	}
	for name, test := range map[string]struct {
		python string
		first  string // runs before the driver
		want   string // in the error, or in the note
		note   bool
	}{
		"too old":                {plain, "import sys; sys.version_info = (3, 8, 1); sys.version = '3.8.1 (main)'", "Python 3.8.1 is too old: 3.9 or newer is needed", false},
		"without a module":       {plain, "import sys; sys.modules['getpass'] = None", "has no whole standard library", false},
		"a broken IPython":       {plain, "import sys, types; sys.modules['IPython'] = types.ModuleType('IPython')", "IPython cannot be used", true},
		"not in PATH":            {"no-such-python", "", ErrNotInImage.Error(), false},
		"by its name in PATH":    {"python3", "", "", true},
		"no Python at all":       {"", "", ErrNoPython.Error(), false},
		"a name that is no file": {".", "", ErrNotInImage.Error(), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			driver, err := pydriver.WriteDriver(dir)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, "sitecustomize.py"), []byte(test.first), 0o644)
			}
			must.Do(t, err)
			spec := Spec{Driver: driver, Dir: dir, Logger: slog.New(slog.DiscardHandler), Environ: func() ([]string, error) {
				return []string{"PATH=" + filepath.Dir(plain), "PYTHONPATH=" + dir, "HOME=" + dir}, nil
			}}
			if test.python != "" {
				spec.Python = []string{test.python}
			}
			k := New(spec)
			defer k.Close()
			info, err := k.Start(t.Context())
			if test.note {
				if err != nil || !strings.Contains(info.Note, test.want) {
					t.Errorf("got %+v, %v, want a start with %q in its note", info, err, test.want)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
			if test.python == "no-such-python" && !errors.Is(err, ErrNotInImage) {
				t.Errorf("got %v, want %v", err, ErrNotInImage)
			}
		})
	}
}
