//go:build linux

package e2e

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pinned"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// wheelsOf returns the files of a set.
func wheelsOf(t *testing.T, set pinned.Set) []string {
	t.Helper()
	wheels, err := filepath.Glob(filepath.Join(set.Find(t), "wheels", "*.whl"))
	if err != nil || len(wheels) == 0 {
		t.Fatalf("got %d wheels of the packages %s, %v, want some", len(wheels), set.Name, err)
	}
	return wheels
}

// preparedCloud returns a cloud whose sandboxes run the Python that local setup prepares.
func preparedCloud(t *testing.T) *sandboxtest.Cloud {
	t.Helper()
	python, err := local.FindPython(t.Context())
	must.Do(t, err)
	if python.Level != "venv" {
		t.Skipf("sandboxes run %s, which has the kernels that it has: run e2bctl local setup", python.Path)
	}
	return shared(t)
}

// TestBash checks that every sandbox of the prepared Python runs Bash, in its default context and
// in a created one.
func TestBash(t *testing.T) {
	t.Parallel()
	sb := preparedCloud(t).Create(t, sandbox.WithEnvs(map[string]string{"GREETING": "hello"}))
	run := func(code string, p sandbox.RunCodeParams) string {
		t.Helper()
		execution, err := sb.RunCode(t.Context(), code, &p)
		if err != nil {
			t.Fatalf("%s: %v", code, err)
		}
		return execution.Stdout
	}
	got := run("echo $GREETING from $0; pwd; x=here", sandbox.RunCodeParams{Language: "bash"})
	if !strings.HasPrefix(got, "hello from ") || !strings.HasSuffix(got, "\n/home/user\n") {
		t.Errorf("got %q, want %q at its start and %q at its end", got, "hello from ", "\n/home/user\n")
	}
	// The variables of a call are set in the same context.
	if got := run("echo $GREETING $x", sandbox.RunCodeParams{Language: "bash", Envs: map[string]string{"GREETING": "hi"}}); got != "hi here\n" {
		t.Errorf("with a variable of the call: got %q, want %q", got, "hi here\n")
	}
	made, err := sb.Contexts.Create(t.Context(), &sandbox.CodeContextParams{Language: "bash", Cwd: "/tmp"})
	must.Do(t, err)
	if got := run("pwd; echo ${x-unset}", sandbox.RunCodeParams{Context: made.ID}); got != "/tmp\nunset\n" {
		t.Errorf("in a context of its own: got %q, want %q", got, "/tmp\nunset\n")
	}
}

// TestInstalledLanguage checks that a kernel installed in the sandbox runs code of its language
// there. Before the installation, the error names the missing kernel.
func TestInstalledLanguage(t *testing.T) {
	t.Parallel()
	sb := preparedCloud(t).Create(t)
	hello := func() (*sandbox.Execution, error) {
		return sb.RunCode(t.Context(), "echo hello", &sandbox.RunCodeParams{Language: "mine"})
	}
	if _, err := hello(); err == nil || !strings.Contains(err.Error(), "mine not found") {
		t.Errorf("before it is installed: %v, want an error with %q", err, "mine not found")
	}
	const advice = "after `e2bctl local setup --full` and a new start"
	if _, err := sb.RunCode(t.Context(), "1", &sandbox.RunCodeParams{Language: "java"}); !errors.Is(err, sandbox.ErrUnknownLanguage) || !strings.Contains(err.Error(), advice) {
		t.Errorf("got %v, want an error with %q", err, advice)
	}
	sandboxtest.Eval(t, sb, `import shutil, sys
shutil.copytree(sys.prefix + "/share/jupyter/kernels/bash", "/home/user/.local/share/jupyter/kernels/mine")`)
	if execution, err := hello(); err != nil || execution.Stdout != "hello\n" {
		t.Errorf("got %+v, %v; want stdout %q", execution, err, "hello\n")
	}
}

// The interpreter's first clients find the default kernel in a file.
func TestKernelIDFile(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	contexts, err := sb.Contexts.List(t.Context())
	must.Do(t, err)
	read, err := sb.Commands.Run(t.Context(), "cat ~root/.jupyter/kernel_id", &sandbox.CommandParams{User: "root"})
	must.Do(t, err)
	if got := sandbox.ContextID(read.Stdout); got != contexts[0].ID {
		t.Errorf("%q, want %q", got, contexts[0].ID)
	}
}
