package cmdutil

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/e2bctl/e2bctl/internal/fdtest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestIDFilesAreClosed checks that no file for the ID of a sandbox stays open, whichever step fails.
func TestIDFilesAreClosed(t *testing.T) {
	dir := t.TempDir()
	step := filepath.Join(dir, "step")
	must.Do(t, os.WriteFile(step, nil, 0o600))
	t.Setenv("GITHUB_OUTPUT", step)
	for name, tt := range map[string]struct {
		file          string
		opens, writes bool
	}{
		"written": {"id", true, true}, "not written": {"id", true, false}, "no file": {"", true, true}, "a directory in its place": {".", false, false}, "no directory for it": {"none/id", false, false},
	} {
		flags := idFlags{output: "id"}
		if tt.file != "" {
			flags.file = filepath.Join(dir, tt.file)
		}
		files, err := flags.open()
		if (err == nil) != tt.opens {
			t.Errorf("%s: got error %v", name, err)
		}
		if tt.writes {
			must.Do(t, files.write("i1"))
		}
		if tt.opens {
			files.close()
		}
		if open := fdtest.Open(t, dir); len(open) > 0 {
			t.Errorf("%s: %q are open", name, open)
		}
	}
}
