package secrets

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/cloud/store/storetest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// metadata returns metadata with this number of entries and this total number of bytes.
func metadata(entries, bytes int) map[string]string {
	m := map[string]string{}
	for i := range entries {
		key := fmt.Sprintf("%02d", i)
		share := bytes / (entries - i)
		m[key] = strings.Repeat("v", share-len(key))
		bytes -= share
	}
	return m
}

// TestLimits checks that each limit of a secret allows its value and refuses the next one, for a
// new secret and for an update.
func TestLimits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		what, name, value string
		metadata          map[string]string
		want              bool
	}{
		{"a name of 1", "a", "v", nil, true},
		{"a name of 127", strings.Repeat("a", 127), "v", nil, true},
		{"a name of 128", strings.Repeat("A", 128), "v", nil, true},
		{"a name of 129", strings.Repeat("a", 129), "v", nil, false},
		{"no name", "", "v", nil, false},
		{"every letter", "Az09-_", "v", nil, true},
		{"a name like an id", "Sec_a", "v", nil, false},
		{"the beginning of an id", "sec", "v", nil, true},
		{"an id inside", "a-sec_", "v", nil, true},
		{"a name with a space", "a b", "v", nil, false},
		{"a name with another letter", "schlüssel", "v", nil, false},
		{"a value of 1", "a", "v", nil, true},
		{"a value of the limit", "a", strings.Repeat("v", MaxValue), nil, true},
		{"a value of one more", "a", strings.Repeat("v", MaxValue+1), nil, false},
		{"no value", "a", "", nil, false},
		{"a space inside", "a", "Bearer v", nil, true},
		{"a space before", "a", " v", nil, false},
		{"a space behind", "a", "v ", nil, false},
		{"a tab behind", "a", "v\t", nil, false},
		{"a control character", "a", "v\x7fv", nil, false},
		{"a zero byte", "a", "v\x00v", nil, false},
		{"a line break", "a", "line\nbreak", nil, false},
		{"a carriage return", "a", "carriage\rreturn", nil, false},
		{"no metadata", "a", "v", map[string]string{}, true},
		{"32 entries", "a", "v", metadata(32, 100), true},
		{"33 entries", "a", "v", metadata(33, 100), false},
		{"8192 bytes", "a", "v", metadata(32, 8192), true},
		{"8193 bytes", "a", "v", metadata(32, 8193), false},
		{"a key of 1", "a", "v", map[string]string{"k": ""}, true},
		{"a key of 128", "a", "v", map[string]string{strings.Repeat("k", 128): ""}, true},
		{"a key of 129", "a", "v", map[string]string{strings.Repeat("k", 129): ""}, false},
		{"no key", "a", "v", map[string]string{"": "v"}, false},
		{"a text of 1024", "a", "v", map[string]string{"k": strings.Repeat("v", 1024)}, true},
		{"a text of 1025", "a", "v", map[string]string{"k": strings.Repeat("v", 1025)}, false},
	} {
		r := registry(t)
		made, err := r.Create(tt.name, tt.value, tt.metadata)
		if _, invalid := errors.AsType[*InvalidError](err); (err == nil) != tt.want || invalid == tt.want {
			t.Errorf("%s: got error %v, want allowed %v", tt.what, err, tt.want)
		}
		if err != nil && len(tt.value) > 2 && strings.Contains(err.Error(), tt.value) {
			t.Errorf("%s: the error has the value", tt.what)
		}
		if err != nil && len(r.Page(nil, 2)) > 0 {
			t.Errorf("%s: it is there although it was refused", tt.what)
		}
		if err == nil && (!ValidName(tt.name) || made.Name != strings.ToLower(tt.name)) {
			t.Errorf("%s: got the name %q, valid %v, want what was asked for in lower case", tt.what, made.Name, ValidName(tt.name))
		}
		if tt.name != "a" {
			if ValidName(tt.name) != tt.want {
				t.Errorf("%s: got valid %v, want %v", tt.what, !tt.want, tt.want)
			}
			continue
		}
		r = registry(t)
		made, err = r.Create("a", "old", nil)
		must.Do(t, err)
		_, err = r.Update("A", tt.value, tt.metadata)
		if _, invalid := errors.AsType[*InvalidError](err); (err == nil) != tt.want || invalid == tt.want {
			t.Errorf("%s, of one that is there: got error %v, want allowed %v", tt.what, err, tt.want)
		}
		want := "old"
		if tt.want {
			want = tt.value
		}
		if got, err := r.Value("a"); got != want || err != nil {
			t.Errorf("%s, of one that is there: got the value %.20q and error %v afterwards, want %.20q", tt.what, got, err, want)
		}
	}
}

// TestCharactersOfNames checks which characters a name may contain.
func TestCharactersOfNames(t *testing.T) {
	t.Parallel()
	const allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	for c := range 256 {
		char := string([]byte{byte(c)})
		for _, name := range []string{char, "a" + char, char + "a"} {
			if got, want := ValidName(name), strings.Contains(allowed, char); got != want {
				t.Errorf("%q: got valid %v, want %v", name, got, want)
			}
		}
	}
}

// TestMax checks that the number of secrets can reach the limit, but not exceed it.
func TestMax(t *testing.T) {
	t.Parallel()
	r := registry(t)
	for i := range Max - 1 {
		r.byID[fmt.Sprint(i)] = record{}
	}
	if _, err := r.Create("last", "v", nil); err != nil {
		t.Errorf("the last one: got error %v, want none", err)
	}
	if _, err := r.Create("more", "v", nil); !errors.Is(err, ErrTooMany) {
		t.Errorf("one more: got error %v, want ErrTooMany", err)
	}
	if _, err := r.Update("last", "w", nil); err != nil {
		t.Errorf("a change: got error %v, want none", err)
	}
	must.Do(t, r.Delete("last"))
	if _, err := r.Create("more", "v", nil); err != nil {
		t.Errorf("after one was deleted: got error %v, want none", err)
	}
}

// TestKeyFiles checks that an existing key file is used unchanged or refused, but never replaced. A
// missing file is created, without other files beside it.
func TestKeyFiles(t *testing.T) {
	t.Parallel()
	digits := strings.Repeat("0a", keySize)
	for what, tt := range map[string]struct {
		text string
		want bool
	}{
		"right": {digits + "\n", true}, "without an end of line": {digits, true}, "between spaces": {" " + digits + "\r\n", true}, "upper case": {strings.ToUpper(digits), true},
		"a byte less": {digits[2:], false}, "a byte more": {digits + "00", false}, "a digit less": {digits[1:], false}, "no digits": {strings.Repeat("x", 64), false},
		"empty": {"", false}, "half": {digits[:keySize], false}, "twice": {digits + "\n" + digits, false},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "key")
		must.Do(t, os.WriteFile(path, []byte(tt.text), 0o600))
		key, err := KeyIn(func() (string, error) { return dir, nil })()
		taken := err == nil && hex.EncodeToString(key) == digits
		if refused := key == nil && err != nil && strings.Contains(err.Error(), "damaged"); taken != tt.want || refused == tt.want {
			t.Errorf("%s: got %d bytes and error %v, want it taken %v", what, len(key), err, tt.want)
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != tt.text {
			t.Errorf("%s: the file has %q (%v) afterwards, want it as before", what, after, err)
		}
		if tt.want == (what == "right" || what == "upper case") { // the others can only be in files
			if key, err := KeyOf(strings.TrimSpace(tt.text))(); (err == nil) != tt.want || tt.want && len(key) != keySize {
				t.Errorf("%s, of the environment: got %d bytes and error %v, want it taken %v", what, len(key), err, tt.want)
			}
		}
	}
	seen := map[string]bool{string(make([]byte, keySize)): true}
	for range 2 {
		dir := t.TempDir()
		source := KeyIn(func() (string, error) { return dir, nil })
		first, err := source()
		again, errAgain := source()
		if err != nil || errAgain != nil || !bytes.Equal(first, again) || seen[string(first)] {
			t.Errorf("got the key %x and then %x (%v, %v), want one of its own", first, again, err, errAgain)
		}
		seen[string(first)] = true
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 || entries[0].Name() != "key" {
			t.Errorf("got the files %v (%v), want the key alone", entries, err)
		}
		if info, err := os.Stat(filepath.Join(dir, "key")); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("got %v, %v, want a file of mode 0600", info, err)
		}
		key, err := NewKey()()
		if err != nil || len(key) != keySize || seen[string(key)] {
			t.Errorf("got the key %x and error %v, want one of its own", key, err)
		}
		seen[string(key)] = true
	}
	if _, err := KeyIn(func() (string, error) { return "", os.ErrPermission })(); !errors.Is(err, os.ErrPermission) {
		t.Errorf("got error %v, want why there is no directory", err)
	}
	if _, err := KeyIn(func() (string, error) { return filepath.Join(t.TempDir(), "none"), nil })(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got error %v, want that there is no directory", err)
	}
	dir := t.TempDir()
	must.Do(t, os.Mkdir(filepath.Join(dir, "key"), 0o700))
	if key, err := KeyIn(func() (string, error) { return dir, nil })(); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("got %d bytes of a directory and error %v, want %v", len(key), err, syscall.EISDIR)
	}
}

// TestKeyFails checks that nothing is stored, and nothing changes, while the key cannot be read.
func TestKeyFails(t *testing.T) {
	t.Parallel()
	s := store.Temporary(t.TempDir())
	key := NewKey()
	first := New(Options{Store: s, Key: key})
	_, err := first.Create("a", "old", nil)
	must.Do(t, err)
	was := first.Page(nil, 10)
	failed := errors.New("no key")
	r := New(Options{Store: s, Key: func() ([]byte, error) { return nil, failed }})
	must.Is(t, second(r.Create("new", "v", nil)), failed)
	must.Is(t, second(r.Update("a", "new", map[string]string{"k": "v"})), failed)
	must.Is(t, second(r.Value("a")), failed)
	for _, r := range []*Registry{r, New(Options{Store: s, Key: key})} {
		if diff := cmp.Diff(was, r.Page(nil, 10)); diff != "" {
			t.Errorf("secrets (-want +got):\n%s", diff)
		}
	}
	if got, err := New(Options{Store: s, Key: key}).Value("a"); got != "old" || err != nil {
		t.Errorf("got %q and error %v, want %q", got, err, "old")
	}
	must.Do(t, s.Close())
}

// TestDiskFails checks that nothing has changed after a fault of the disk, in this process and
// after a restart.
func TestDiskFails(t *testing.T) {
	t.Parallel()
	for what, do := range map[string]func(r *Registry) error{
		"create": func(r *Registry) error { return second(r.Create("new", "v", nil)) },
		"update": func(r *Registry) error { return second(r.Update("a", "new", map[string]string{"new": ""})) },
		"delete": func(r *Registry) error { return r.Delete("a") },
	} {
		s := store.Temporary(t.TempDir())
		key := NewKey()
		r := New(Options{Store: s, Key: key})
		if _, err := r.Create("a", "old", map[string]string{"k": "v"}); err != nil {
			t.Fatal(err)
		}
		was := r.Page(nil, 10)
		storetest.FailNth(s, 1)
		err := do(r)
		storetest.Mend(s)
		if !errors.Is(err, storetest.ErrFault) {
			t.Errorf("%s: got error %v, want that of the disk", what, err)
		}
		for _, r := range []*Registry{r, New(Options{Store: s, Key: key})} {
			got, err := r.Value("a")
			if diff := cmp.Diff(was, r.Page(nil, 10)); diff != "" || got != "old" || err != nil {
				t.Errorf("%s: the value is %q (%v), want %q; secrets (-want +got):\n%s", what, got, err, "old", diff)
			}
		}
		if err := do(r); err != nil {
			t.Errorf("%s again: %v", what, err)
		}
		must.Do(t, s.Close())
	}
}

// TestChanges checks that an update has its own time and version, that the secret keeps its id and
// its position, and that it does not share the caller's metadata. A sealed value of an earlier
// version cannot be opened as a later one.
func TestChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := store.Temporary(dir)
		key := NewKey()
		r := New(Options{Store: s, Key: key})
		begun := time.Now().UTC()
		asked := map[string]string{"k": "v"}
		first, err := r.Create("first", "one", asked)
		must.Do(t, err)
		if diff := cmp.Diff(Secret{ID: first.ID, Name: "first", Version: 1, Metadata: asked, CreatedAt: begun, UpdatedAt: begun}, first); diff != "" {
			t.Errorf("a new one (-want +got):\n%s", diff)
		}
		<-time.After(time.Hour)
		other, err := r.Create("other", "v", nil)
		must.Do(t, err)
		old := r.byID[first.ID].Sealed
		<-time.After(time.Hour)
		if _, err := r.Update("FIRST", "two", nil); err != nil {
			t.Fatal(err)
		}
		asked["k"] = "changed"
		want := []Secret{other, {ID: first.ID, Name: "first", Version: 2, Metadata: map[string]string{"k": "v"}, CreatedAt: begun, UpdatedAt: begun.Add(2 * time.Hour)}}
		for what, r := range map[string]*Registry{"here": r, "for the next server": New(Options{Store: s, Key: key})} {
			if diff := cmp.Diff(want, r.Page(nil, 10)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
		rec := r.byID[first.ID]
		rec.Sealed = old
		r.byID[first.ID] = rec
		if value, err := r.Value("first"); !errors.Is(err, ErrSealed) {
			t.Errorf("got %q and error %v for the value of an earlier version, want ErrSealed", value, err)
		}
		must.Do(t, r.Delete("first"))
		if diff := cmp.Diff([]Secret{other}, r.Page(nil, 10)); diff != "" {
			t.Errorf("after one was deleted (-want +got):\n%s", diff)
		}
		if _, err := r.Create("first", "three", nil); err != nil {
			t.Errorf("a name that was deleted: got error %v, want that it can be used", err)
		}
		must.Do(t, s.Close())
	})
}

// TestUnreadable checks that an unreadable record is not changed, and that it is not listed as a
// secret.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	s := store.Temporary(t.TempDir())
	defer s.Close()
	key := NewKey()
	r := New(Options{Store: s, Key: key})
	good, err := r.Create("good", "v", nil)
	must.Do(t, err)
	for id, change := range map[string]func(*record){
		"sec_newer": func(rec *record) { rec.Version = recordVersion + 1; rec.Secret.ID = "sec_newer" },
		"sec_none":  func(rec *record) { rec.Version = 0; rec.Secret.ID = "sec_none" },
		"sec_moved": func(*record) {},
	} {
		rec := r.byID[good.ID]
		change(&rec)
		rec.Secret.Name = "bad"
		text, err := json.Marshal(rec)
		if err == nil {
			_, err = s.Put(store.Secrets, id, text, "")
		}
		must.Do(t, err)
	}
	if _, err := s.Put(store.Secrets, "sec_garbage", []byte("{"), ""); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	next := New(Options{Store: s, Key: key, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if diff := cmp.Diff([]Secret{good}, next.Page(nil, 10)); diff != "" {
		t.Errorf("secrets (-want +got):\n%s", diff)
	}
	for _, id := range []string{"sec_newer", "sec_none", "sec_moved", "sec_garbage"} {
		if _, err := next.Get(id); !errors.Is(err, ErrNotFound) || !strings.Contains(log.String(), "secret="+id) {
			t.Errorf("%s: got error %v, want that it is not there, and a line of the log:\n%s", id, err, &log)
		}
	}
	if _, err := next.Get("bad"); !errors.Is(err, ErrNotFound) {
		t.Errorf("got error %v, want that it is not there", err)
	}
	if !strings.Contains(log.String(), "unexpected end of JSON input") {
		t.Errorf("got the log %s, want the error of each", &log)
	}
	if left, err := s.Records(store.Secrets); err != nil || len(left) != 5 {
		t.Errorf("got %d records (%v), want all 5", len(left), err)
	}
}
