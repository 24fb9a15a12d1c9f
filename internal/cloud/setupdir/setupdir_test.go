package setupdir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"

	"github.com/e2bctl/e2bctl/internal/must"
)

const marker = Marker("program")

var errDamaged = errors.New("damaged")

// works accepts a directory whose program has the expected text.
func works(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, string(marker)))
	if err == nil && string(text) != "whole" {
		err = errDamaged
	}
	return err
}

// fill writes the program that works expects.
func fill(made, _ string) error {
	return os.WriteFile(filepath.Join(made, string(marker)), []byte("whole"), 0o600)
}

// place creates a directory with a program that was last used this long ago.
func place(t *testing.T, cache, name string, age time.Duration) string {
	t.Helper()
	dir := filepath.Join(cache, name)
	then := time.Now().Add(-age)
	program := filepath.Join(dir, string(marker))
	err := errors.Join(os.Mkdir(dir, 0o755), fill(dir, ""), os.Chtimes(program, then, then), os.Chtimes(dir, then, then))
	must.Do(t, err)
	return dir
}

// checkLeft compares the names in a cache with the wanted ones.
func checkLeft(t *testing.T, cache string, want ...string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(cache, "*"))
	slices.Sort(want)
	if err != nil || !slices.Equal(left, want) {
		t.Errorf("left are %v, %v, want %v", left, err, want)
	}
}

// TestUnused checks that Make removes only directories that are neither in use nor being made.
func TestUnused(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	const day = 24 * time.Hour
	unused := place(t, cache, "1", 31*day)
	used, young := place(t, cache, "2", 31*day), place(t, cache, "3", 29*day)
	place(t, cache, making+"killed", 2*day)
	running := place(t, cache, making+"running", time.Hour)
	marker.NoteUse(used)
	if since, yes := marker.Unused(used); yes || time.Since(since) > day {
		t.Errorf("got %v, %v of a directory whose use was noted, want today and false", since, yes)
	}
	dir := filepath.Join(cache, "4")
	var progress strings.Builder
	must.Do(t, marker.Make(dir, &progress, works, fill))
	checkLeft(t, cache, used, young, running, dir)
	if !strings.Contains(progress.String(), "removing "+unused+", unused since ") || strings.Count(progress.String(), "\n") != 1 {
		t.Errorf("got %q, want that %s is removed, and nothing else", progress.String(), unused)
	}
}

// TestMakeMeanwhile checks two concurrent setups. Neither touches the incomplete directory of the
// other, and the one that finishes later uses the directory of the one that finished first.
func TestMakeMeanwhile(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	dir := filepath.Join(cache, "1")
	var progress strings.Builder
	err := marker.Make(dir, &progress, works, func(made, scratch string) error {
		if err := fill(made, scratch); err != nil {
			return err
		}
		if err := marker.Make(dir, &progress, works, fill); err != nil {
			return err
		}
		return works(made)
	})
	if err != nil || works(dir) != nil || progress.Len() > 0 {
		t.Errorf("got %v and %q, want what one of them made and no words", err, &progress)
	}
	checkLeft(t, cache, dir)

	var all sync.WaitGroup
	other := filepath.Join(cache, "2")
	for range 4 {
		all.Go(func() {
			if err := marker.Make(other, &strings.Builder{}, works, fill); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	checkLeft(t, cache, dir, other)
}

// TestMakeFails checks that a directory that cannot be filled, or that does not work, leaves
// nothing behind and replaces nothing.
func TestMakeFails(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	dir := filepath.Join(cache, "1")
	for _, there := range []bool{false, true} {
		var want []string
		if there {
			want = append(want, place(t, cache, "1", 0))
			must.Do(t, os.Truncate(filepath.Join(dir, string(marker)), 1))
		}
		var progress strings.Builder
		if err := marker.Make(dir, &progress, works, func(made, scratch string) error {
			return errors.Join(fill(made, scratch), fs.ErrPermission)
		}); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("got %v, want the error of fill", err)
		}
		if err := marker.Make(dir, &progress, works, func(made, _ string) error {
			return os.WriteFile(filepath.Join(made, string(marker)), []byte("half"), 0o600)
		}); !errors.Is(err, errDamaged) {
			t.Errorf("got %v, want that what was made does not work", err)
		}
		if err := marker.Make(dir, &progress, works, func(made, _ string) error {
			return os.Remove(made)
		}); !errors.Is(err, fs.ErrNotExist) || strings.Contains(err.Error(), "the new directory") {
			t.Errorf("got %v, want that the modes cannot be set", err)
		}
		checkLeft(t, cache, want...)
	}
}

// TestDamaged checks that a damaged directory is replaced completely and only once, and that all
// users can read the new directory.
func TestDamaged(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	dir := place(t, cache, "1", 0)
	stray := filepath.Join(dir, "stray")
	must.Do(t, errors.Join(os.Truncate(filepath.Join(dir, string(marker)), 1), os.WriteFile(stray, nil, 0o600)))
	var progress strings.Builder
	if err := marker.Make(dir, &progress, works, fill); err != nil || !strings.Contains(progress.String(), "replacing "+dir) {
		t.Errorf("got %v and %q, want that it is replaced", err, &progress)
	}
	before, err := os.Stat(dir)
	must.Do(t, errors.Join(err, marker.Make(dir, &progress, works, fill)))
	if after, err := os.Stat(dir); err != nil || !os.SameFile(before, after) {
		t.Errorf("got another directory, %v, want the one that works", err)
	}
	if err := works(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(stray); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want that the old files are gone", err)
	}
	for _, path := range []string{dir, filepath.Join(dir, string(marker))} {
		if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o755 {
			t.Errorf("%s: got %v, %v, want mode 0755", path, info, err)
		}
	}
	checkLeft(t, cache, dir, filepath.Join(cache, lockName))
}

// TestReplace checks that a directory that works is kept, that a missing one is no error, and that
// each failed step is reported. Afterwards the lock is free.
func TestReplace(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		there, made, away string // "whole" or "half" is the text of a program, "" means nothing
		failed            bool
		want              string // text of the program afterwards
	}{
		"works":            {"whole", "whole", "", false, "whole"},
		"damaged":          {"half", "whole", "", false, "whole"},
		"missing":          {"", "whole", "", false, "whole"},
		"away is occupied": {"half", "whole", "whole", true, "half"},
		"nothing was made": {"half", "", "", true, ""},
		"made as damaged":  {"half", "half", "", false, "half"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cache := t.TempDir()
			write := func(name, text string) string {
				dir := filepath.Join(cache, name)
				if text != "" {
					must.Do(t, errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, string(marker)), []byte(text), 0o600)))
				}
				return dir
			}
			dir, made, away := write("1", tt.there), write("made", tt.made), write("away", tt.away)
			var progress strings.Builder
			if err := replace(dir, made, away, &progress, works); (err != nil) != tt.failed {
				t.Errorf("got error %v, want an error: %v", err, tt.failed)
			}
			text, _ := os.ReadFile(filepath.Join(dir, string(marker)))
			if string(text) != tt.want || (progress.Len() > 0) != (tt.there != "whole") {
				t.Errorf("got %q and %q, want %q", text, &progress, tt.want)
			}
			unlock, err := lockedfile.MutexAt(filepath.Join(cache, lockName)).Lock()
			must.Do(t, err)
			unlock()
		})
	}
}

// TestNoteUse checks that the recorded time changes only after more than a day, and that a missing
// directory is ignored.
func TestNoteUse(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	marker.NoteUse(filepath.Join(cache, "missing"))
	const day = 24 * time.Hour
	for name, tt := range map[string]struct {
		age   time.Duration
		noted bool
	}{
		"1": {day - time.Hour, false},
		"2": {day + time.Minute, true},
	} {
		dir := place(t, cache, name, tt.age)
		before, _ := marker.Unused(dir)
		marker.NoteUse(dir)
		if after, _ := marker.Unused(dir); after.Equal(before) == tt.noted {
			t.Errorf("used %v ago: got %v after %v, want a new time: %v", tt.age, after, before, tt.noted)
		}
	}
}
