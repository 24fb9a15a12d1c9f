package volumes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestSurvey checks that a survey counts all volumes and the space that they take on the disk, even
// while a process has them open. It counts the volumes with a size separately.
func TestSurvey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := open(openStore(t, dir))
	for _, id := range []string{"1", "2", "3"} {
		create(t, r, id, "n"+id)
	}
	write(t, r, "1", "large", strings.Repeat("x", 1<<20))
	for _, id := range []string{"2", "3"} { // as those with a size have
		must.Do(t, os.WriteFile(filepath.Join(r.byID[id].dir, imageName), nil, 0o600))
	}
	got, err := Survey(t.Context(), dir)
	if err != nil || got.Count != 3 || got.Sized != 2 || got.Bytes < 1<<20 {
		t.Errorf("got %+v and error %v, want 3 volumes, 2 with a size, and 1 MiB", got, err)
	}
}
