// Package setupdir keeps what setups prepare on this machine, in one directory for each version
// of it: the directory is complete or not there, and when nobody has used it for a long time the
// setup of another version removes it.
package setupdir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"
)

const (
	keptUnused = 30 * 24 * time.Hour // another version of this program may be used tomorrow
	noteEvery  = 24 * time.Hour
	making     = "making-"      // begins the name of a directory that is not complete
	abandoned  = 24 * time.Hour // an incomplete one that is older has no process left
	lockName   = "lock"
)

// Marker is the name of a file that every complete directory has. The time of the file is that
// of the last use of the directory.
type Marker string

// NoteUse records that dir is used now, to the day. A program that uses it for a long time calls
// NoteUse repeatedly. It is best effort: the directory may belong to another user.
func (m Marker) NoteUse(dir string) {
	name, now := filepath.Join(dir, string(m)), time.Now()
	if info, err := os.Stat(name); err == nil && now.Sub(info.ModTime()) > noteEvery {
		_ = os.Chtimes(name, now, now)
	}
}

// Unused reports whether nobody has used the complete directory dir for a long time, and since
// when.
func (m Marker) Unused(dir string) (since time.Time, unused bool) {
	info, err := os.Stat(filepath.Join(dir, string(m)))
	if err != nil {
		return time.Time{}, false
	}
	return info.ModTime(), time.Since(info.ModTime()) > keptUnused
}

// Make makes dir. fill writes what belongs in it to the directory made, and what it needs only
// until then to the directory scratch. What is there can be read and executed by all users, as
// whom sandboxes run. works returns why a directory cannot be used: if dir can, because another
// process was faster, Make leaves it, and otherwise replaces it. Everything else in the parent
// of dir is taken for another version or an incomplete one, and removed if it is unused. Make
// writes what it replaces and removes to progress. Any number of processes may call it at once.
func (m Marker) Make(dir string, progress io.Writer, works func(dir string) error, fill func(made, scratch string) error) error {
	m.removeUnused(filepath.Dir(dir), progress)
	temporary, err := os.MkdirTemp(filepath.Dir(dir), making)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temporary) }() // if this fails, a later Make removes it
	made, scratch := filepath.Join(temporary, "made"), filepath.Join(temporary, "scratch")
	if err := errors.Join(os.Mkdir(made, 0o755), os.Mkdir(scratch, 0o700)); err != nil {
		return err
	}
	if err := fill(made, scratch); err != nil {
		return err
	}
	if err := openToAll(made); err != nil {
		return err
	}
	if err := works(made); err != nil {
		return fmt.Errorf("what was made: %w", err)
	}
	err = os.Rename(made, dir)
	if err == nil || works(dir) == nil { // another process was faster
		return nil
	}
	return replace(dir, made, filepath.Join(temporary, "damaged"), progress, works)
}

// replace moves a damaged dir away, and made to its place. Under a lock, so that it is not what
// another process has just put there that is moved away.
func replace(dir, made, away string, progress io.Writer, works func(dir string) error) error {
	unlock, err := lockedfile.MutexAt(filepath.Join(filepath.Dir(dir), lockName)).Lock()
	if err != nil {
		return err
	}
	defer unlock()
	if works(dir) == nil {
		return nil
	}
	fmt.Fprintf(progress, "replacing %s, which is damaged\n", dir)
	if err := os.Rename(dir, away); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(made, dir); err != nil && works(dir) != nil {
		return err
	}
	return nil
}

// openToAll undoes for all files below dir what the umask of this process has left out.
func openToAll(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chmod(path, 0o755))
	})
}

// removeUnused removes from cache the versions that nobody has used for a long time, and the
// incomplete directories of setups that were killed. What cannot be removed only takes up space.
func (m Marker) removeUnused(cache string, progress io.Writer) {
	entries, _ := os.ReadDir(cache) // if it cannot be read, nothing in it is removed
	for _, entry := range entries {
		dir := filepath.Join(cache, entry.Name())
		if strings.HasPrefix(entry.Name(), making) {
			if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) > abandoned {
				_ = os.RemoveAll(dir)
			}
			continue
		}
		since, unused := m.Unused(dir)
		if !unused {
			continue
		}
		fmt.Fprintf(progress, "removing %s, unused since %s\n", dir, since.Format(time.DateOnly))
		// If this process is killed meanwhile, the rest counts as incomplete.
		rest := filepath.Join(cache, making+entry.Name())
		if os.Rename(dir, rest) == nil {
			_ = os.RemoveAll(rest)
		}
	}
}
