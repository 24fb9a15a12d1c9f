package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestInUseElsewhere checks that a lock of a process in another container is not attributed to the
// process with the same id in this container.
func TestInUseElsewhere(t *testing.T) {
	t.Parallel()
	own := namespaceOfProcesses()
	if own == "" {
		t.Skip("this system has no namespaces of processes")
	}
	for text, want := range map[string]string{
		"7\npid:[1]\n":     "another container",
		"7\n" + own + "\n": "process 7:",
		"7\n":              "process 7:", // of an earlier version
		"":                 "another process:",
	} {
		lock := filepath.Join(t.TempDir(), "lock")
		must.Do(t, os.WriteFile(lock, []byte(text), 0o600))
		file, err := os.Open(lock)
		must.Do(t, err)
		defer file.Close()
		got := inUse("/state", file).Error()
		if !strings.Contains(got, want) || !strings.Contains(got, "use another directory") || !strings.Contains(got, " /state ") {
			t.Errorf("%q: got %q, want %q in it", text, got, want)
		}
		if strings.Contains(want, "container") && strings.Contains(got, "local down") {
			t.Errorf("%q: got %q, want nothing that cannot be done here", text, got)
		}
	}
}
