package cmdutil

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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
		open, err := filepath.Glob("/proc/self/fd/*")
		must.Do(t, err)
		for _, file := range open {
			if to, err := os.Readlink(file); err == nil && strings.HasPrefix(to, dir+"/") {
				t.Errorf("%s: %s is open", name, to)
			}
		}
	}
}
