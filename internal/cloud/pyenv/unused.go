package pyenv

import (
	"os"
	"path/filepath"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/setupdir"
	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// NoteUse records that the prepared environment is in use, as [setupdir.Marker.NoteUse] does.
// It does nothing for any other Python.
func (e *Env) NoteUse() {
	if e.Level == Venv {
		setupdir.Marker(marker).NoteUse(filepath.Dir(filepath.Dir(e.Python)))
	}
}

var venvForm = lazyregexp.New(`^[0-9a-f]{12}-3\.\d+-[0-9a-f]{12}$`)

// removeUnused removes complete environments that have not been used for a long time. It keeps
// incomplete environments, because another process may be creating them. It ignores errors, because
// an environment that cannot be removed only uses disk space.
func removeUnused(report *reporter) {
	cache, err := cacheDirectory()
	if err != nil {
		return
	}
	entries, _ := os.ReadDir(cache) // the cache does not exist before the first environment
	for _, entry := range entries {
		directory := filepath.Join(cache, entry.Name())
		since, unused := setupdir.Marker(marker).Unused(directory)
		if !unused || !entry.IsDir() || !venvForm().MatchString(entry.Name()) {
			continue
		}
		report.line("removing the Python environment %s, unused since %s", directory, since.Format(time.DateOnly))
		// The marker is removed first. If the removal is interrupted, the rest counts as
		// incomplete.
		err := os.Remove(filepath.Join(directory, marker))
		if err == nil {
			err = os.RemoveAll(directory)
		}
		if err != nil {
			report.line("it could not be removed: %v", err)
		}
	}
}
