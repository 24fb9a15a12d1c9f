package internal

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// .ci/engines runs the tests of engines if files that they cover changed since the
// newest commit whose message records that they passed.
func TestEnginesAreDue(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"bash", "awk", "git"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	dir := t.TempDir()
	engines, err := os.ReadFile("../.ci/engines")
	must.Do(t, err)
	repository := filepath.Join(dir, "repository")
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(repository, name)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.Do(t, os.WriteFile(path, []byte(text), 0o700))
	}
	command := func(in, name string, args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), name, args...)
		c.Dir = in
		c.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "GOFLAGS=", "GOWORK=off",
			"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b.c", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b.c")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	commit := func(message string) {
		t.Helper()
		command(repository, "git", "add", "-A")
		command(repository, "git", "commit", "-q", "--allow-empty", "-m", message)
	}
	due := func(in, why string, want bool) {
		t.Helper()
		said := command(in, ".ci/engines")
		if got := strings.Contains(said, "made check-engines"); got != want || !strings.Contains(said, why) {
			t.Errorf(".ci/engines said %q; want %q in it, and that it makes check-engines: %t", said, why, want)
		}
	}

	write("../make", "#!/bin/sh\necho \"made $*\"\n")
	write(".ci/engines", string(engines))
	write(".ci/engines-tests", "#!/bin/sh\necho ./tested\n")
	write("go.mod", "module example.com/m\n\ngo 1.26\n")
	write("go.sum", "")
	write("tested/tested.go", "package tested\n\nimport _ \"example.com/m/used\"\n")
	write("tested/tested_test.go", "package tested\n\nimport _ \"example.com/m/testing\"\n")
	write("tested/testdata/sub/data", "1")
	write("used/used.go", "package used\n\nimport _ \"embed\"\n\n//go:embed data/*\nvar Data string\n")
	write("used/data/data", "1")
	write("used/used_test.go", "package used\n")
	write("testing/testing.go", "package testing\n")
	write("unused/unused.go", "package unused\n")
	write("cli/e2bctl/main.go", "package main\n\nfunc main() {}\n")
	write("internal/cloud/linuxprogram/contained/main.go", "package main\n\nfunc main() {}\n")
	command(repository, "git", "init", "-q")
	commit("First")
	due(repository, "no commit has the trailer", true)
	commit("Test\n\nEngines: red")
	due(repository, "no commit has the trailer", true)
	commit("Test\n\nEngines: green")
	due(repository, "nothing that they cover changed", false)

	for name, text := range map[string]string{
		"README.md":         "a page",
		"tested/README.md":  "a page",
		"used/used_test.go": "package used\n\n// another test of what is not tested here\n",
		"unused/unused.go":  "package unused\n\n// changed\n",
	} {
		write(name, text)
	}
	due(repository, "nothing that they cover changed", false)
	commit("Change what is not covered")
	due(repository, "nothing that they cover changed", false)

	for _, name := range []string{
		"tested/tested_test.go", "tested/testdata/sub/data", "tested/new.txt", "used/used.go", "used/data/data", "testing/testing.go",
		"cli/e2bctl/main.go", "internal/cloud/linuxprogram/contained/main.go", "go.mod", "go.sum", ".ci/engines-tests",
	} {
		old := ""
		if text, err := os.ReadFile(filepath.Join(repository, name)); err == nil {
			old = string(text)
		}
		write(name, old+"\n")
		due(repository, "1 of the files that they cover changed since", true)
		command(repository, "git", "stash", "-q", "-u")
	}
	due(repository, "nothing that they cover changed", false)

	write("used/used.go", "package used\n")
	commit("Change what is covered\n\nEngines: green")
	due(repository, "used/used.go the first", true)
	commit("Test\n\nEngines: green")
	due(repository, "nothing that they cover changed", false)

	shallow := filepath.Join(dir, "shallow")
	command(dir, "git", "clone", "-q", "--depth=1", "file://"+repository, shallow)
	due(shallow, "no clone with all its history", true)
}
