package store

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestNames calls each method that takes a name with each kind of name. A refused name creates no
// file, wherever it leads.
func TestNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "state"))
	for _, tt := range []struct {
		table Table
		id    string
		fits  bool
	}{
		{Keys, "a", true},
		{Keys, "A-z_09", true},
		{Keys, strings.Repeat("a", 127), true},
		{Keys, strings.Repeat("a", 128), true},
		{Keys, strings.Repeat("a", 129), false},
		{Keys, "", false},
		{Keys, ".", false},
		{Keys, "a.b", false},
		{Keys, "a/b", false},
		{Keys, "/../../../outside", false},
		{Keys, "a\x00", false},
		{Keys, "é", false},
		{"", "a", false},
		{"others", "a", false},
		{about, "seed", false},
	} {
		_, put := s.Put(tt.table, tt.id, []byte("1"), "")
		gone := s.Delete(tt.table, tt.id)
		s.Note(tt.table, tt.id, []byte("1"))
		if (put == nil) != tt.fits || (gone == nil) != tt.fits {
			t.Errorf("%q in %q: got %v and %v, want it to be allowed: %v", tt.id, tt.table, put, gone, tt.fits)
		}
		if err := s.Delete(tt.table, tt.id); (err == nil) != tt.fits {
			t.Errorf("%q in %q: got %v, want it to be allowed: %v", tt.id, tt.table, err, tt.fits)
		}
		if notes, err := os.ReadDir(s.path(noted)); err != nil || len(notes) > 0 {
			t.Errorf("%q in %q: left the notes %v (%v)", tt.id, tt.table, notes, err)
		}
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("got %v (%v), want nothing beside the state directory", all, err)
	}
}

// TestForeignDirectories checks that Put and Discard accept only directories from NewDir.
func TestForeignDirectories(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	kept := put(t, s, Sandboxes, "kept", "", fill(t, s, "kept"))
	outside := t.TempDir()
	deep := filepath.Join(fill(t, s, "new"), "deep")
	for _, dir := range []string{outside, kept, deep, s.path(staging), s.dir} {
		if err := s.Discard(dir); err == nil {
			t.Errorf("%s was discarded", dir)
		}
		if _, err := s.Put(Sandboxes, "a", nil, dir); err == nil {
			t.Errorf("%s became the directory of a record", dir)
		}
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("%s: %v, want it to stay", dir, err)
		}
	}
	wantRecords(t, s, Sandboxes, Record{ID: "kept", Value: []byte{}, Dir: kept})
}

// TestRecordsThatAreNone decodes text that no store writes as a record.
func TestRecordsThatAreNone(t *testing.T) {
	t.Parallel()
	s := &Store{dir: "/state"}
	for _, text := range []string{"", "{}", "{\n", "[]\n", `{"dir":"b.X"}` + "\n", `{"dir":"a.X/../b.X"}` + "\n", `{"dir":"ab.X"}` + "\n"} {
		if got, err := s.decode("a", []byte(text)); !errors.Is(err, errRecord) {
			t.Errorf("%q: got %v and error %v, want the record to be damaged", text, got, err)
		}
	}
}

// TestValuesAreNotShared changes values that a store has returned. The stored values must not
// change.
func TestValuesAreNotShared(t *testing.T) {
	t.Parallel()
	lasting := open(t, t.TempDir())
	lasting.notes = []string{"note"}
	for _, s := range []*Store{lasting, Temporary(filepath.Join(t.TempDir(), "state"))} {
		value := []byte("value")
		if _, err := s.Put(Keys, "a", value, ""); err != nil {
			t.Fatal(err)
		}
		seed := bytes.Clone(s.Seed())
		clear(value)
		clear(s.Seed())
		clear(s.Notes())
		all, err := s.Records(Keys)
		must.Do(t, err)
		clear(all[0].Value)
		wantRecords(t, s, Keys, Record{ID: "a", Value: []byte("value")})
		if !bytes.Equal(seed, s.Seed()) {
			t.Error("who has the seed of a store can change it")
		}
	}
	if got := lasting.Notes(); got[0] != "note" {
		t.Errorf("the notes were changed to %q", got)
	}
}

// TestSeedsDiffer checks that different stores have different seeds.
func TestSeedsDiffer(t *testing.T) {
	t.Parallel()
	seeds := map[string]bool{}
	for range 2 {
		seeds[string(open(t, t.TempDir()).Seed())] = true
		seeds[string(Temporary(t.TempDir()).Seed())] = true
	}
	if len(seeds) != 4 {
		t.Errorf("4 stores have %d different seeds", len(seeds))
	}
}

// TestOthersReadNothing checks the mode of everything in a state directory.
func TestOthersReadNothing(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("files have no modes")
	}
	s := open(t, filepath.Join(t.TempDir(), "state"))
	put(t, s, Keys, "a", "secret", "")
	s.Note(Running, "a", []byte("secret"))
	if _, err := s.NewDir(); err != nil {
		t.Fatal(err)
	}
	if err := filepath.WalkDir(s.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := entry.Info(); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: got mode %v (%v), want it to be this user's alone", path, info.Mode(), err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestRelativePath checks that a store with a relative path keeps its directory when the process
// changes its current directory.
func TestRelativePath(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	s := open(t, "state")
	got := put(t, s, Sandboxes, "a", "", fill(t, s, "text"))
	if !filepath.IsAbs(got) {
		t.Errorf("got %s, want an absolute path", got)
	}
	gone := filepath.Join(dir, "gone")
	must.Do(t, os.Mkdir(gone, 0o700))
	t.Chdir(gone)
	if err := os.Remove(gone); err != nil {
		return // this system does not remove the current directory
	}
	if _, err := Open(t.Context(), "state"); err == nil || !strings.HasPrefix(err.Error(), "store: ") {
		t.Errorf("in a directory that is gone: got %v, want an error of the path", err)
	}
}

// TestUnfinishedDatabase checks that a database whose creation was interrupted is created again.
func TestUnfinishedDatabase(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "garbage", strings.Repeat("garbage", 10_000)} {
		dir := t.TempDir()
		must.Do(t, os.WriteFile(filepath.Join(dir, unfinished), []byte(text), 0o600))
		s := open(t, dir)
		put(t, s, Keys, "a", "1", "")
		if _, err := os.Lstat(s.path(unfinished)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("of %d bytes: got %v, want nothing of it to be left", len(text), err)
		}
	}
}

// TestDatabaseOpenElsewhere checks that the wait for a database that another program has open is
// limited, and that the error does not report damage.
func TestDatabaseOpenElsewhere(t *testing.T) {
	t.Parallel()
	dir, path := used(t)
	base, err := bolt.Open(path, 0o600, nil)
	must.Do(t, err)
	_, err = Open(t.Context(), dir)
	if err == nil || !strings.Contains(err.Error(), "another program has the database open") || errors.Is(err, errDamaged) {
		t.Errorf("got error %v, want one that says that another program has it open", err)
	}
	if err := base.Close(); err != nil {
		t.Error(err)
	}
	open(t, dir)
}

// TestForeignNotes checks that other files are not read as notes, and that an unreadable note is an
// error.
func TestForeignNotes(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	s.Note(Running, "a", []byte("1"))
	for _, name := range []string{"running", "running.", "running.a~", "running.a.b", "others.a", "keys.c"} {
		must.Do(t, os.WriteFile(filepath.Join(s.path(noted), name), []byte("{}\nother"), 0o600))
	}
	wantRecords(t, s, Running, Record{ID: "a", Value: []byte("1")})
	must.Do(t, os.Mkdir(s.records.(*database).notePath(Running, "b"), 0o700))
	all, err := s.Records(Running)
	if err == nil || len(all) != 1 {
		t.Errorf("got %v and error %v, want the readable note, and the error of the other one", all, err)
	}
	must.Do(t, os.Rename(s.path(noted), s.path("moved")))
	if all, err := s.Records(Running); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the directory of notes: got %v and error %v, want %v", all, err, fs.ErrNotExist)
	}
	must.Do(t, os.Rename(s.path("moved"), s.path(noted)))
}

// TestSweepTells checks that Open reports missing files, and that it ends when it is cancelled.
func TestSweepTells(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	lost := put(t, s, Sandboxes, "a", "", fill(t, s, "lost"))
	left := fill(t, s, "of no record")
	must.Do(t, errors.Join(s.Close(), os.RemoveAll(lost)))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ended, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: got %v", err)
	}
	if _, err := os.Stat(left); err != nil {
		t.Errorf("with an ended context: %v, want nothing to be removed", err)
	}
	must.Do(t, os.Mkdir(filepath.Join(dir, trash, "left"), 0o700))
	s = open(t, dir)
	wantFiles(t, s)
	if notes := strings.Join(s.Notes(), "; "); !strings.Contains(notes, "files of a record are gone") || !strings.Contains(notes, lost) {
		t.Errorf("got notes %q, want one about %s", notes, lost)
	}
}

// TestSurveyOfForeignNames checks that names that no store creates are left out. If a directory is
// being replaced, its size counts together with the size of the new directory.
func TestSurveyOfForeignNames(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	put(t, s, Sandboxes, "a", "", fill(t, s, "text"))
	once, err := Survey(t.Context(), s.dir, Sandboxes)
	if err != nil || len(once) != 1 {
		t.Fatalf("got %v and error %v, want one", once, err)
	}
	for _, name := range []string{".X", "lost+found", "a b.X", "a.other"} {
		must.Do(t, os.Mkdir(filepath.Join(s.path(published), name), 0o700))
	}
	must.Do(t, os.WriteFile(filepath.Join(s.path(published), "a.other", "file"), make([]byte, 1<<20), 0o600))
	both, err := Survey(t.Context(), s.dir, Sandboxes)
	if err != nil || len(both) != 1 || both[0].ID != "a" {
		t.Fatalf("got %v and error %v, want only a", both, err)
	}
	if more := both[0].Bytes - once[0].Bytes; more < 1<<20 {
		t.Errorf("got %d bytes more, want at least those of the other directory", more)
	}
}

// TestUsage checks that a directory is measured only once, for any number of calls of Usage.
func TestUsage(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	dir := put(t, s, Layers, "a", "", fill(t, s, "text"))
	put(t, s, Layers, "none", "", "")
	first, err := s.Usage(t.Context(), Layers)
	if err != nil || len(first) != 1 || first["a"] == 0 {
		t.Fatalf("got %v and error %v, want what a takes", first, err)
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, "large"), make([]byte, 1<<20), 0o600))
	again, err := s.Usage(t.Context(), Layers)
	if err != nil || again["a"] != first["a"] {
		t.Errorf("got %v and error %v, want %v as before", again, err, first)
	}
	put(t, s, Layers, "new", "", fill(t, s, "text"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := s.Usage(ended, Layers); !errors.Is(err, context.Canceled) || got != nil {
		t.Errorf("with an ended context: got %v and error %v", got, err)
	}
	if all, err := s.Usage(t.Context(), Layers); err != nil || all["new"] < first["a"] {
		t.Errorf("got %v and error %v, want the whole size of the new one", all, err)
	}
	must.Do(t, errors.Join(s.Delete(Layers, "new"), s.Delete(Layers, "a")))
	if len(s.sizes) != 0 {
		t.Errorf("after it was deleted the sizes are %v", s.sizes)
	}
}
