package sandbox

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/kernelconn"
	"github.com/e2bctl/e2bctl/internal/lazyregexp"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// A sandbox with Python in WebAssembly has no processes, and therefore neither pip nor a
// network. pip runs for it in a second sandbox, with the same network rules, during the call.
// There pip finds and downloads wheels; it builds and runs nothing. This handle copies them to
// the first sandbox, whose own Python unpacks them. The content of a wheel is therefore handled
// only inside sandboxes.

// pipTemplate is the template of the second sandbox, in which pip runs for a Python in WebAssembly.
// Every local cloud has this template.
const pipTemplate = "base-room"

// wasmPython describes a Python in WebAssembly for pip.
type wasmPython struct {
	Version string `json:"version"`
	// the platforms of wheels that the Python accepts, best first
	Platforms []string          `json:"platforms"`
	Markers   map[string]string `json:"markers"` // environment markers, for conditions of requirements

	dist *wasmDist // the Pyodide distribution in pip's sandbox; nil: there is none, or pip has not run
}

// wasmScript is code that runs a script in a context in which other scripts may have run before.
const wasmScript = `import json, sys
sys.stdout, sys.stderr, sys.argv = sys.__stdout__, sys.__stderr__, json.loads(%q)
%s`

// wasmPlace returns the place for a sandbox whose Python runs in WebAssembly. Scripts of the place
// run in a separate code context, which ends when the place is closed.
func (sb *Sandbox) wasmPlace(ctx context.Context) (*place, error) {
	made, err := sb.code.kernels.Create(ctx, kernelconn.Context{Language: kernelconn.DefaultLanguage})
	if err != nil {
		return nil, sb.failed(ctx, "create a context for packages", err)
	}
	var second *Sandbox
	p := &place{sb: sb, wasm: &wasmPython{}, run: func(ctx context.Context, script string, arguments []string, timeout time.Duration) (string, error) {
		ctx, release := limited(ctx, timeout)
		defer release()
		argv, err := json.Marshal(append([]string{""}, arguments...))
		if err != nil {
			return "", err
		}
		e, err := sb.collectCode(ctx, fmt.Sprintf(wasmScript, argv, script), &RunCodeParams{Context: ContextID(made.ID), MaxOutputBytes: 16 << 20}, nil)
		if e == nil {
			return "", err
		}
		return e.Stdout, err
	}}
	p.pip = func(ctx context.Context) (*Sandbox, error) {
		if second == nil {
			if second, err = sb.newPipSandbox(ctx, p.wasm); err != nil {
				return nil, err
			}
		}
		return second, nil
	}
	p.close = func(ctx context.Context) {
		sb.background(ctx, func(ctx context.Context) {
			_ = sb.code.kernels.Remove(ctx, made.ID) // otherwise it ends with the sandbox
			if second != nil {
				_ = second.Close() // otherwise it ends with its lease
			}
		})
	}
	const script = `import os, platform, sysconfig
abi = sysconfig.get_config_var("PYEMSCRIPTEN_PLATFORM_VERSION")
host = sysconfig.get_platform().replace("-", "_").replace(".", "_")
version = platform.python_version()
print(json.dumps({"version": version, "platforms": ["pyemscripten_%s_wasm32" % abi, host], "markers": {
    "implementation_name": sys.implementation.name, "implementation_version": version, "os_name": os.name,
    "platform_machine": platform.machine(), "platform_python_implementation": platform.python_implementation(),
    "platform_release": platform.release(), "platform_system": platform.system(), "platform_version": platform.version(),
    "python_full_version": version, "python_version": "%d.%d" % sys.version_info[:2], "sys_platform": sys.platform}}))`
	if err := p.python(ctx, script, nil, p.wasm); err != nil {
		p.close(ctx)
		return nil, sb.failed(ctx, "find out which packages its Python takes", err)
	}
	return p, nil
}

// newPipSandbox creates a sandbox in which pip runs for sb.
func (sb *Sandbox) newPipSandbox(ctx context.Context, python *wasmPython) (*Sandbox, error) {
	info, err := sb.client.api.Sandboxes.Get(ctx, sb.ID())
	if err != nil {
		return nil, sb.failed(ctx, "install packages", missing(sb.ID(), err))
	}
	cfg := sandboxConfig{
		template: pipTemplate, wheels: &wheelCache{limit: -1},
		metadata: map[string]string{protocol.PipFor: sb.ID()}, internet: info.AllowInternetAccess, network: info.Egress,
	}
	if cfg.network != nil {
		cfg.network.Ask = false // the questions belong to the first sandbox
	}
	second, err := sb.client.create(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("sandbox: install packages in %s: its Python is in WebAssembly and has no pip, so one in a second sandbox is needed: %w", sb.ID(), err)
	}
	if python.dist, err = readWasmDist(ctx, second); err != nil {
		return nil, errors.Join(fmt.Errorf("sandbox: install packages in %s: %w", sb.ID(), err), second.Close())
	}
	return second, nil
}

// pipWithMarkers is a Python script. It runs pip for a Python whose environment markers have other
// values than those of pip's own Python. pip has options for versions and platforms, but not for
// markers.
const pipWithMarkers = `import json, runpy, sys
from pip._vendor.packaging import markers
values = json.loads(sys.argv.pop(1))
markers.default_environment = lambda: dict(values)
sys.argv[0] = "pip"
runpy.run_module("pip", run_name="__main__", alter_sys=True)`

// pip returns the arguments with which Python runs pip.
func (w *wasmPython) pip() []string {
	if w == nil {
		return []string{"-m", "pip"}
	}
	values, _ := json.Marshal(w.Markers) // strings can always be encoded
	return []string{"-c", pipWithMarkers, string(values)}
}

// arguments adds the options for the accepted wheels to pip's arguments. pip must not build
// anything.
func (w *wasmPython) arguments(arguments []string) []string {
	if w == nil {
		return arguments
	}
	minor := strings.Join(strings.SplitN(w.Version, ".", 3)[:2], ".")
	all := append(slices.Clone(arguments), "--only-binary", ":all:", "--python-version", minor, "--implementation", "cp", "--abi", "cp"+strings.ReplaceAll(minor, ".", ""))
	for _, platform := range w.Platforms {
		all = append(all, "--platform", platform)
	}
	if arguments[0] == "install" { // pip requires a target directory for another Python
		all = append(all, "--target", "/tmp/nowhere")
	}
	if w.dist != nil {
		all = append(all, "--find-links", protocol.PyodideDist)
	}
	return all
}

var noWheel = lazyregexp.New(`No matching distribution found for ([^\n]+)`)

// explain returns the reason for a missing wheel, or "" if pip failed for another reason.
func (w *wasmPython) explain(stderr string) string {
	match := noWheel().FindStringSubmatch(stderr)
	if w == nil || match == nil {
		return ""
	}
	text := fmt.Sprintf("%s: the index has no wheel for Python %s in WebAssembly (%s), nor one for every system", clip.Text(match[1], 128), w.Version, strings.Join(w.Platforms, ", "))
	if w.dist != nil {
		return text + "; nor has the Pyodide distribution of the local cloud"
	}
	return text + "; numpy, pandas and more are in a full Pyodide distribution: start the local cloud with its directory (WasmParams.PyodideDist, --pyodide-dist)"
}

// installResolved installs requirements and their dependencies, in the versions that an index
// has now.
func (p *Packages) installResolved(ctx context.Context, place *place, run *pipRun, requirements []string, have *site) error {
	lock, err := run.resolve(ctx, requirements)
	if err != nil {
		return err
	}
	return p.installWheels(ctx, place, lock.withoutInstalled(have), func() (*pipRun, error) { return run, nil })
}

// installWheels installs the packages of a lock. Wheels come from the cache of this machine. start
// prepares the run of pip that downloads the wheels that are not in the cache.
func (p *Packages) installWheels(ctx context.Context, place *place, lock *LockFile, start func() (*pipRun, error)) error {
	if len(lock.Packages) == 0 {
		return nil
	}
	to := &pipRun{sb: p.sb, directory: newPipDirectory()}
	defer p.sb.background(ctx, func(ctx context.Context) {
		_ = p.sb.Files.Remove(ctx, to.directory, &PathParams{User: "root"}) // the directory may be missing
	})
	absent, err := p.bring(ctx, to, lock, to.directory)
	if err != nil {
		return err
	}
	if len(absent.Packages) > 0 {
		run, err := start()
		if err != nil {
			return err
		}
		if err := p.fetch(ctx, run, absent, to.directory); err != nil {
			return err
		}
	}
	return place.unpack(ctx, to.directory)
}

// fetch makes pip download the wheels of a lock, and copies them into a directory of the
// sandbox.
func (p *Packages) fetch(ctx context.Context, run *pipRun, lock *LockFile, directory string) error {
	file, err := run.requirements(ctx, "lock.txt", lock)
	if err != nil {
		return err
	}
	wheels := run.path("wheels")
	if err := run.run(ctx, "download", "--no-deps", "--require-hashes", "--find-links", run.directory, "--dest", wheels, "-r", file); err != nil {
		return err
	}
	fetched, err := run.sb.Files.List(ctx, wheels, &ListFilesParams{User: "root"})
	if err != nil {
		return err
	}
	group, passing := errgroup.WithContext(ctx)
	group.SetLimit(parallelWrites)
	for _, wheel := range fetched {
		group.Go(func() error { return p.pass(passing, run, wheel.Path, path.Join(directory, wheel.Name)) })
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("sandbox: install packages: %w", err)
	}
	if p.wheels.enabled() {
		toKeep := &LockFile{}
		for _, one := range lock.Packages {
			if one.File != "" {
				toKeep.Packages = append(toKeep.Packages, one)
			}
		}
		p.keepAll(ctx, run, toKeep, wheels)
	}
	return nil
}

// pass copies a file from pip's sandbox to sb.
func (p *Packages) pass(ctx context.Context, run *pipRun, from, to string) error {
	f, err := run.sb.Files.Open(ctx, from, &FileParams{User: "root"})
	if err != nil {
		return err
	}
	defer f.Close()
	return p.sb.Files.WriteFrom(ctx, to, f, &FileParams{User: "root"})
}

//go:embed packages_pyodide.py
var unpackWheels string

// unpack installs the wheels from a directory of the sandbox.
func (p *place) unpack(ctx context.Context, directory string) error {
	var done struct{ Error string }
	if err := p.python(ctx, unpackWheels, []string{directory}, &done); err != nil {
		return p.sb.failed(ctx, "unpack packages", err)
	}
	if done.Error != "" {
		return fmt.Errorf("sandbox: unpack packages in %s: %s: %w", p.sb.ID(), clip.Text(done.Error, 512), api.ErrInvalidArgument)
	}
	return nil
}
