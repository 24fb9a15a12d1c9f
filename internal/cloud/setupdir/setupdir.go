// Package setupdir keeps the results of setups on this machine, in one directory for each
// version. A directory is either complete or absent. If it has not been used for a long time,
// the setup of another version removes it.
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
	// time for which an unused directory is kept; another version of this program may be used tomorrow
	keptUnused = 30 * 24 * time.Hour
	noteEvery  = 24 * time.Hour
	making     = "making-"      // prefix of the name of an incomplete directory
	abandoned  = 24 * time.Hour // an older incomplete directory belongs to no running process
	lockName   = "lock"
)

// Marker is the name of a file in every complete directory. The modification time of the file
// is the time when the directory was last used.
type Marker string

// NoteUse records that dir is in use now. The recorded time has a resolution of a day. A program
// that uses dir for a long time must call NoteUse repeatedly. NoteUse ignores errors, because the
// directory may belong to another user.
func (m Marker) NoteUse(dir string) {
	name, now := filepath.Join(dir, string(m)), time.Now()
	if info, err := os.Stat(name); err == nil && now.Sub(info.ModTime()) > noteEvery {
		_ = os.Chtimes(name, now, now)
	}
}

// Unused reports whether the complete directory dir has not been used for a long time. since is
// the time when dir was last used.
func (m Marker) Unused(dir string) (since time.Time, unused bool) {
	info, err := os.Stat(filepath.Join(dir, string(m)))
	if err != nil {
		return time.Time{}, false
	}
	return info.ModTime(), time.Since(info.ModTime()) > keptUnused
}

// Make creates dir. fill writes the content of dir to the directory made, and temporary files
// to the directory scratch. All users can read and execute the content, because sandboxes run
// as other users. works returns an error if a directory cannot be used.
//
// If dir already works, for example because another process was faster, Make keeps it. Otherwise,
// Make replaces it. Make treats all other directories in the parent of dir as other versions or as
// incomplete directories, and removes the unused directories. Make reports to progress the names of
// the directories that it replaces or removes. Any number of processes may call Make at the same
// time.
func (m Marker) Make(dir string, progress io.Writer, works func(dir string) error, fill func(made, scratch string) error) error {
	m.removeUnused(filepath.Dir(dir), progress)
	temporary, err := os.MkdirTemp(filepath.Dir(dir), making)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temporary) }() // if this fails, a later Make removes the directory
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
		return fmt.Errorf("the new directory: %w", err)
	}
	err = os.Rename(made, dir)
	if err == nil || works(dir) == nil { // another process was faster
		return nil
	}
	return replace(dir, made, filepath.Join(temporary, "damaged"), progress, works)
}

// replace renames the damaged directory dir to away, and then renames made to dir. It holds a lock,
// so that it cannot move away a directory that another process has just renamed to dir.
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

// openToAll makes all files below dir readable and executable by all users, whatever the umask.
func openToAll(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chmod(path, 0o755))
	})
}

// removeUnused removes from cache the versions that have not been used for a long time, and
// incomplete directories of setups that were killed. It ignores errors, because a directory that
// cannot be removed only uses disk space.
func (m Marker) removeUnused(cache string, progress io.Writer) {
	entries, _ := os.ReadDir(cache) // if the cache cannot be read, nothing is removed
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
