//go:build linux

package inside

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestPythonBundles checks that the certificate files of Python packages are found in a tree, also in
// one whose name is like a pattern.
func TestPythonBundles(t *testing.T) {
	t.Parallel()
	tree := filepath.Join(t.TempDir(), `[a]?*\`)
	want := []string{
		"lib/python3.13/site-packages/certifi/cacert.pem", "lib/python3.14/site-packages/pip/_vendor/certifi/cacert.pem",
		"lib/python3.13/dist-packages/certifi/cacert.pem", "lib/python3/dist-packages/pip/_vendor/certifi/cacert.pem",
	}
	for i, name := range append(slices.Clone(want), "lib/python2/site-packages/certifi/cacert.pem", "certifi/cacert.pem") {
		path := filepath.Join(tree, name)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.Do(t, os.WriteFile(path, nil, 0o600))
		if i < len(want) {
			want[i] = path
		}
	}
	var got []string
	for _, path := range pythonBundles([]string{tree}) {
		if strings.HasPrefix(path, tree) { // the machine has others
			got = append(got, path)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the files (-want +got):\n%s", diff)
	}
}
