package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestFullListResolves checks that the full list is complete and can be installed here:
// that pip finds files that suit each other, all of them in the list.
func TestFullListResolves(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(fullList.Find(t), "report.json"))
	must.Do(t, err)
	var report []struct{ Name, Version, SHA256 string }
	must.Do(t, json.Unmarshal(text, &report))
	listed := map[string]string{} // the hashes
	for _, entry := range regexp.MustCompile(`(?m)^([\w.-]+==[^\s;]+).*((?:\n    --hash=.*)+)`).FindAllStringSubmatch(pyenv.FullList(), -1) {
		listed[normal(entry[1])] += entry[2]
	}
	if len(report) < 100 {
		t.Errorf("pip would install %d packages, want all of the %d in the list that are for this Python", len(report), len(listed))
	}
	for _, p := range report {
		name := p.Name + "==" + p.Version
		if p.SHA256 == "" || !strings.Contains(listed[normal(name)], "sha256:"+p.SHA256) {
			t.Errorf("pip would install %s with the hash %q, want one of the list:%s", name, p.SHA256, listed[normal(name)])
		}
	}
}

// normal is the name of a package as pip compares them.
func normal(name string) string {
	return strings.ToLower(strings.NewReplacer("_", "-", ".", "-").Replace(name))
}
