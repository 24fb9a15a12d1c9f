//go:build linux

package layer_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/layer"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestManifest checks that a manifest is read as it was written, with its version, and is not
// written twice.
func TestManifest(t *testing.T) {
	t.Parallel()
	in := t.TempDir()
	for _, tree := range []string{"0", "1"} {
		must.Do(t, os.MkdirAll(filepath.Join(in, layer.Trees, tree), 0o700))
	}
	m := layer.Manifest{Layout: "a", Whole: true, Trees: []string{"", "/usr"}}
	must.Do(t, m.Write(in))
	got, err := layer.Read(in)
	must.Do(t, err)
	m.Version = 1
	if diff := cmp.Diff(m, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	must.Is(t, m.Write(in), os.ErrExist)
}

// TestDamagedManifest checks that a layer whose manifest or trees are not as Write left them is an
// error, and that only another version is not damage.
func TestDamagedManifest(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text    string
		tree    func(path string) error
		damaged bool
		want    string
	}{
		"another version":  {`{"version":2,"trees":[""]}`, makeTree, false, "its format is 2, not 1"},
		"no version":       {`{"trees":[""]}`, makeTree, false, "its format is 0, not 1"},
		"not JSON":         {`{"version":1`, makeTree, true, "unexpected end"},
		"no trees":         {`{"version":1}`, makeTree, true, "it has no root"},
		"another root":     {`{"version":1,"trees":["/usr"]}`, makeTree, true, "it has no root"},
		"a tree too few":   {`{"version":1,"trees":["","/usr"]}`, makeTree, true, "1: no such file"},
		"a tree is a file": {`{"version":1,"trees":[""]}`, func(path string) error { return os.WriteFile(path, nil, 0o600) }, true, "0 is not a directory"},
		"a tree is a link": {`{"version":1,"trees":[""]}`, func(path string) error { return os.Symlink("/", path) }, true, "0 is not a directory"},
	} {
		in := t.TempDir()
		must.Do(t, os.Mkdir(filepath.Join(in, layer.Trees), 0o700))
		must.Do(t, tt.tree(filepath.Join(in, layer.Trees, "0")))
		must.Do(t, os.WriteFile(layer.Name(in), []byte(tt.text), 0o600))
		if _, err := layer.Read(in); err == nil || errors.Is(err, layer.ErrDamaged) != tt.damaged || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q, damaged %v", name, err, tt.want, tt.damaged)
		}
	}
	if _, err := layer.Read(t.TempDir()); !errors.Is(err, layer.ErrDamaged) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no manifest: got %v, want ErrDamaged", err)
	}
}

func makeTree(path string) error { return os.Mkdir(path, 0o700) }
