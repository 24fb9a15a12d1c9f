package control

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
