package pyenv

import (
	"os"
	"path/filepath"
	"time"

	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// keptUnused is how long an environment stays that nobody uses: another version of
// this program may have made it, and be in use tomorrow.
const keptUnused = 30 * 24 * time.Hour

// NoteUse gives the prepared environment the time of its last use, to the day. Who
// uses one for long calls it again and again. It is best effort: the environment
// may be another user's.
func (e *Env) NoteUse() {
	if e.Level != Venv {
		return
	}
	name, now := filepath.Join(filepath.Dir(filepath.Dir(e.Python)), marker), time.Now()
	if info, err := os.Stat(name); err == nil && now.Sub(info.ModTime()) > 24*time.Hour {
		_ = os.Chtimes(name, now, now)
	}
}

var venvForm = lazyregexp.New(`^[0-9a-f]{12}-3\.\d+-[0-9a-f]{12}$`)

// removeUnused removes the finished environments that nobody has used for long, and
// no other ones: they may be in the making. What cannot be removed only takes space.
func removeUnused(report *reporter) {
	cache, err := cacheDirectory()
	if err != nil {
		return
	}
	entries, _ := os.ReadDir(cache) // there is none before the first environment
	for _, entry := range entries {
		name := filepath.Join(cache, entry.Name(), marker)
		info, err := os.Stat(name)
		if err != nil || !entry.IsDir() || !venvForm().MatchString(entry.Name()) || time.Since(info.ModTime()) < keptUnused {
			continue
		}
		directory := filepath.Dir(name)
		report.line("removing the Python environment %s, which nobody has used since %s", directory, info.ModTime().Format(time.DateOnly))
		// The marker goes first: should this be cut off, a ruin is left.
		err = os.Remove(name)
		if err == nil {
			err = os.RemoveAll(directory)
		}
		if err != nil {
			report.line("it could not be removed: %v", err)
		}
	}
}
