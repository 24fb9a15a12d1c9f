//go:build unix

package localcloud

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/privatedir"
)

// TestRecordThatCannotBeWritten checks that a record with a time that JSON does not have is an error, and is not written.
func TestRecordThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	place := Place{dir: t.TempDir()}
	if err := place.Publish(Record{Since: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}); err == nil {
		t.Error("the year 10000 was written")
	}
	if entries, err := os.ReadDir(place.dir); err != nil || len(entries) > 0 {
		t.Errorf("got %v and error %v, want an empty directory", entries, err)
	}
}

// TestPlaceWithoutALock checks that every function reports that the lock of a place cannot be opened.
func TestPlaceWithoutALock(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
	good, err := Find()
	must.Do(t, err)
	own := good.beside("/state")
	must.Do(t, os.MkdirAll(filepath.Join(own.dir, "cloud.lock"), 0o700))
	for what, err := range map[string]error{
		"FindFor": second(FindFor("/state")), "FindFree": second(FindFree(t.Context(), "/state")), "Beside": second(good.Beside()),
		"Running": second(Running()), "choose": second(choose(good, own)), "choose own": second(choose(own, good)),
	} {
		if !errors.Is(err, syscall.EISDIR) {
			t.Errorf("%s with a bad place beside: got error %v, want %v", what, err, syscall.EISDIR)
		}
	}
	must.Do(t, os.Remove(filepath.Join(good.dir, "cloud.lock")))
	must.Do(t, os.Mkdir(filepath.Join(good.dir, "cloud.lock"), 0o700))
	_, _, logErr := LogFile("")
	_, _, backgroundErr := good.Background(t.Context(), Settings{})
	for what, err := range map[string]error{
		"Read": second(good.Read()), "Claim": second(good.Claim()), "End": second(good.End(t.Context())), "waitEnded": good.waitEnded(t.Context(), 0),
		"Find": second(Find()), "FindFor": second(FindFor("")), "FindFor state": second(FindFor("/other")), "FindFree": second(FindFree(t.Context(), "/other")),
		"Running": second(Running()), "LogFile": logErr, "Background": backgroundErr,
	} {
		if !errors.Is(err, syscall.EISDIR) {
			t.Errorf("%s: got error %v, want %v", what, err, syscall.EISDIR)
		}
	}
}

// TestOthers checks that only a place that shares its directory has a note about the other container.
func TestOthers(t *testing.T) {
	t.Parallel()
	place := Place{dir: t.TempDir()}
	if note, err := place.Others(), second(place.Read()); note != "" || err != ErrNone { //nolint:errorlint // without a note
		t.Errorf("got the note %q and error %v, want none and %v alone", note, err, ErrNone)
	}
	place.others = "/shared"
	err := second(place.Read())
	must.Is(t, err, ErrNone)
	if note := place.Others(); !strings.HasPrefix(note, "the local cloud in /shared is another container's") || !strings.HasSuffix(err.Error(), "; "+note) {
		t.Errorf("got the note %q and error %v, want the note in the error", note, err)
	}
}

// TestWaitsForACloud checks how long commands wait for a cloud that starts, and for one that does not end.
func TestWaitsForACloud(t *testing.T) {
	t.Parallel()
	none, place := Place{dir: t.TempDir()}, Place{dir: t.TempDir()}
	startOther(t, place, "LOCALCLOUD_TEST_STAYS=1")
	errStop := errors.New("enough")
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		short, cancel := context.WithTimeoutCause(t.Context(), time.Second, errStop)
		defer cancel()
		must.Is(t, second(none.await(short)), ErrNone)
		must.Do(t, none.waitEnded(short, os.Getpid()))
		if took := time.Since(begun); took != 0 {
			t.Errorf("without a cloud it took %v, want no wait", took)
		}
		conflict, ok := errors.AsType[*ConflictError](second(place.await(t.Context())))
		if took := time.Since(begun); !ok || *conflict != (ConflictError{}) || took != startWait {
			t.Errorf("a cloud that starts: got %v after %v, want a conflict after %v", conflict, took, startWait)
		}
		<-short.Done()
		must.Is(t, second(place.await(short)), errStop)
		begun = time.Now()
		found, err := place.End(t.Context())
		if took := time.Since(begun); !found || !errors.Is(err, context.DeadlineExceeded) || took != endWait {
			t.Errorf("the end: found %v, got %v after %v, want a deadline after %v", found, err, took, endWait)
		}
	})
}

// TestFindAmongTwo checks that a local cloud in the directory for temporary files is found, unless there is one at the
// usual place, and that the usual place is found if the directory for temporary files is not usable.
func TestFindAmongTwo(t *testing.T) {
	runtime, tmp := t.TempDir(), t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", runtime)
	t.Setenv("TMPDIR", tmp)
	usual, err := Find()
	must.Do(t, err)
	own, err := findIn(privatedir.Temporary)
	must.Do(t, err)
	if want := (Place{dir: filepath.Join(runtime, "e2bctl", "local")}); usual != want || filepath.Dir(filepath.Dir(own.dir)) != tmp {
		t.Fatalf("got %v and %v, want %v and a place in %s", usual, own, want, tmp)
	}
	for _, place := range []Place{own, usual} { // the second has precedence
		startOther(t, place)
		if got, err := Find(); err != nil || got != place {
			t.Errorf("got %v and error %v, want %v", got, err, place)
		}
	}
}

// TestFindWithoutDirectories checks that Find needs no directory for temporary files, and that every function reports that
// there is no directory at all.
func TestFindWithoutDirectories(t *testing.T) {
	runtime, here := t.TempDir(), t.TempDir()
	t.Chdir(here)
	t.Setenv("XDG_RUNTIME_DIR", runtime)
	t.Setenv("TMPDIR", filepath.Join(here, "none"))
	if got, err := Find(); err != nil || got.dir != filepath.Join(runtime, "e2bctl", "local") {
		t.Errorf("got %v and error %v, want the place in %s", got, err, runtime)
	}
	t.Setenv("XDG_RUNTIME_DIR", "")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	_, _, logErr := LogFile("")
	for what, err := range map[string]error{
		"Find": second(Find()), "FindFor": second(FindFor("/state")), "FindFree": second(FindFree(t.Context(), "/state")), "Running": second(Running()), "LogFile": logErr,
	} {
		if err == nil || !strings.HasPrefix(err.Error(), "the address and key of a local cloud: no directory can be made: ") {
			t.Errorf("%s: got error %v, want that no directory can be made", what, err)
		}
	}
	if entries, err := os.ReadDir(here); err != nil || len(entries) > 0 {
		t.Errorf("got %v and error %v, want nothing in the current directory", entries, err)
	}
}

// TestLastingDirectories checks the directories for the state and for the authorities, and the errors of others.
func TestLastingDirectories(t *testing.T) {
	state, runtime, file := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	for name, directory := range map[string]func() (string, string, error){"cloud": StateDir, "tls": AuthorityDir} {
		t.Setenv("XDG_STATE_HOME", state)
		t.Setenv("XDG_RUNTIME_DIR", runtime)
		if dir, note, err := directory(); err != nil || dir != filepath.Join(state, "e2bctl", name) || note != "" {
			t.Errorf("got %q, note %q and error %v, want %s in %s", dir, note, err, name, state)
		}
		t.Setenv("XDG_STATE_HOME", file)
		if dir, note, err := directory(); err != nil || dir != filepath.Join(runtime, "e2bctl", name) || !strings.Contains(note, "XDG_STATE_HOME") {
			t.Errorf("got %q, note %q and error %v, want %s in %s and a note", dir, note, err, name, runtime)
		}
		t.Setenv("XDG_RUNTIME_DIR", "")
		t.Setenv("TMPDIR", file)
		if dir, note, err := directory(); dir != "" || note != "" || err == nil || !strings.Contains(err.Error(), " of a local cloud: no directory can be made: ") {
			t.Errorf("%s: got %q, note %q and error %v, want an error that says what it is for", name, dir, note, err)
		}
	}
}
