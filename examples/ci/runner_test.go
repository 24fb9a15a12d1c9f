package ci

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/e2bctl/e2bctl/internal/must"
)

// step is a step of a workflow, or of a composite action.
type step struct {
	ID, Name, If, Uses, Shell, Run string
	Env                            map[string]string
}

// runner runs steps as the runner of GitHub Actions does.
type runner struct {
	t       *testing.T
	dir     string            // of the checkout
	path    string            // PATH
	env     []string          // of all steps
	values  map[string]string // of expressions
	log     string            // of all steps
	obeyed  []string          // the commands in the log that were obeyed
	skipped map[string]bool
}

// newRunner returns a runner for a job.
func newRunner(t *testing.T, values map[string]string, env ...string) *runner {
	r := &runner{t: t, dir: t.TempDir(), path: os.Getenv("PATH"), values: maps.Clone(values), skipped: map[string]bool{}}
	for _, setting := range os.Environ() {
		if name, _, _ := strings.Cut(setting, "="); !strings.HasPrefix(name, "E2B") && !strings.HasPrefix(name, "GITHUB_") {
			r.env = append(r.env, setting)
		}
	}
	r.env = append(append(r.env,
		"CI=true", "GITHUB_ACTIONS=true", "GITHUB_RUN_ID=7", "GITHUB_RUN_ATTEMPT=1", "GITHUB_REPOSITORY=octo/hello", "GITHUB_JOB=test",
		"RUNNER_NAME=runner-1", "RUNNER_TEMP="+t.TempDir(), "XDG_RUNTIME_DIR="+t.TempDir()), env...)
	return r
}

// run runs the steps, and returns the status of the first one that failed.
func (r *runner) run(steps []step) (status int) {
	r.t.Helper()
	for _, s := range steps {
		switch {
		case s.Uses != "" || status != 0 && s.If != "always()":
			r.skipped[s.Name] = true
			continue
		case s.If != "" && s.If != "always()":
			r.t.Fatalf("the condition %q is not known here", s.If)
		}
		if failed := r.step(s); status == 0 {
			status = failed
		}
	}
	return status
}

// step runs the script of a step, and reads the files that the script wrote for the runner.
func (r *runner) step(s step) (status int) {
	r.t.Helper()
	files := r.t.TempDir()
	script, output, path := filepath.Join(files, "script.sh"), filepath.Join(files, "output"), filepath.Join(files, "path")
	for name, content := range map[string]string{script: r.value(s.Run), output: "", path: ""} {
		must.Do(r.t, os.WriteFile(name, []byte(content), 0o600))
	}
	cmd := exec.CommandContext(r.t.Context(), "bash", "--noprofile", "--norc", "-eo", "pipefail", script)
	cmd.Dir = r.dir
	cmd.Env = append(append([]string{}, r.env...), "PATH="+r.path, "GITHUB_OUTPUT="+output, "GITHUB_PATH="+path)
	for name, value := range s.Env {
		cmd.Env = append(cmd.Env, name+"="+r.value(value))
	}
	log, err := cmd.CombinedOutput()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		status = failed.ExitCode()
	} else {
		must.Do(r.t, err)
	}
	r.log += fmt.Sprintf("--- %s: status %d\n%s", s.Name, status, log)
	r.obey(string(log))
	for line := range strings.Lines(r.read(output)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		r.values["steps."+s.ID+".outputs."+name] = value
	}
	for line := range strings.Lines(r.read(path)) {
		r.path = strings.TrimSuffix(line, "\n") + string(os.PathListSeparator) + r.path
	}
	return status
}

// obey notes the commands of a log, except where they are stopped.
func (r *runner) obey(log string) {
	stop := ""
	for line := range strings.Lines(log) {
		name, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "::"), "::")
		switch {
		case !ok || !strings.HasPrefix(strings.TrimSpace(line), "::"):
		case stop != "" && name == stop:
			stop = ""
		case stop == "" && name == "stop-commands":
			stop = value
		case stop == "":
			command, _, _ := strings.Cut(name, " ")
			r.obeyed = append(r.obeyed, command)
		}
	}
	if stop != "" {
		r.t.Errorf("the step ends, and the runner still obeys nothing:\n%s", log)
	}
}

// value replaces the expressions of a text.
func (r *runner) value(text string) string {
	return regexp.MustCompile(`\$\{\{ *([\w.-]+) *\}\}`).ReplaceAllStringFunc(text, func(expression string) string {
		value, ok := r.values[strings.Trim(expression, "${ }")]
		if !ok {
			r.t.Errorf("%s has no value", expression)
		}
		return value
	})
}

func (r *runner) read(name string) string {
	text, err := os.ReadFile(name)
	must.Do(r.t, err)
	return string(text)
}

// load reads a YAML file into to.
func load(t *testing.T, name string, to any) {
	t.Helper()
	text, err := os.ReadFile(name)
	must.Do(t, err)
	must.Do(t, yaml.Unmarshal(text, to))
}

// expressionsInScripts returns the lines of a YAML document where an expression is part of a script.
func expressionsInScripts(node *yaml.Node) (lines []int) {
	for i, child := range node.Content {
		isScript := node.Kind == yaml.MappingNode && i%2 == 1 && node.Content[i-1].Value == "run"
		if isScript && strings.Contains(child.Value, "${{") {
			lines = append(lines, child.Line)
		}
		lines = append(lines, expressionsInScripts(child)...)
	}
	return lines
}
