package kubetest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// The go.mod files of the programs' modules require the versions by which the programs are kept.
func TestVersions(t *testing.T) {
	t.Parallel()
	for _, p := range programs() {
		file := filepath.Join(p.module, "go.mod")
		text, err := os.ReadFile(file)
		must.Do(t, err)
		if !regexp.MustCompile(`(?m)^(tool )?\s*` + regexp.QuoteMeta(p.path) + "$").Match(text) {
			t.Errorf("%s does not have the tool %s", file, p.path)
		}
		module, version := "k8s.io/kubernetes", kubernetesVersion
		if p.module == "controller" {
			module, version = sandboxes, sandboxVersion
		}
		if !strings.Contains(string(text), module+" "+version+" ") {
			t.Errorf("%s does not require %s %s", file, module, version)
		}
	}
}
