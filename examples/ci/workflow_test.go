package ci

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// action is action.yml.
type action struct {
	Inputs map[string]struct {
		Required bool
		Default  string
	}
	Outputs map[string]struct{ Value string }
	Runs    struct{ Steps []step }
}

// use runs the action with inputs, in a checkout that has a file.
func (a action) use(t *testing.T, inputs map[string]string, env ...string) (*runner, int) {
	t.Helper()
	values := map[string]string{}
	for name, input := range a.Inputs {
		values["inputs."+name] = input.Default
	}
	for name, value := range inputs {
		if _, ok := a.Inputs[name]; !ok {
			t.Fatalf("the action has no input %q", name)
		}
		values["inputs."+name] = value
	}
	r := newRunner(t, values, env...)
	must.Do(t, os.WriteFile(filepath.Join(r.dir, "file"), []byte("of the project\n"), 0o600))
	return r, r.run(a.Runs.Steps)
}

// service starts a local cloud that takes the place of the service, and returns its key and the
// variables of its addresses.
func service(t *testing.T) (key string, addresses []string) {
	t.Helper()
	sandboxtest.New(t, local.WithWarm(0)) // skips on a machine that cannot run a local cloud
	cloud, err := local.Start(t.Context(), local.WithWarm(0))
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, cloud.Close()) })
	return string(cloud.APIKey()), []string{"E2B_API_URL=" + cloud.URL(), "E2B_SANDBOX_URL=" + cloud.URL()}
}

// e2bctl runs the command in a job, and returns its output.
func e2bctl(t *testing.T, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "e2bctl", args...)
	cmd.Env = env
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("e2bctl %q: %v: %s", args, err, &errs)
	}
	return strings.TrimSpace(string(out))
}

// Inputs reach scripts as variables alone: an expression in a script is text of the script.
func TestScriptsHaveNoExpressions(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.yml")
	must.Do(t, err)
	if len(files) != 3 {
		t.Errorf("there are %q, want three files", files)
	}
	for _, name := range files {
		var document yaml.Node
		load(t, name, &document)
		if lines := expressionsInScripts(&document); len(lines) > 0 {
			t.Errorf("%s has expressions in scripts, on lines %v", name, lines)
		}
	}
	var bad yaml.Node
	must.Do(t, yaml.Unmarshal([]byte("steps:\n  - env: {A: '${{ inputs.a }}'}\n    run: echo ${{ inputs.a }}\n"), &bad))
	if diff := cmp.Diff([]int{3}, expressionsInScripts(&bad)); diff != "" {
		t.Errorf("an expression on line 3 (-want +found):\n%s", diff)
	}
}

func TestActionOnTheService(t *testing.T) {
	key, addresses := service(t)
	var a action
	load(t, "action.yml", &a)
	job := newRunner(t, nil, append(addresses, "E2B_API_KEY="+key)...).env
	left := e2bctl(t, job, "create", "--lifetime", "10m") // by a step that was killed
	other := e2bctl(t, append(slices.Clone(job), "RUNNER_NAME=runner-2"), "create", "--lifetime", "10m")

	r, status := a.use(t, map[string]string{
		"key": key, "results": "out dir", "deadline": "1m",
		"command": "mkdir 'out dir'; cat file >'out dir/copy'; echo '::add-mask::o'; echo \"$(echo su)bstituted\"; printf '::error::forged'; env",
	}, append(addresses, "DEPLOY_KEY=of-the-runner")...)
	if status != 0 || !strings.Contains(r.log, "\nsubstituted\n") || strings.Contains(r.log, "of-the-runner") {
		t.Errorf("status %d, want 0, the output and no variable of the runner:\n%s", status, r.log)
	}
	if diff := cmp.Diff([]string{"add-mask"}, r.obeyed); diff != "" { // for the key, of the last step
		t.Errorf("commands (-want +obeyed):\n%s", diff)
	}
	if got := r.read(filepath.Join(r.dir, "out dir", "copy")); got != "of the project\n" {
		t.Errorf("the result is %q", got)
	}
	if id := r.value(a.Outputs["sandbox"].Value); id == "" || !strings.Contains(r.log, "sandbox "+id+"\n") {
		t.Errorf("the output is %q, want the ID of the sandbox:\n%s", id, r.log)
	}
	if got := e2bctl(t, job, "ls", "-q"); got != other {
		t.Errorf("sandboxes %q are left, want %s of another job and not %s", got, other, left)
	}
}

func TestActionFails(t *testing.T) {
	key, addresses := service(t)
	var a action
	load(t, "action.yml", &a)
	for _, c := range []struct {
		name   string
		inputs map[string]string
		status int
		said   string
		obeyed []string
	}{
		{"the command", map[string]string{"command": "mkdir out; echo late >out/r; exit 3", "results": "out"}, 3, "", []string{"add-mask"}},
		{"by a limit", map[string]string{"command": "sleep 100", "deadline": "3s"}, 124, "the command took longer than 3s\n", []string{"error", "add-mask"}},
		{"because of a template", map[string]string{"command": "true", "template": "nosuch"}, 125, "'nosuch' not found", []string{"error", "add-mask"}},
		{"because of an input that would be a command", map[string]string{"command": "true", "project": "$(touch injected)`touch injected`\"; touch injected; \""}, 125, "uploading $(touch injected)", []string{"error", "add-mask"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.inputs["key"] = key
			r, status := a.use(t, c.inputs, addresses...)
			if status != c.status || !strings.Contains(r.log, c.said) {
				t.Errorf("status %d, want %d and %q:\n%s", status, c.status, c.said, r.log)
			}
			if diff := cmp.Diff(c.obeyed, r.obeyed); diff != "" {
				t.Errorf("commands (-want +obeyed):\n%s\n%s", diff, r.log)
			}
			if _, err := os.Stat(filepath.Join(r.dir, "injected")); err == nil {
				t.Error("the input was run as a command")
			}
			if c.inputs["results"] != "" && r.read(filepath.Join(r.dir, "out", "r")) != "late\n" {
				t.Error("the results of a command that failed are not there")
			}
		})
	}
}

func TestActionWithoutKey(t *testing.T) {
	sandboxtest.New(t, local.WithWarm(0)) // skips on a machine that cannot run a local cloud
	var a action
	load(t, "action.yml", &a)
	r, status := a.use(t, map[string]string{"command": "cat file; ! curl -fsS http://example.com"})
	if status != 0 || !strings.Contains(r.log, "of the project\n") || len(r.obeyed) > 0 {
		t.Errorf("status %d, and the runner obeys %q, want 0 and none:\n%s", status, r.obeyed, r.log)
	}
}

// TestActionInstalls checks that the action builds the e2bctl of its own repository if the
// machine has none.
func TestActionInstalls(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds e2bctl")
	}
	var a action
	load(t, "action.yml", &a)
	r := newRunner(t, nil)
	here, err := os.Getwd()
	must.Do(t, err)
	r.env = append(r.env, "GITHUB_ACTION_PATH="+here)
	var path []string
	for _, dir := range filepath.SplitList(r.path) {
		if _, err := os.Stat(filepath.Join(dir, "e2bctl")); err != nil {
			path = append(path, dir)
		}
	}
	r.path = strings.Join(path, string(os.PathListSeparator))
	status := r.run([]step{a.Runs.Steps[0], {Name: "found", Run: "command -v e2bctl; e2bctl version"}})
	if status != 0 || !strings.Contains(r.log, "e2bctl-bin/e2bctl\n") {
		t.Errorf("status %d, want 0 and the e2bctl that was built:\n%s", status, r.log)
	}
}

func TestWorkflow(t *testing.T) {
	key, addresses := service(t)
	var workflow struct {
		Jobs map[string]struct {
			Env   map[string]string
			Steps []step
		}
	}
	load(t, "workflow.yml", &workflow)
	job := workflow.Jobs["steps"]
	for _, c := range []struct {
		name, makefile string
		status         int
	}{
		{"the tests pass", "test:\n\t@echo tested in $$PWD\n", 0},
		{"the tests fail", "test:\n\t@echo tested in $$PWD; echo ::error::forged; exit 3\n", 2}, // make's status
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRunner(t, map[string]string{"secrets.E2B_API_KEY": key}, addresses...)
			for name, value := range job.Env {
				r.env = append(r.env, name+"="+r.value(value))
			}
			must.Do(t, os.WriteFile(filepath.Join(r.dir, "Makefile"), []byte(c.makefile), 0o600))
			status := r.run(job.Steps)
			if status != c.status || !strings.Contains(r.log, "tested in /home/user/project\n") {
				t.Errorf("status %d, want %d:\n%s", status, c.status, r.log)
			}
			if slices.Contains(r.obeyed, "error") || r.skipped["Kill"] {
				t.Errorf("commands %q were obeyed, want no error, and the last step to run:\n%s", r.obeyed, r.log)
			}
			if got := e2bctl(t, r.env, "ls", "-q"); got != "" {
				t.Errorf("sandboxes %q are left:\n%s", got, r.log)
			}
		})
	}
}

// GitLab's runner gives the lines of before_script and script to one shell, and after_script to
// another, also when the first one failed.
func TestGitLab(t *testing.T) {
	key, addresses := service(t)
	var file struct {
		Sandbox struct {
			BeforeScript []string `yaml:"before_script"`
			Script       []string
			AfterScript  []string `yaml:"after_script"`
		}
	}
	load(t, "gitlab-ci.yml", &file)
	r := newRunner(t, nil, append(addresses, "E2B_API_KEY="+key, "GITHUB_ACTIONS=", "GITLAB_CI=true", "CI_PIPELINE_ID=40",
		"CI_PROJECT_PATH=group/project", "CI_JOB_NAME=sandbox", "CI_JOB_ID=97")...)
	must.Do(t, os.WriteFile(filepath.Join(r.dir, "Makefile"), []byte("test:\n\t@mkdir results; echo ran >results/report\n"), 0o600))
	left := e2bctl(t, r.env, "create", "--lifetime", "10m")
	status := r.run([]step{
		{Name: "script", Run: strings.Join(append(file.Sandbox.BeforeScript, file.Sandbox.Script...), "\n")},
		{Name: "after_script", If: "always()", Run: strings.Join(file.Sandbox.AfterScript, "\n")},
	})
	if status != 0 || !strings.Contains(r.log, "\n"+left+"\n") {
		t.Errorf("status %d, want 0, and %s to be killed:\n%s", status, left, r.log)
	}
	if got := r.read(filepath.Join(r.dir, "results", "report")); got != "ran\n" {
		t.Errorf("the report is %q", got)
	}
	if got := e2bctl(t, r.env, "ls", "-q"); got != "" {
		t.Errorf("sandboxes %q are left", got)
	}
}
