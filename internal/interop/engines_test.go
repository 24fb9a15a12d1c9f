//go:build linux

package interop

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker/dockertest"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// leftOut are cases that need what an engine may lack.
type leftOut struct {
	feature engine.Feature
	why     string   // they need it
	js      []string // the cases of the one SDK
	python  []string // and of the other
}

// needy are the cases that need more than any engine has. An engine runs those whose feature
// it promises.
var needy = []leftOut{
	{engine.TwoUsers, "they ask who runs a command or owns a file", []string{
		"commands/run returns output and status", "commands/user, cwd and envs", "files/a file is overwritten and belongs to its user",
		"templates/a template of a Dockerfile", "templates/a template with every step", "templates/a template with packages and a repository",
		"templates/templates from images", "urls/an upload URL is enough",
	}, []string{
		"commands/run_returns_output_and_status", "commands/user_cwd_and_envs", "files/a_file_is_overwritten_and_belongs_to_its_user",
		"templates/a_template_of_a_Dockerfile", "templates/a_template_with_every_step", "templates/a_template_with_packages_and_a_repository",
		"templates/templates_from_images", "urls/an_upload_url_is_enough",
	}},
	{
		engine.DiskLimit, "they ask how large the disk is",
		[]string{"metrics/metrics"},
		[]string{"metrics/metrics"},
	},
	{
		engine.Volumes, "their sandboxes share one",
		[]string{"volumes/sandboxes share it"},
		[]string{"volumes/sandboxes_share_it"},
	},
	{
		engine.HeaderRules, "their rules put headers into requests",
		[]string{"secrets/rules put them into headers"},
		[]string{"secrets/rules_put_them_into_headers"},
	},
	{
		engine.Images, "their templates are from images",
		[]string{"templates/a template of a Dockerfile from an image"},
		[]string{"templates/a_template_of_a_dockerfile_from_an_image"},
	},
}

// TestNeedy checks that each reason for leaving out a case is a feature of the table.
func TestNeedy(t *testing.T) {
	t.Parallel()
	for _, one := range needy {
		if !slices.Contains(engine.Features, one.feature) || one.why == "" {
			t.Errorf("%q, because %q, is no feature of engines with a reason", one.feature, one.why)
		}
	}
}

// TestDockerClients runs all cases of the newest SDKs in containers, but for those that need
// what the engine does not promise.
func TestDockerClients(t *testing.T) {
	if !dockertest.Wanted() {
		t.Skip("make check-engines runs this test, as root")
	}
	program := e2bctl(t)
	python := preparedPython(t, program)
	t.Setenv("PATH", filepath.Dir(python)+":"+os.Getenv("PATH")) // the Python of the daemon's images
	daemon := dockertest.Own(t, t.TempDir())
	addUsualImage(t, daemon, python)
	t.Setenv("DOCKER_HOST", daemon.Host())
	promises := promisesOf(t, local.WithEngine(local.EngineDocker), local.WithBinary(program))

	server := up(t, program, t.TempDir(), "--engine", "docker", "--registry-mirror", "docker.io="+mirror(t))
	defer server.down(t)
	buildGateway(t, server.env)
	t.Run("js", func(t *testing.T) {
		without := leaveOut(t, promises, func(one leftOut) []string { return one.js })
		driveJS(t, append(without, server.env...), "newest", "cases")
	})
	t.Run("python", func(t *testing.T) {
		without := leaveOut(t, promises, func(one leftOut) []string { return one.python })
		drivePython(t, append(without, server.env...), "newest", "cases", "asynchronous")
	})
}

// preparedPython returns the Python that "e2bctl local setup" prepares.
func preparedPython(t *testing.T, program string) string {
	t.Helper()
	setup := exec.CommandContext(t.Context(), program, "local", "setup")
	var stderr strings.Builder
	setup.Stderr = &stderr
	python, err := setup.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", setup, err, &stderr)
	}
	return strings.TrimSpace(string(python))
}

// promisesOf returns why a cloud lacks what it lacks.
func promisesOf(t *testing.T, options ...local.Option) map[engine.Feature]string {
	t.Helper()
	cloud, err := local.Start(t.Context(), options...)
	if err != nil {
		t.Fatal(err)
	}
	defer cloud.Close()
	missing := map[engine.Feature]string{}
	for _, p := range cloud.Report().Promises {
		missing[engine.Feature(p.Feature)] = p.Missing
	}
	return missing
}

// leaveOut returns the variable that has a client leave out the cases which need what is
// missing, and skips them by name.
func leaveOut(t *testing.T, missing map[engine.Feature]string, of func(leftOut) []string) []string {
	t.Helper()
	names := []string{}
	for _, one := range needy {
		if missing[one.feature] == "" {
			continue
		}
		for _, name := range of(one) {
			names = append(names, name)
			t.Run(name, func(t *testing.T) { t.Skipf("%s: the engine lacks %q: %s", one.why, one.feature, missing[one.feature]) })
		}
	}
	list, err := json.Marshal(names)
	if err != nil {
		t.Fatal(err)
	}
	return []string{"LEFT_OUT=" + string(list)}
}
