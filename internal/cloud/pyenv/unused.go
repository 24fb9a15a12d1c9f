package pyenv

import (
	"os"
	"path/filepath"
	"time"

	"github.com/e2bctl/e2bctl/internal/lazyregexp"
)

// keptUnused is how long an environment that nobody uses is kept: another version of
// this program may have made it, and may be used tomorrow.
const keptUnused = 30 * 24 * time.Hour

// NoteUse records the time of the prepared environment's last use, to the day. A
// program that uses one for a long time calls it repeatedly. It is best effort: the
// environment may belong to another user.
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

// removeUnused removes the finished environments that nobody has used for a long
// time. It leaves unfinished ones, which may be in the making. What cannot be
// removed only takes up space.
func removeUnused(report *reporter) {
	cache, err := cacheDirectory()
	if err != nil {
		return
	}
	entries, _ := os.ReadDir(cache) // the cache does not exist before the first environment
	for _, entry := range entries {
		name := filepath.Join(cache, entry.Name(), marker)
		info, err := os.Stat(name)
		if err != nil || !entry.IsDir() || !venvForm().MatchString(entry.Name()) || time.Since(info.ModTime()) < keptUnused {
			continue
		}
		directory := filepath.Dir(name)
		report.line("removing the Python environment %s, unused since %s", directory, info.ModTime().Format(time.DateOnly))
		// The marker is removed first: if this is interrupted, the rest counts as a
		// ruin.
		err = os.Remove(name)
		if err == nil {
			err = os.RemoveAll(directory)
		}
		if err != nil {
			report.line("it could not be removed: %v", err)
		}
	}
}
