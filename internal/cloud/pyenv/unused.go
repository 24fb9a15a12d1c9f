package pyenv

import (
	"os"
	"path/filepath"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/setupdir"
	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// NoteUse records that the prepared environment is in use, as [setupdir.Marker.NoteUse]
// does. For other environments it does nothing.
func (e *Env) NoteUse() {
	if e.Level == Venv {
		setupdir.Marker(marker).NoteUse(filepath.Dir(filepath.Dir(e.Python)))
	}
}

var venvForm = lazyregexp.New(`^[0-9a-f]{12}-3\.\d+-[0-9a-f]{12}$`)

// removeUnused removes the finished environments that nobody has used for a long time.
// It leaves unfinished ones, which another process may be making. One
// that cannot be removed only takes up space.
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
		// The marker is removed first: if this is interrupted, the remaining files
		// count as unfinished.
		err := os.Remove(filepath.Join(directory, marker))
		if err == nil {
			err = os.RemoveAll(directory)
		}
		if err != nil {
			report.line("it could not be removed: %v", err)
		}
	}
}
