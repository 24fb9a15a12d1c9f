package cloud

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestSpecLaunched checks that the launch of a sandbox uses each field of its spec, or that the field
// is listed with the reason. A field that only checkSpec reads would have no effect.
func TestSpecLaunched(t *testing.T) {
	t.Parallel()
	unused := map[string]string{
		"AutoPause":  "the registry pauses the sandbox; checkSpec only asks whether the engine can",
		"KeepMemory": "as AutoPause",
		"AutoResume": "as AutoPause",
	}
	names, err := filepath.Glob("*.go")
	must.Do(t, err)
	used := map[string]bool{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") || name == "promises.go" {
			continue
		}
		text, err := os.ReadFile(name)
		must.Do(t, err)
		for _, field := range regexp.MustCompile(`\bspec\.(\w+)`).FindAllStringSubmatch(string(text), -1) {
			used[field[1]] = true
		}
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[lifecycle.Spec]()) {
		switch _, listed := unused[field.Name]; {
		case listed && used[field.Name]:
			t.Errorf("the launch uses %s: remove it from the list of this test", field.Name)
		case !listed && !used[field.Name]:
			t.Errorf("the launch does not use %s: pass it on in launch.go, or list it in this test with the reason", field.Name)
		}
	}
}
