package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"

	"github.com/e2bctl/e2bctl/internal/must"
)

// used returns the directory of a store that was closed, and the path of its database.
func used(t *testing.T) (dir, path string) {
	t.Helper()
	dir = t.TempDir()
	s := open(t, dir)
	err := s.records.(*database).update(func(tx *bolt.Tx) error {
		for n := range 300 { // more than a page
			text := entry{value: bytes.Repeat([]byte("x"), 100)}.encode()
			if err := tx.Bucket([]byte(Keys)).Put(fmt.Appendf(nil, "k%03d", n), text); err != nil {
				return err
			}
		}
		return nil
	})
	must.Do(t, err)
	put(t, s, Sandboxes, "a", "1", fill(t, s, "of a"))
	must.Do(t, s.Close())
	return dir, filepath.Join(dir, databaseFile)
}

// change replaces the contents of a file by the result of how.
func change(t *testing.T, path string, how func(text []byte) []byte) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, how(text), 0o600)
	}
	must.Do(t, err)
}

// TestDamaged checks that a damaged store is refused, and is not changed.
func TestDamaged(t *testing.T) {
	t.Parallel()
	truncate := func(size int) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			change(t, path, func(text []byte) []byte { return text[:min(size, len(text))] })
		}
	}
	garbage := func(from, to int) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			change(t, path, func(text []byte) []byte {
				to := min(to, len(text))
				copy(text[from:to], bytes.Repeat([]byte{0xa5}, to-from))
				return text
			})
		}
	}
	inBolt := func(do func(*bolt.Tx) error) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			base, err := bolt.Open(path, 0o600, nil)
			if err == nil {
				err = errors.Join(base.Update(do), base.Close())
			}
			must.Do(t, err)
		}
	}
	about := []byte(about)
	for name, tt := range map[string]struct {
		damage func(t *testing.T, path string)
		want   string
	}{
		"empty":           {truncate(0), errDamaged.Error()},
		"one byte":        {truncate(1), errDamaged.Error()},
		"one page":        {truncate(os.Getpagesize()), errDamaged.Error()},
		"two pages":       {truncate(2 * os.Getpagesize()), errDamaged.Error()},
		"four pages":      {truncate(4 * os.Getpagesize()), errDamaged.Error()},
		"text":            {func(t *testing.T, path string) { change(t, path, func([]byte) []byte { return []byte("hello") }) }, errDamaged.Error()},
		"garbage":         {garbage(0, 1<<30), errDamaged.Error()},
		"garbage in data": {garbage(2*os.Getpagesize(), 1<<30), errDamaged.Error()},
		"directory": {func(t *testing.T, path string) {
			must.Do(t, errors.Join(os.Remove(path), os.Mkdir(path, 0o700)))
		}, "is a directory"},
		"missing":       {func(t *testing.T, path string) { _ = os.Remove(path) }, errDamaged.Error()},
		"no seed":       {inBolt(func(tx *bolt.Tx) error { return tx.Bucket(about).Delete(seedKey) }), errDamaged.Error()},
		"no table":      {inBolt(func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte(Keys)) }), errDamaged.Error()},
		"newer":         {inBolt(func(tx *bolt.Tx) error { return tx.Bucket(about).Put(schemaKey, []byte("7")) }), fmt.Sprintf("version 7 of the schema; this one knows %d", len(migrations))},
		"schema 0":      {inBolt(func(tx *bolt.Tx) error { return tx.Bucket(about).Put(schemaKey, []byte("0")) }), errDamaged.Error()},
		"old schema":    {inBolt(func(tx *bolt.Tx) error { return tx.Bucket(about).Put(schemaKey, []byte("1")) }), "already exists"},
		"wrong schema":  {inBolt(func(tx *bolt.Tx) error { return tx.Bucket(about).Put(schemaKey, []byte("x")) }), errDamaged.Error()},
		"other program": {inBolt(func(tx *bolt.Tx) error { return tx.DeleteBucket(about) }), "another program"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, path := used(t)
			tt.damage(t, path)
			before, _ := os.ReadFile(path)
			for range 2 { // no lock is left behind
				_, err := Open(t.Context(), dir)
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Fatalf("got error %v, want %q in it", err, tt.want)
				}
				if name == "directory" && errors.Is(err, errDamaged) {
					t.Errorf("got %v, want nothing that says it is damaged", err)
				}
				if _, ok := errors.AsType[*InUseError](err); ok {
					t.Errorf("got %v, want no lock to be left", err)
				}
				wantClosed(t, dir)
			}
			if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
				t.Error("the damaged database was changed, want it to stay as it is")
			}
			if files, _ := filepath.Glob(filepath.Join(dir, published, "a.*", "text")); len(files) != 1 {
				t.Errorf("got files %q, want those of the record to stay", files)
			}
		})
	}
}

// TestTornWrite checks that a power failure in the middle of the last write loses no earlier write.
func TestTornWrite(t *testing.T) {
	t.Parallel()
	for page := range 2 { // each has the newest state in turn
		dir, path := used(t)
		change(t, path, func(text []byte) []byte {
			size := os.Getpagesize()
			copy(text[page*size+40:(page+1)*size], make([]byte, size))
			return text
		})
		s := open(t, dir)
		all, err := s.Records(Keys)
		if err != nil || len(all) != 300 {
			t.Errorf("page %d: got %d records and error %v, want 300", page, len(all), err)
		}
	}
}

// TestDamagedRecord checks that an unreadable record hides no other record, and that no directory
// that it may name is removed.
func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	kept := put(t, s, Sandboxes, "a", "1", fill(t, s, "of a"))
	lost := put(t, s, Sandboxes, "b", "2", fill(t, s, "of b"))
	must.Do(t, s.records.put(Sandboxes, "b", []byte("{")))
	must.Do(t, s.Close())
	s = open(t, dir)
	got, err := s.Records(Sandboxes)
	if err == nil || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("got error %v, want b in it", err)
	}
	if diff := cmp.Diff([]string{kept}, []string{got[0].Dir}); diff != "" {
		t.Errorf("the other record (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(filepath.Join(lost, "text")); err != nil {
		t.Errorf("got %v, want the files of the damaged record to stay", err)
	}
	if notes := strings.Join(s.Notes(), "; "); !strings.Contains(notes, `"b"`) {
		t.Errorf("got notes %q, want one about b", notes)
	}
	if _, err := s.Put(Sandboxes, "b", nil, ""); err == nil {
		t.Error("the damaged record was replaced")
	}
	must.Do(t, errors.Join(s.Delete(Sandboxes, "b"), s.Close()))
	s = open(t, dir)
	wantFiles(t, s, kept)
	if notes := strings.Join(s.Notes(), "; "); strings.Contains(notes, "record") {
		t.Errorf("without the damaged record: got notes %q, want none about records", notes)
	}
}

func TestMigration(t *testing.T) {
	t.Parallel()
	dir, path := used(t)
	steps := append(migrations[:len(migrations):len(migrations)], func(tx *bolt.Tx) error {
		_, err := tx.CreateBucket([]byte("snapshots"))
		return err
	})
	d := &database{dir: dir}
	must.Do(t, d.open(path))
	for range 2 { // the second time there is nothing to do
		must.Do(t, d.migrate(steps))
	}
	must.Do(t, d.close())
	if _, err := Open(t.Context(), dir); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("a newer e2bctl wrote it (version %d", len(steps))) {
		t.Errorf("got error %v, want the older program to be refused", err)
	}
}

// TestFirstVersion checks that this version can read the records of the first version.
func TestFirstVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := &database{dir: dir}
	must.Do(t, d.open(filepath.Join(dir, databaseFile)))
	must.Do(t, d.update(func(tx *bolt.Tx) error {
		err := tx.Bucket([]byte(about)).Put(schemaKey, []byte("1"))
		for _, table := range tables[3:] { // the first version had three
			err = errors.Join(err, tx.DeleteBucket([]byte(table)))
		}
		return err
	}))
	must.Do(t, errors.Join(d.put(Keys, "a", entry{value: []byte("text")}.encode()), d.close()))
	s := open(t, dir)
	put(t, s, Layers, "layer-a", "", fill(t, s, "text"))
	if keys, err := s.Records(Keys); err != nil || len(keys) != 1 || string(keys[0].Value) != "text" {
		t.Errorf("got %v and error %v, want the record of the first version", keys, err)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add("a", []byte("{}\nvalue"))
	f.Add("a", []byte(`{"dir":"a.X","saved":"2026-11-22T10:00:00Z"}`+"\n"))
	f.Add("a", []byte(`{"dir":"a./../../b"}`+"\n"))
	f.Fuzz(func(t *testing.T, id string, text []byte) {
		s := &Store{dir: "/state"}
		record, err := s.decode(id, text)
		if err != nil || record.Dir == "" {
			return
		}
		if parent := filepath.Dir(record.Dir); parent != s.path(published) {
			t.Errorf("got %s, want it to be in %s", record.Dir, s.path(published))
		}
		again := entry{Dir: filepath.Base(record.Dir), Saved: record.Saved, value: record.Value}
		same, err := s.decode(id, again.encode())
		if err != nil || !bytes.Equal(same.Value, record.Value) {
			t.Errorf("encoded again: got %q and error %v, want %q", same.Value, err, record.Value)
		}
	})
}
