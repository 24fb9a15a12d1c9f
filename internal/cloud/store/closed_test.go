package store

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestCloseWaits checks that no goroutine removes files once the store is closed.
func TestCloseWaits(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	dir := fill(t, s, "text")
	for n := range 300 {
		must.Do(t, os.Mkdir(filepath.Join(dir, strconv.Itoa(n)), 0o700))
	}
	put(t, s, Sandboxes, "a", "", dir)
	must.Do(t, s.Delete(Sandboxes, "a"))
	must.Do(t, s.Close())
	s.leaving.mu.Lock()
	defer s.leaving.mu.Unlock()
	if len(s.leaving.each) > 0 {
		t.Errorf("%d directories are still being removed", len(s.leaving.each))
	}
}

// TestSavedWithFiles checks that a record with files has the time at which they were saved, and
// that a record without files has no time.
func TestSavedWithFiles(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	dir := put(t, s, Sandboxes, "a", "1", fill(t, s, "text"))
	first, err := s.find(Sandboxes, "a")
	must.Do(t, err)
	put(t, s, Sandboxes, "a", "2", dir)
	if again, err := s.find(Sandboxes, "a"); err != nil || first.Saved.IsZero() || !again.Saved.Equal(first.Saved) {
		t.Errorf("with the same files: got %v and error %v, want %v", again.Saved, err, first.Saved)
	}
	put(t, s, Sandboxes, "a", "3", "")
	if without, err := s.find(Sandboxes, "a"); err != nil || !without.Saved.IsZero() || without.Dir != "" {
		t.Errorf("without files: got %+v and error %v, want no time", without, err)
	}
}

// TestNoteThatStays checks that a record whose note cannot be removed does not count as deleted.
func TestNoteThatStays(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	put(t, s, Running, "a", "1", "")
	note := filepath.Join(s.path(noted), noteName(Running, "a"))
	must.Do(t, os.MkdirAll(filepath.Join(note, "in"), 0o700))
	if err := s.Delete(Running, "a"); err == nil {
		t.Error("got no error, want one of the note")
	}
	must.Do(t, os.RemoveAll(note))
	wantRecords(t, s, Running, Record{ID: "a", Value: []byte("1")})
}

// TestCloseTells checks that Close returns the errors of its parts, and that each part is done once.
func TestCloseTells(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	lasting := open(t, t.TempDir())
	release := lasting.release
	lasting.release = func() error { return errors.Join(release(), broken) }
	unclosed := open(t, t.TempDir())
	must.Do(t, unclosed.records.(*database).file.Close())
	short := Temporary(filepath.Join(t.TempDir(), "state"))
	fill(t, short, "text")
	short.Before(func(Change) error { return broken })
	for what, tt := range map[string]struct {
		s    *Store
		want string
	}{"the lock": {lasting, "broken"}, "the database": {unclosed, ""}, "the files": {short, "broken"}} {
		if err := tt.s.Close(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", what, err, tt.want)
		}
		if err := tt.s.Close(); err != nil {
			t.Errorf("%s, closed again: %v", what, err)
		}
	}
}

// errUnread is the error of a database that cannot be read.
var errUnread = errors.New("cannot be read")

type unread struct{ records }

func (unread) get(Table, string) ([]byte, error) { return nil, errUnread }

// TestUnreadDatabase checks that a record is neither replaced nor deleted if its directory is not known,
// because the directory would stay.
func TestUnreadDatabase(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	put(t, s, Sandboxes, "a", "1", "")
	readable := s.records
	s.records = unread{readable}
	if _, err := s.Put(Sandboxes, "a", []byte("2"), ""); !errors.Is(err, errUnread) {
		t.Errorf("put: got error %v, want %v", err, errUnread)
	}
	if err := s.Delete(Sandboxes, "a"); !errors.Is(err, errUnread) {
		t.Errorf("delete: got error %v, want %v", err, errUnread)
	}
	s.records = readable
	wantRecords(t, s, Sandboxes, Record{ID: "a", Value: []byte("1")})
}

// TestClosedDatabase checks that each method of a database that cannot be read returns an error.
func TestClosedDatabase(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	s.Note(Keys, "noted", nil)
	d := s.records.(*database)
	must.Do(t, d.bolt.Close())
	for what, do := range map[string]func() error{
		"seed":    func() error { _, err := d.seed(); return err },
		"get":     func() error { _, err := d.get(Keys, "a"); return err },
		"put":     func() error { return d.put(Keys, "a", nil) },
		"delete":  func() error { return d.delete(Keys, "a") },
		"each":    func() error { return d.each(Keys, func(string, []byte) {}) },
		"migrate": func() error { return d.migrate(migrations) },
		"Records": func() error { _, err := s.Records(Keys); return err },
		"Put":     func() error { _, err := s.Put(Keys, "a", nil, ""); return err },
		"Delete":  func() error { return s.Delete(Keys, "a") },
	} {
		if err := do(); !errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
			t.Errorf("%s: got %v, want %v", what, err, bolterrors.ErrDatabaseNotOpen)
		}
	}
}

// TestNothingToDelete checks that the deletion of a record that does not exist does not wait for the disk.
func TestNothingToDelete(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	state := func() (id int) {
		must.Do(t, s.records.(*database).view(func(tx *bolt.Tx) error { id = tx.ID(); return nil }))
		return id
	}
	was := state()
	must.Do(t, s.Delete(Keys, "a"))
	if is := state(); is != was {
		t.Errorf("the database has the state %d, want %d as before", is, was)
	}
}

// TestRemovesAsItCloses checks that a temporary store removes files while it is being closed, and that a
// closed store moves no files.
func TestRemovesAsItCloses(t *testing.T) {
	t.Parallel()
	s := Temporary(filepath.Join(t.TempDir(), "state"))
	dir := fill(t, s, "text")
	s.closing.Store(true)
	must.Do(t, s.remove(dir))
	wantFiles(t, s)
	must.Do(t, s.Close())
	if err := Temporary(filepath.Join(t.TempDir(), "state")).Close(); err != nil {
		t.Errorf("without any directory: %v", err)
	}

	lasting := open(t, t.TempDir())
	kept := put(t, lasting, Sandboxes, "a", "", fill(t, lasting, "text"))
	must.Do(t, lasting.Close())
	lasting.drop(kept)
	wantFiles(t, lasting, kept)
}
