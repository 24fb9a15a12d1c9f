package secrets

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
)

func registry(t *testing.T) *Registry {
	t.Helper()
	return New(Options{Store: store.Temporary(t.TempDir()), Key: NewKey()})
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	r := registry(t)
	made, err := r.Create("OpenAI", "sk-1", map[string]string{"team": "a"})
	must.Do(t, err)
	if made.Name != "openai" || made.Version != 1 || len(made.ID) != len("sec_")+26 || !strings.HasPrefix(made.ID, "sec_") {
		t.Errorf("got %+v, want openai, version 1, an id of sec_ and 26 characters", made)
	}
	if _, err := r.Create("openai", "sk-2", nil); !errors.Is(err, ErrExists) {
		t.Errorf("the same name: got %v, want ErrExists", err)
	}
	for _, name := range []string{made.ID, "openai", "OPENAI"} {
		got, err := r.Get(name)
		if diff := cmp.Diff(made, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	changed, err := r.Update("openai", "sk-2", nil)
	if err != nil || changed.Version != 2 || changed.Metadata["team"] != "a" || changed.ID != made.ID {
		t.Errorf("got %+v, %v, want version 2 with the metadata", changed, err)
	}
	if changed, err = r.Update(made.ID, "sk-3", map[string]string{}); err != nil || len(changed.Metadata) > 0 {
		t.Errorf("got %+v, %v, want no metadata", changed, err)
	}
	if got, err := r.Value("OpenAI"); got != "sk-3" || err != nil {
		t.Errorf("got %q, %v, want sk-3", got, err)
	}
	if _, err := r.Create("other", "x", nil); err != nil {
		t.Fatal(err)
	}
	if all := r.Page(nil, 10); len(all) != 2 || all[0].Name != "other" {
		t.Errorf("got %+v, want two, the newest first", all)
	}
	must.Do(t, r.Delete("openai"))
	for what, err := range map[string]error{
		"delete": r.Delete("openai"),
		"get":    second(r.Get("openai")),
		"value":  second(r.Value("openai")),
		"update": second(r.Update("openai", "x", nil)),
	} {
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: got %v, want ErrNotFound", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestSealed checks that the disk contains no value in plain text, and that a sealed value cannot
// be opened without the key or in another record.
func TestSealed(t *testing.T) {
	t.Parallel()
	const value = "sk-very-secret"
	dir, keys := filepath.Join(t.TempDir(), "state"), filepath.Join(t.TempDir())
	inKeys := KeyIn(func() (string, error) { return keys, nil })
	open := func() *store.Store {
		s, err := store.Open(t.Context(), dir)
		must.Do(t, err)
		return s
	}
	s := open()
	r := New(Options{Store: s, Key: inKeys})
	if _, err := os.Stat(filepath.Join(keys, "key")); err == nil {
		t.Error("there is a key before there is a secret")
	}
	a, err := r.Create("a", value, nil)
	must.Do(t, err)
	b, err := r.Create("b", "other", nil)
	must.Do(t, err)
	must.Do(t, s.Close())
	err = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(value)) {
			t.Errorf("%s has the value", path)
		}
		return err
	})
	must.Do(t, err)
	info, err := os.Stat(filepath.Join(keys, "key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key: got %v, %v, want mode 0600", info.Mode(), err)
	}

	s = open()
	if got, err := New(Options{Store: s, Key: inKeys}).Value("a"); got != value || err != nil {
		t.Errorf("after a restart: got %q, %v, want %q", got, err, value)
	}
	another := New(Options{Store: s, Key: NewKey()})
	if _, err := another.Value("a"); !errors.Is(err, ErrSealed) {
		t.Errorf("with another key: got %v, want ErrSealed", err)
	}
	records, err := s.Records(store.Secrets)
	if err != nil || len(records) != 2 {
		t.Fatalf("got %d records, %v, want 2", len(records), err)
	}
	var from, to record
	for _, one := range records {
		target := map[string]*record{a.ID: &from, b.ID: &to}[one.ID]
		must.Do(t, json.Unmarshal(one.Value, target))
	}
	to.Sealed = from.Sealed
	text, err := json.Marshal(to)
	if err == nil {
		_, err = s.Put(store.Secrets, b.ID, text, "")
	}
	must.Do(t, err)
	if _, err := New(Options{Store: s, Key: inKeys}).Value("b"); !errors.Is(err, ErrSealed) {
		t.Errorf("a value in another record: got %v, want ErrSealed", err)
	}
	for _, mode := range []os.FileMode{0o640, 0o620, 0o610, 0o604, 0o602, 0o601} {
		must.Do(t, os.Chmod(filepath.Join(keys, "key"), mode))
		if _, err := New(Options{Store: s, Key: inKeys}).Value("a"); err == nil || !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("a key with mode %o: got %v, want an error that says chmod 600", mode, err)
		}
	}
	must.Do(t, s.Close())
}

// TestDeletedForGood checks that a deleted secret is still deleted after a restart.
func TestDeletedForGood(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	key := NewKey()
	open := func() (*Registry, *store.Store) {
		s, err := store.Open(t.Context(), dir)
		must.Do(t, err)
		return New(Options{Store: s, Key: key}), s
	}
	r, s := open()
	for _, name := range []string{"deleted", "kept"} {
		_, err := r.Create(name, name, nil)
		must.Do(t, err)
	}
	must.Do(t, errors.Join(r.Delete("deleted"), s.Close()))
	r, s = open()
	if got, err := r.Value("deleted"); !errors.Is(err, ErrNotFound) {
		t.Errorf("the deleted one: got %q, %v, want ErrNotFound", got, err)
	}
	if got, err := r.Value("kept"); got != "kept" || err != nil {
		t.Errorf("the other one: got %q, %v", got, err)
	}
	must.Do(t, s.Close())
}

func TestKeyOfTheEnvironment(t *testing.T) {
	t.Parallel()
	if key, err := KeyOf(strings.Repeat("0a", 32))(); err != nil || len(key) != 32 {
		t.Errorf("got %d bytes, %v, want 32", len(key), err)
	}
	for _, text := range []string{"open sesame", strings.Repeat("0", 63), strings.Repeat("zz", 32)} {
		if _, err := KeyOf(text)(); err == nil || !strings.Contains(err.Error(), EnvKey) || strings.Contains(err.Error(), text) {
			t.Errorf("%s: got %v, want an error about %s without it", text, err, EnvKey)
		}
	}
}

// TestIDs checks that an id is a UUID of version 7, which begins with the time.
func TestIDs(t *testing.T) {
	t.Parallel()
	const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
	at := time.UnixMilli(1_700_000_000_123)
	seen := map[string]bool{}
	for range 100 {
		id := newID(at)
		n := new(big.Int)
		for _, c := range strings.TrimPrefix(id, idPrefix) {
			n.Add(n.Lsh(n, 5), big.NewInt(int64(strings.IndexRune(alphabet, c))))
		}
		uuid := n.FillBytes(make([]byte, 16))
		if millis := binary.BigEndian.Uint64(uuid) >> 16; int64(millis) != at.UnixMilli() || uuid[6]>>4 != 7 || uuid[8]>>6 != 2 {
			t.Errorf("%s: got the UUID %x, want version 7, of %x", id, uuid, at.UnixMilli())
		}
		if seen[id] || id >= newID(at.Add(time.Millisecond)) {
			t.Errorf("%s: ids repeat, or do not grow with time", id)
		}
		seen[id] = true
	}
}

// TestSameTime checks that pages have each secret once, even if all were created at the same time.
func TestSameTime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{Store: store.Temporary(dir), Key: NewKey()})
		names := map[string]bool{}
		for _, name := range []string{"a", "b", "c"} {
			_, err := r.Create(name, "v", nil)
			must.Do(t, err)
		}
		for page := r.Page(nil, 1); len(page) == 1; page = r.Page(new(page[0].Position()), 1) {
			if names[page[0].Name] {
				t.Fatalf("%s is there twice", page[0].Name)
			}
			names[page[0].Name] = true
		}
		if len(names) != 3 {
			t.Errorf("got %v, want all three", names)
		}
	})
}

// TestUnusable checks a key of a wrong length, and a store that cannot be read.
func TestUnusable(t *testing.T) {
	t.Parallel()
	s := store.Temporary(t.TempDir())
	short := New(Options{Store: s, Key: func() ([]byte, error) { return []byte("short"), nil }})
	if _, err := short.Create("a", "v", nil); err == nil {
		t.Error("a secret was sealed with a key of 5 bytes")
	}
	must.Do(t, s.Close())
	var log bytes.Buffer
	New(Options{Store: s, Key: NewKey(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "cannot be read") {
		t.Errorf("got the log %q, want a line that they cannot be read", got)
	}
}
