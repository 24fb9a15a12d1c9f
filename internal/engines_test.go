package internal

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// checkout is a repository with .ci/engines, and a program "make" beside it that prints its targets.
type checkout struct{ parent, dir string }

func (r checkout) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(r.dir, name)
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must.Do(t, os.WriteFile(path, []byte(text), 0o700))
}

func (r checkout) command(t *testing.T, in, name string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir = in
	c.Env = append(os.Environ(), "PATH="+r.parent+":"+os.Getenv("PATH"), "GOFLAGS=", "GOWORK=off",
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b.c", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b.c")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func (r checkout) commit(t *testing.T, message string) {
	t.Helper()
	r.command(t, r.dir, "git", "add", "-A")
	r.command(t, r.dir, "git", "commit", "-q", "--allow-empty", "-m", message)
}

// due checks whether the engines' tests are due in a directory, and the reason.
func (r checkout) due(t *testing.T, in, why string, want bool) {
	t.Helper()
	said := r.command(t, in, ".ci/engines")
	if got := strings.Contains(said, "made check-engines"); got != want || !strings.Contains(said, why) {
		t.Errorf(".ci/engines said %q; want %q in it, and that it makes check-engines: %t", said, why, want)
	}
}

// newCheckout returns a repository with one commit, of a module whose package tested the engines' tests cover.
func newCheckout(t *testing.T) checkout {
	t.Helper()
	for _, program := range []string{"bash", "awk", "git"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	parent := t.TempDir()
	r := checkout{parent, filepath.Join(parent, "repository")}
	r.write(t, "../make", "#!/bin/sh\necho \"made $*\"\n")
	for _, script := range []string{".ci/engines", ".ci/kubernetes", ".ci/unless-green"} {
		text, err := os.ReadFile("../" + script)
		must.Do(t, err)
		r.write(t, script, string(text))
	}
	r.write(t, ".ci/engines-tests", "#!/bin/sh\necho ./tested\n")
	r.write(t, "go.mod", "module example.com/m\n\ngo 1.26\n")
	r.write(t, "go.sum", "")
	r.write(t, "tested/tested.go", "package tested\n\nimport _ \"example.com/m/used\"\n")
	r.write(t, "tested/tested_test.go", "package tested\n\nimport _ \"example.com/m/testing\"\n")
	r.write(t, "tested/testdata/sub/data", "1")
	r.write(t, "used/used.go", "package used\n\nimport _ \"embed\"\n\n//go:embed data/*\nvar Data string\n")
	r.write(t, "used/data/data", "1")
	r.write(t, "used/used_test.go", "package used\n")
	r.write(t, "testing/testing.go", "package testing\n")
	r.write(t, "unused/unused.go", "package unused\n")
	r.write(t, "cli/e2bctl/main.go", "package main\n\nfunc main() {}\n")
	r.write(t, "internal/cloud/linuxprogram/contained/main.go", "package main\n\nfunc main() {}\n")
	r.command(t, r.dir, "git", "init", "-q")
	r.commit(t, "First")
	return r
}

// .ci/engines runs the tests of engines if files that they cover changed since the
// newest commit whose message records that they passed.
func TestEnginesAreDue(t *testing.T) {
	t.Parallel()
	r := newCheckout(t)
	r.due(t, r.dir, "no commit has the trailer", true)
	r.commit(t, "Test\n\nEngines: red")
	r.due(t, r.dir, "no commit has the trailer", true)
	r.commit(t, "Test\n\nEngines: green")
	r.due(t, r.dir, "nothing that they cover changed", false)

	for name, text := range map[string]string{
		"README.md":         "a page",
		"tested/README.md":  "a page",
		"used/used_test.go": "package used\n\n// another test of untested code\n",
		"unused/unused.go":  "package unused\n\n// changed\n",
	} {
		r.write(t, name, text)
	}
	r.due(t, r.dir, "nothing that they cover changed", false)
	r.commit(t, "Change what is not covered")
	r.due(t, r.dir, "nothing that they cover changed", false)

	for _, name := range []string{
		"tested/tested_test.go", "tested/testdata/sub/data", "tested/new.txt", "used/used.go", "used/data/data", "testing/testing.go",
		"cli/e2bctl/main.go", "internal/cloud/linuxprogram/contained/main.go", "go.mod", "go.sum", ".ci/engines-tests",
	} {
		old := ""
		if text, err := os.ReadFile(filepath.Join(r.dir, name)); err == nil {
			old = string(text)
		}
		r.write(t, name, old+"\n")
		r.due(t, r.dir, "1 of the files that they cover changed since", true)
		r.command(t, r.dir, "git", "stash", "-q", "-u")
	}
	r.due(t, r.dir, "nothing that they cover changed", false)

	r.write(t, "used/used.go", "package used\n")
	r.commit(t, "Change what is covered\n\nEngines: green")
	r.due(t, r.dir, "used/used.go the first", true)
	r.commit(t, "Test\n\nEngines: green")
	r.due(t, r.dir, "nothing that they cover changed", false)

	shallow := filepath.Join(r.parent, "shallow")
	r.command(t, r.parent, "git", "clone", "-q", "--depth=1", "file://"+r.dir, shallow)
	r.due(t, shallow, "no clone with all its history", true)
}

// .ci/kubernetes does the same for the tests with a cluster, with a trailer of their own.
func TestKubernetesIsDue(t *testing.T) {
	t.Parallel()
	r := newCheckout(t)
	r.commit(t, "Test\n\nEngines: green")
	const due, done = "made check-kubernetes", "the tests of kubernetes do not run: nothing that they cover changed"
	for _, want := range []string{due, done} {
		if said := r.command(t, r.dir, ".ci/kubernetes"); !strings.Contains(said, want) {
			t.Errorf(".ci/kubernetes said %q; want %q", said, want)
		}
		r.commit(t, "Test\n\nKubernetes: green")
	}
	r.write(t, "cli/e2bctl/main.go", "package main\n\nfunc main() { println() }\n")
	if said := r.command(t, r.dir, ".ci/kubernetes"); !strings.Contains(said, done) {
		t.Errorf(".ci/kubernetes said %q after a change of a program that its tests do not build; want %q", said, done)
	}
}
