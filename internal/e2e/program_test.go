//go:build linux

package e2e

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

const credential = "credential-of-the-program"

// programDir returns a directory with a program and with files that must not be
// uploaded.
func programDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"agent/__main__.py": "import os, sys\nimport data, numbers_of_it\nprint(data.word, os.environ['KEY'], sys.stdin.read(), sorted(os.listdir()))\nprint('failed', file=sys.stderr)\nsys.exit(3)\n",
		"agent/data.py":     "word = 'uploaded'\n",
		".git/config":       "",
	} {
		path := filepath.Join(dir, name)
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)))
	}
	return dir
}

// A program arrives with its files and packages; it receives its credentials
// and input, its status is returned, and it leaves nothing behind.
func TestRunProgram(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	var out, errOut strings.Builder
	result, err := sb.RunProgram(t.Context(), &sandbox.ProgramParams{
		Dir: programDir(t), Exclude: func(name string, _ fs.DirEntry) bool { return name == ".git" },
		Files: map[string][]byte{"agent/data.py": []byte("word = 'given'\n"), "x/y": nil}, Packages: []string{wheelFile(t, "numbers_of_it", "1.0", "")},
		Command: "python3 agent", Envs: map[string]string{"KEY": credential},
		Stdin: strings.NewReader("a task"), Stdout: &out, Stderr: &errOut,
	})
	var failed *sandbox.ExitError
	const want = "given " + credential + " a task ['agent', 'x']\n"
	if !errors.As(err, &failed) {
		t.Errorf("got %v, want a *sandbox.ExitError", err)
	}
	if result.ExitCode != 3 || result.Stdout != want {
		t.Errorf("got %+v, want exit code 3 and stdout %q", result, want)
	}
	if out.String() != want || errOut.String() != "failed\n" {
		t.Errorf("the writers got %q and %q, want %q and %q", out.String(), errOut.String(), want, "failed\n")
	}
	if got := sandboxtest.Eval(t, sb, "import os; 'KEY' in os.environ"); got != "False" {
		t.Error("the kernel has the program's environment")
	}
	removed(t, sb)
	for _, p := range []*sandbox.ProgramParams{
		nil, {}, {Files: map[string][]byte{"../x": nil}, Command: "true"}, {Dir: "no/such/directory", Command: "true"},
		{Packages: []string{"a; b"}, Command: "touch ran"},
	} {
		if _, err := sb.RunProgram(t.Context(), p); err == nil {
			t.Errorf("no error with %+v", p)
		}
	}
	removed(t, sb)
}

// removed waits until no file of the programs is left in the home directory.
func removed(t *testing.T, sb *sandbox.Sandbox) {
	t.Helper()
	patience.Until(t, "the program's directory is removed", func() bool {
		entries, err := sb.Files.List(t.Context(), ".", nil)
		must.Do(t, err)
		return !slices.ContainsFunc(entries, func(e sandbox.FileInfo) bool { return strings.HasPrefix(e.Name, ".e2bctl-program") })
	})
}

// TestRunProgramCancelled checks that the program of a cancelled call is killed, with all
// processes that it started, and removed.
func TestRunProgramCancelled(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result, err := sb.RunProgram(ctx, &sandbox.ProgramParams{
		Command: `mkdir -p a/closed; touch a/closed/file; chmod -R a-w a; sleep 1234 & (while :; do touch $RANDOM; done) & echo "$KEY"; wait`, Envs: map[string]string{"KEY": credential}, Stdout: whenWritten{cancel},
	})
	if !errors.Is(err, context.Canceled) || result == nil || result.Stdout != credential+"\n" {
		t.Errorf("got %+v, %v, want context.Canceled and stdout %v", result, err, credential+"\n")
	}
	patience.Until(t, "what the program started is killed", func() bool {
		return sandboxtest.Run(t, sb, "cat /proc/[0-9]*/comm | grep -c '^sleep$' || true") == "0"
	})
	removed(t, sb)
}

// Without namespaces the home directory is the only place for a program's files.
func TestRunProgramRestricted(t *testing.T) {
	t.Parallel()
	sb := sandboxtest.New(t, local.WithIsolation(local.Restricted)).Create(t)
	result, err := sb.RunProgram(t.Context(), &sandbox.ProgramParams{
		Files: map[string][]byte{"greeting": []byte("hello\n")}, Command: "cat greeting",
	})
	if err != nil || result.Stdout != "hello\n" {
		t.Errorf("got %+v, %v, want stdout %q and no error", result, err, "hello\n")
	}
	removed(t, sb)
}
