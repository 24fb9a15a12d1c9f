//go:build linux

package room

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

func TestSearchPath(t *testing.T) {
	t.Parallel()
	local := t.TempDir()
	for _, name := range []string{"bin", "go/bin", "tool-1/bin", "empty", "a:b/bin", "file"} {
		must.Do(t, os.MkdirAll(filepath.Join(local, name), 0o755))
	}
	err := errors.Join(os.Symlink("tool-1", filepath.Join(local, "tool")), os.WriteFile(filepath.Join(local, "file", "bin"), nil, 0o755))
	must.Do(t, err)
	if got, want := searchPath(local), DefaultPath+":"+local+"/go/bin:"+local+"/tool-1/bin"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := searchPath(filepath.Join(local, "missing")); got != DefaultPath {
		t.Errorf("got %s, want %s", got, DefaultPath)
	}
}
