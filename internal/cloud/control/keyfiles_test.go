package control

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/store"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestOpenKeyFiles checks that a server does not start with a file of keys that cannot be used as a
// whole, and that the error contains no key.
func TestOpenKeyFiles(t *testing.T) {
	t.Parallel()
	key := "e2b_" + strings.Repeat("0a", minKeyDigits/2)
	for name, tt := range map[string]struct {
		text string
		keys int
		err  string // text of the error
	}{
		"keys":              {text: "# ours\n\n" + key + "\n " + key + "0b \n", keys: 2},
		"a short key":       {text: key + "\n" + key[:len(key)-1] + "\n", err: "line 2"},
		"an odd number":     {text: key + "0\n", err: "line 1: an API key is e2b_ and an even number of hexadecimal digits in lower case, at least 40,"},
		"no key":            {text: "# none\n", err: "have no key"},
		"the largest file":  {text: key + "\n" + strings.Repeat("#", maxKeyFile-len(key)-1), keys: 1},
		"a larger file":     {text: key + "\n" + strings.Repeat("#", maxKeyFile-len(key)), err: "larger than"},
		"none at this path": {err: "no such file"},
	} {
		path := filepath.Join(t.TempDir(), "keys")
		if tt.text != "" {
			must.Do(t, os.WriteFile(path, []byte(tt.text), 0o600))
		}
		files, err := OpenKeyFiles([]string{path}, slog.New(slog.DiscardHandler))
		switch {
		case tt.err == "" && err != nil:
			t.Errorf("%s: got error %v", name, err)
		case tt.err == "" && files.Count() != tt.keys:
			t.Errorf("%s: got %d keys, want %d", name, files.Count(), tt.keys)
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), key[:len(key)-1])):
			t.Errorf("%s: got error %v, want one with %q and without the key", name, err, tt.err)
		}
	}
}

// TestKeyFilesChange checks that each change of a file of keys takes effect at once and is logged, and that
// keys that are still in the file keep their rate and last use.
func TestKeyFilesChange(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	path := filepath.Join(t.TempDir(), "keys")
	var keys [3]string
	for i := range keys {
		keys[i] = keyPrefix + strings.Repeat(string(rune('a'+i)), minKeyDigits)
	}
	a, b, c := keys[0], keys[1], keys[2]
	old, recent := time.Now().Add(-time.Hour), time.Now().Add(-settled/2)
	must.Do(t, os.WriteFile(path, []byte(a+"\n"), 0o600))
	must.Do(t, os.Chtimes(path, old, old))
	files, err := OpenKeyFiles([]string{path}, logger)
	must.Do(t, err)
	k := newKeyring(Options{KeyFiles: files, Logger: logger})
	want := []apiKey{{
		ID: idOf(hashOf(a)), Name: "keys", Hash: hashOf(a), CreatedAt: old.UTC(),
		Mask: keyMask{Prefix: "e2b_", ValueLength: minKeyDigits, ValuePrefix: "aa", ValueSuffix: "aaaa"},
	}}
	first := k.list()
	for i := range first {
		first[i].rate = nil
	}
	if diff := cmp.Diff(want, first, cmp.AllowUnexported(apiKey{})); diff != "" {
		t.Errorf("keys in the file (-want +got):\n%s", diff)
	}
	for _, step := range []struct {
		what, text string
		replaced   bool // the file is another one
		at         time.Time
		works, log string
	}{
		{"another file of the same size and time", b + "\n", true, old, b, "has changed"},
		{"another size", b + "\n" + c + "\n", false, old, b + c, "keys=2"},
		{"another time", a + "\n" + c + "\n", false, old.Add(time.Minute), a + c, "keys=2"},
		{"another time only", a + "\n" + c + "\n", false, recent, a + c, ""},
		{"a change in the same second", b + "\n" + c + "\n", false, recent, b + c, "keys=2"},
		{"a wrong line", b + "\n" + c[:20] + "\n", false, recent, b, "but is not valid"},
		{"no file", "", false, recent, "", "but is not valid"},
		{"still no file", "", false, recent, "", ""},
		{"a file again", b + "\n" + a + "\n", false, old, a + b, "keys=2"},
	} {
		before := k.byHash
		log.Reset()
		to := path
		if step.replaced {
			to += ".new"
		}
		if step.text == "" {
			_ = os.Remove(path)
		} else {
			must.Do(t, os.WriteFile(to, []byte(step.text), 0o600))
			must.Do(t, os.Chtimes(to, step.at, step.at))
			must.Do(t, os.Rename(to, path))
		}
		for _, key := range keys {
			found, ok := k.use(key)
			if ok != strings.Contains(step.works, key) {
				t.Errorf("%s: key %s works: %v", step.what, key, ok)
			}
			if known := before[hashOf(key)]; ok && known != nil && known != found {
				t.Errorf("%s: key %s lost its rate and last use", step.what, key)
			}
		}
		if got := log.String(); (step.log == "") != (got == "") || !strings.Contains(got, step.log) || strings.Count(got, "\n") > 1 {
			t.Errorf("%s: logged %q, want one line with %q, or none", step.what, got, step.log)
		}
		for _, key := range k.list() {
			if k.byID[key.ID] == nil || key.LastUsed.IsZero() || len(k.byID) != len(k.byHash) || files.Count() != len(k.byID) {
				t.Errorf("%s: got the keys %+v, and %d by their hashes", step.what, k.byID, len(k.byHash))
			}
		}
	}
	service := New(Options{KeyFiles: files, Logger: logger})
	for what, change := range map[string]handler{"made": service.createKey, "renamed": service.renameKey, "deleted": service.deleteKey} {
		if err := service.changingKeys(change)(nil, nil); !errors.Is(err, errKeysInFiles) {
			t.Errorf("a key of a file was %s: %v", what, err)
		}
	}
}

// TestKeysAreNotStored checks that a fault of the store leaves the keys as they were.
func TestKeysAreNotStored(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	st, err := store.Open(t.Context(), t.TempDir())
	must.Do(t, err)
	k := newKeyring(Options{Store: st, Key: testKey, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	key, value, err := k.create("first")
	must.Do(t, err)
	must.Do(t, st.Close())
	if made, value, err := k.create("second"); err == nil || value != "" || made.ID != "" || !strings.Contains(err.Error(), "was not made") {
		t.Errorf("made %+v and error %v", made, err)
	}
	if renamed, err := k.rename(key.ID, "other"); err == nil || renamed.Name != "" || !strings.Contains(err.Error(), "was not renamed") {
		t.Errorf("renamed %+v and error %v", renamed, err)
	}
	if err := k.remove(key.ID); err == nil || !strings.Contains(err.Error(), "was not deleted") {
		t.Errorf("deleted it: %v", err)
	}
	all := k.list()
	if _, ok := k.use(value); !ok || len(all) != 2 || all[1].Name != "first" {
		t.Errorf("it works: %v, and the keys are %+v", ok, all)
	}
	if !strings.Contains(log.String(), "the last use of an API key was not stored") {
		t.Errorf("logged %s", log.String())
	}
	log.Reset()
	newKeyring(Options{Store: st, Key: testKey, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if !strings.Contains(log.String(), "API keys that cannot be read are left alone") {
		t.Errorf("logged %s", log.String())
	}
	if hashOf("e2b_0a") == hashOf("e2b_0A") {
		t.Error("a key in upper case has the hash of another key")
	}
}
