//go:build linux

package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/pinned"
	"github.com/e2bctl/e2bctl/sandbox"
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

// A kernel that is installed in the sandbox runs code of its language there.
func TestInstalledLanguage(t *testing.T) {
	t.Parallel()
	kernels := wheelsOf(t, kernelWheels)
	sb := shared(t).Create(t, sandbox.WithEnvs(map[string]string{"GREETING": "hello"}))
	run := func(code string, envs map[string]string) (*sandbox.Execution, error) {
		return sb.RunCode(t.Context(), code, &sandbox.RunCodeParams{Language: "bash", Envs: envs})
	}
	const hello = "echo $GREETING from $0; pwd; x=here"
	if _, err := run(hello, nil); err == nil || !strings.Contains(err.Error(), "bash not found") {
		t.Errorf("before it is installed: %v, want an error with %q", err, "bash not found")
	}
	if _, err := sb.Packages.Install(t.Context(), kernels, nil); err != nil {
		t.Fatal(err)
	}
	const install = "import subprocess, sys; subprocess.run([sys.executable, '-m', 'bash_kernel.install', '--sys-prefix'], check=True)"
	if _, err := sb.RunCode(t.Context(), install, nil); err != nil {
		t.Fatal(err)
	}
	execution, err := run(hello, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := execution.Stdout; !strings.HasPrefix(got, "hello from ") || !strings.HasSuffix(got, "\n/home/user\n") {
		t.Errorf("got %q, want %q at its start and %q at its end", got, "hello from ", "\n/home/user\n")
	}
	// The variables of a call are set in the same context.
	if execution, err := run("echo $GREETING $x", map[string]string{"GREETING": "hi"}); err != nil || execution.Stdout != "hi here\n" {
		t.Errorf("with a variable of the call: %+v, %v, want stdout %q and no error", execution, err, "hi here\n")
	}
}

// The interpreter's first clients find the default kernel in a file.
func TestKernelIDFile(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	contexts, err := sb.Contexts.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	read, err := sb.Commands.Run(t.Context(), "cat ~root/.jupyter/kernel_id", &sandbox.CommandParams{User: "root"})
	if err != nil {
		t.Fatal(err)
	}
	if got := read.Stdout; got != contexts[0].ID {
		t.Errorf("%q, want %q", got, contexts[0].ID)
	}
}
