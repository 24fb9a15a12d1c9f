//go:build unix

package mcp

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestIdentity checks that all servers of a user have the same identity, in a file that no other user can read, and that a
// damaged one is reported and left as it is.
func TestIdentity(t *testing.T) {
	state := t.TempDir()
	must.Do(t, os.Chmod(state, 0o700))
	t.Setenv("XDG_STATE_HOME", state)
	first, err := openIdentity()
	must.Do(t, err)
	again, err := openIdentity()
	if must.Do(t, err); again != first || len(first.Owner) < 16 || len(first.Token) < 16 || first.Owner == first.Token {
		t.Errorf("got %+v and then %+v, want the same one with two long texts", first, again)
	}
	dir := filepath.Dir(first.path)
	entries, err := os.ReadDir(dir)
	must.Do(t, err)
	info, err := os.Stat(first.path)
	if must.Do(t, err); len(entries) != 1 || info.Mode() != 0o600 || filepath.Base(first.path) != "identity.json" {
		t.Errorf("got %d files and the mode %v of %s, want one, for this user", len(entries), info.Mode(), first.path)
	}
	long := strings.Repeat("x", 16)
	for name, tt := range map[string]struct {
		content any
		valid   bool
	}{
		"the shortest":  {map[string]string{"owner": long, "token": long}, true},
		"a short owner": {map[string]string{"owner": long[1:], "token": long}, false},
		"a short token": {map[string]string{"owner": long, "token": long[1:]}, false},
		"a list":        {[]string{long, long}, false},
	} {
		content, err := json.Marshal(tt.content)
		must.Do(t, err)
		must.Do(t, os.WriteFile(first.path, content, 0o600))
		got, err := openIdentity()
		if (err == nil) != tt.valid || err != nil && !strings.Contains(err.Error(), first.path+" is damaged: remove it") {
			t.Errorf("%s: got error %v, want it to be valid: %v", name, err, tt.valid)
		}
		if err == nil && (got.Owner != long || got.Token != long) {
			t.Errorf("%s: got %+v, want what the file has", name, got)
		}
		if left, err := os.ReadFile(first.path); err != nil || string(left) != string(content) {
			t.Errorf("%s: the file has %q, error %v, want it unchanged", name, left, err)
		}
	}
	must.Do(t, os.Remove(first.path))
	must.Do(t, os.Mkdir(first.path, 0o700)) // which cannot be read
	if got, err := openIdentity(); err == nil || got != (identity{}) {
		t.Errorf("a directory: got %+v and error %v", got, err)
	}
	must.Do(t, os.Remove(first.path))
	must.Do(t, os.Symlink("none", first.path)) // it is there, as if another server had just made it
	_, err = openIdentity()
	must.Is(t, err, fs.ErrNotExist)
}

// TestConfigInTheWay checks that a configuration that cannot be written leaves everything as it was.
func TestConfigInTheWay(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	must.Do(t, os.Chmod(os.Getenv("XDG_RUNTIME_DIR"), 0o700))
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must.Do(t, os.WriteFile(file, []byte("old"), 0o640))
	must.Do(t, os.MkdirAll(filepath.Join(dir, "taken.e2bctl-backup", "in it"), 0o700))
	must.Do(t, os.WriteFile(filepath.Join(dir, "taken"), []byte("old"), 0o640))
	for path, want := range map[string]string{filepath.Join(file, "below"): "mkdir ", filepath.Join(dir, "taken"): "keep a backup: "} {
		config := configFile{path: path}
		if filepath.Dir(path) == dir {
			var err error
			config, err = readConfig(path)
			must.Do(t, err)
		}
		backup, err := config.replace([]byte("new"), false)
		if err == nil || !strings.HasPrefix(err.Error(), want) || backup != "" {
			t.Errorf("%s: got the backup %q and error %v, want %q", path, backup, err, want)
		}
	}
	entries, err := os.ReadDir(dir)
	must.Do(t, err)
	text, err := os.ReadFile(filepath.Join(dir, "taken"))
	if must.Do(t, err); len(entries) != 3 || string(text) != "old" {
		t.Errorf("%d entries are there, and the file has %q, want 3 and what it had", len(entries), text)
	}
}
