package cloud

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestDoc checks that the documentation of this package names each package below it.
func TestDoc(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("doc.go")
	must.Do(t, err)
	named := make(map[string]bool)
	for _, word := range regexp.MustCompile(`[a-z0-9]+`).FindAllString(string(text), -1) {
		named[word] = true
	}
	entries, err := os.ReadDir(".")
	must.Do(t, err)
	var missing []string
	for _, entry := range entries {
		if entry.IsDir() && entry.Name() != "testdata" && !named[entry.Name()] {
			missing = append(missing, entry.Name())
		}
	}
	if len(missing) > 0 {
		t.Errorf("doc.go does not name %s", strings.Join(missing, ", "))
	}
}
