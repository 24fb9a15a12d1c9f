package template

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestProjects checks Dockerfiles in the manner of public projects: they are read whole, all files
// that they copy are found, and parts that are left out or refused are reported with their lines.
func TestProjects(t *testing.T) {
	t.Parallel()
	archive, err := txtar.ParseFile(filepath.Join("testdata", "projects.txtar"))
	must.Do(t, err)
	dir := t.TempDir()
	must.Do(t, txtar.Write(archive, dir))
	files, err := filepath.Glob(filepath.Join(dir, "*", "Dockerfile"))
	if err != nil || len(files) < 20 {
		t.Fatalf("got %d projects and error %v, want twenty", len(files), err)
	}
	told := map[string][]string{
		"golang":   {"Dockerfile: line 6: --mount=type=cache of RUN is not supported, and left out"},
		"ml":       {"Dockerfile: line 6: --mount=type=cache of RUN is not supported, and left out"},
		"monorepo": {"Dockerfile: line 8: --mount=type=cache of RUN is not supported, and left out"},
	}
	refused := map[string][]string{"flask-worker": {"line 9: STOPSIGNAL is not supported", "line 10: HEALTHCHECK is not supported"}}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		text, err := os.ReadFile(file)
		must.Do(t, err)
		got, err := Check(t.Context(), FromDockerfile(strings.NewReader(string(text)), nil), &BuildParams{Dir: filepath.Dir(file)})
		for _, want := range refused[name] {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got error %v, want %q", name, err, want)
			}
		}
		if err != nil && refused[name] == nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(told[name], got); diff != "" {
			t.Errorf("%s: notices (-want +got):\n%s", name, diff)
		}
	}
}
