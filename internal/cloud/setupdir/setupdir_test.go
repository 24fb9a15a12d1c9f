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
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"

	"github.com/e2bctl/e2bctl/internal/fdtest"
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

// TestUnused checks that Make removes only directories that are neither in use nor being made, even if another process removes
// one of them at the same time.
func TestUnused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // its clock stands still
		cache := t.TempDir()
		const day = 24 * time.Hour
		const old = 30*day + time.Second
		unused := place(t, cache, "1", old)
		used, young := place(t, cache, "2", 31*day), place(t, cache, "3", 30*day)
		place(t, cache, making+"killed", day+time.Second)
		running, removed := place(t, cache, making+"running", day), place(t, cache, making+"removed", 2*day)
		marker.NoteUse(used)
		if since, yes := marker.Unused(used); yes || !since.Equal(time.Now()) {
			t.Errorf("got %v, %v of a directory whose use was noted, want now and false", since, yes)
		}
		dir := filepath.Join(cache, "4")
		progress := &hook{do: func() { must.Do(t, os.RemoveAll(removed)) }}
		must.Do(t, marker.Make(dir, progress, works, fill))
		checkLeft(t, cache, used, young, running, dir)
		want := "removing " + unused + ", unused since " + time.Now().Add(-old).Format(time.DateOnly) + "\n"
		if progress.String() != want {
			t.Errorf("got %q, want %q", progress.String(), want)
		}
	})
}

// hook is a writer that calls a function at each Write.
type hook struct {
	strings.Builder

	do func()
}

func (h *hook) Write(p []byte) (int, error) {
	h.do()
	return h.Builder.Write(p)
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
		failed            string // directory that another one could not become
		want              string // text of the program afterwards
	}{
		"works":            {"whole", "whole", "", "", "whole"},
		"damaged":          {"half", "whole", "", "", "whole"},
		"missing":          {"", "whole", "", "", "whole"},
		"away is occupied": {"half", "whole", "whole", "away", "half"},
		"nothing was made": {"half", "", "", "1", ""},
		"made as damaged":  {"half", "half", "", "", "half"},
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
			err := replace(dir, made, away, &progress, works)
			rename, failed := errors.AsType[*os.LinkError](err)
			if failed != (err != nil) || failed != (tt.failed != "") || failed && filepath.Base(rename.New) != tt.failed {
				t.Errorf("got error %v, want one of the directory %q", err, tt.failed)
			}
			text, _ := os.ReadFile(filepath.Join(dir, string(marker)))
			if string(text) != tt.want || (progress.Len() > 0) != (tt.there != "whole") {
				t.Errorf("got %q and %q, want %q", text, &progress, tt.want)
			}
			if open := fdtest.Open(t, cache); len(open) > 0 {
				t.Fatalf("%q stay open", open)
			}
			unlock, err := lockedfile.MutexAt(filepath.Join(cache, lockName)).Lock()
			must.Do(t, err)
			unlock()
		})
	}
}

// TestReplacedByAnother checks that a directory is replaced only under the lock, and that a rename that fails is no error
// if the directory works by then.
func TestReplacedByAnother(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	dir, away := place(t, cache, "1", 0), filepath.Join(cache, "away")
	lock := filepath.Join(cache, lockName)
	must.Do(t, os.Mkdir(lock, 0o755))
	damaged := func(string) error { return errDamaged }
	var progress strings.Builder
	if err := replace(dir, filepath.Join(cache, "made"), away, &progress, damaged); err == nil || progress.Len() > 0 {
		t.Errorf("got %v and %q, want an error of the lock and no words", err, &progress)
	}
	must.Do(t, errors.Join(works(dir), os.Remove(lock)))
	checks := 0
	must.Do(t, replace(dir, filepath.Join(cache, "made"), away, &progress, func(string) error {
		if checks++; checks == 1 {
			return errDamaged
		}
		return nil
	}))
	must.Do(t, works(away))
}

// TestMakeChecksOnce checks that a new directory is checked before it gets its name, and not again.
func TestMakeChecksOnce(t *testing.T) {
	t.Parallel()
	var checked []string
	must.Do(t, marker.Make(filepath.Join(t.TempDir(), "1"), &strings.Builder{}, func(dir string) error {
		checked = append(checked, filepath.Base(dir))
		return works(dir)
	}, fill))
	if want := []string{"made"}; !slices.Equal(checked, want) {
		t.Errorf("got checks of %q, want %q", checked, want)
	}
}

// TestNoteUse checks that the recorded time changes only after more than a day, and that a missing
// directory is ignored.
func TestNoteUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // its clock stands still
		cache := t.TempDir()
		marker.NoteUse(filepath.Join(cache, "missing"))
		const day = 24 * time.Hour
		for name, tt := range map[string]struct {
			age   time.Duration
			noted bool
		}{
			"1": {day - time.Second, false},
			"2": {day, false},
			"3": {day + time.Second, true},
		} {
			dir := place(t, cache, name, tt.age)
			want := time.Now()
			if !tt.noted {
				want = want.Add(-tt.age)
			}
			marker.NoteUse(dir)
			if got, _ := marker.Unused(dir); !got.Equal(want) {
				t.Errorf("used %v ago: got %v, want %v", tt.age, got, want)
			}
		}
	})
}
