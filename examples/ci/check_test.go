package ci

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/e2bctl/e2bctl/cli"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"e2bctl": func() { os.Exit(cli.Main()) }})
}

func TestCheck(t *testing.T) {
	sandboxtest.New(t, local.WithWarm(0)) // skips on a machine that cannot run a local cloud
	t.Setenv("DEPLOY_KEY", "of-the-runner")
	const test = "mkdir results; (echo ran; env; cat broken) > results/report 2>&1"
	for _, c := range []struct {
		name    string
		command string
		env     []string
		status  int
		report  string
		said    string
	}{
		{name: "success", command: "touch broken;" + test, report: "ran\n"},
		{name: "tests that fail", command: test, status: 1, report: "broken: No such file"},
		{name: "another status", command: test + "; exit 42", status: 42, report: "ran\n"},
		{name: "no internet", command: "mkdir results; ! curl -fsS http://example.com 2> results/report", report: "403"},
		{name: "too long", command: "sleep 100", env: []string{"CHECK_DEADLINE=2s"}, status: 124},
		{name: "no service", command: "true", env: []string{"E2BCTL_LOCAL=0", "E2B_API_KEY="}, status: 125, said: "attempt 2 failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			project, results := t.TempDir(), filepath.Join(t.TempDir(), "results")
			must.Do(t, os.WriteFile(filepath.Join(project, "file"), []byte("of the project\n"), 0o600))
			check := exec.CommandContext(t.Context(), "./check", project, results, "test -e file; "+c.command)
			check.Env = append(os.Environ(), c.env...)
			out, err := check.CombinedOutput()
			status := 0
			if failed, ok := errors.AsType[*exec.ExitError](err); ok {
				status = failed.ExitCode()
			} else if err != nil {
				t.Fatal(err)
			}
			if status != c.status || !strings.Contains(string(out), c.said) {
				t.Errorf("status %d, want %d and %q:\n%s", status, c.status, c.said, out)
			}
			report, err := os.ReadFile(filepath.Join(results, "report"))
			if c.report != "" && (err != nil || !strings.Contains(string(report), c.report)) {
				t.Errorf("the report is %q, %v", report, err)
			}
			if strings.Contains(string(report), "of-the-runner") {
				t.Error("the tests see the runner's variables")
			}
		})
	}
}
