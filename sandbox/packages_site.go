package sandbox

import (
	"bufio"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/e2bctl/e2bctl/internal/clip"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/pip"
)

// site describes the packages of the sandbox's Python.
type site struct {
	// Directory is the directory in which pip installs packages.
	Directory string `json:"directory"`
	// Packages contains the versions of the packages by name.
	Packages map[string]string `json:"packages"`
}

// versions returns the versions by normalized name.
func (s *site) versions() map[string]string {
	versions := make(map[string]string, len(s.Packages))
	for name, version := range s.Packages {
		versions[pip.Normalize(name)] = version
	}
	return versions
}

// siteDirectory is the state of a directory of packages. Every run of pip changes the state.
type siteDirectory struct {
	path    string
	changed time.Time
}

const (
	// verifyTimeout limits the time of a verification's imports.
	verifyTimeout = time.Minute
	// maxKnown limits the number of installations that a handle remembers.
	maxKnown = 100
)

func (p *place) site(ctx context.Context) (*site, error) {
	const script = `import importlib.metadata as m, json, site, sys, sysconfig
found = {}
for d in m.distributions():
    name = d.metadata["Name"]
    if name:
        found.setdefault(name, d.version)
directory = site.USER_SITE if sys.platform == "emscripten" else sysconfig.get_path("purelib")
print(json.dumps({"directory": directory, "packages": found}))`
	var found site
	if err := p.python(ctx, script, nil, &found); err != nil {
		return nil, p.sb.failed(ctx, "list packages", err)
	}
	return &found, nil
}

// topModules is Python code. It defines a function that returns the top-level modules of a
// distribution.
const topModules = `import importlib.metadata as m, json, sys
def tops(name):
    d = m.distribution(name)
    listed = (d.read_text("top_level.txt") or "").split()
    found = {f.parts[0].split(".")[0] for f in d.files or [] if f.suffix in (".py", ".so", ".pyd")}
    return sorted(n for n in listed or found if n.isidentifier())
`

// verify imports the modules of packages in a separate Python process, and returns the imports that
// failed. The process reports each import before the import starts. A crash or a hang also counts
// as a failure.
func (p *place) verify(ctx context.Context, packages []string) ([]ImportFailure, error) {
	if len(packages) == 0 {
		return nil, nil
	}
	const script = topModules + `import importlib, io, os
if sys.platform == "emscripten":
    said = sys.stdout
    sys.stdout = sys.stderr = io.StringIO()
else:
    said = os.fdopen(os.dup(1), "w")
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
for package in sys.argv[1:]:
    for module in tops(package):
        print(json.dumps({"package": package, "module": module}), file=said, flush=True)
        try:
            importlib.import_module(module)
            error = ""
        except KeyboardInterrupt:
            raise
        except BaseException as e:
            error = "%s: %s" % (type(e).__name__, str(e)[:500])
        print(json.dumps({"error": error}), file=said, flush=True)
said.flush()
if sys.platform != "emscripten":
    os._exit(0)`
	text, err := p.run(ctx, script, packages, verifyTimeout)
	died := stopped(ctx, err, verifyTimeout)
	if err != nil && died == "" {
		return nil, p.sb.failed(ctx, "import what was installed", err)
	}
	failures, open := importFailures(text)
	if died != "" {
		open.Error = died
		failures = append(failures, open)
	}
	return failures, nil
}

// importFailures parses the report that the Python process of verify prints. It returns the
// failures, and the import during which the process stopped.
func importFailures(text string) (failures []ImportFailure, open ImportFailure) {
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		var line struct {
			Package, Module string
			Error           *string
		}
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue
		}
		if line.Error == nil {
			open = ImportFailure{Package: line.Package, Module: line.Module}
			continue
		}
		if *line.Error != "" {
			open.Error = clip.Text(*line.Error, 1024)
			failures = append(failures, open)
		}
		open = ImportFailure{}
	}
	return failures, open
}

// loaded returns those of the upgraded packages that the default context has imported, and makes
// the new packages visible to that context. The result is only a convenience, so loaded ignores a
// busy or missing context and any failure.
func (p *Packages) loaded(ctx context.Context, place *place, upgraded []string) []string {
	k := p.sb.code.kernels.Opened("python")
	if k == nil {
		return nil
	}
	const modules = "modules"
	reply, err := k.ExecuteIfFree(ctx, jupyter.ExecuteRequest{
		Code: "__import__('importlib').invalidate_caches()", Silent: true,
		UserExpressions: map[string]string{modules: `','.join({m.split('.')[0] for m in __import__('sys').modules})`},
	})
	if err != nil || len(upgraded) == 0 {
		return nil
	}
	text := Result{Data: reply.UserExpressions[modules].Data}.Text()
	const script = topModules + `print(json.dumps({name: tops(name) for name in sys.argv[1:]}))`
	var tops map[string][]string
	if place.python(ctx, script, upgraded, &tops) != nil {
		return nil
	}
	in := strings.Split(text, ",")
	var stale []string
	for name, top := range tops {
		if slices.ContainsFunc(top, func(module string) bool { return slices.Contains(in, module) }) {
			stale = append(stale, name)
		}
	}
	slices.Sort(stale)
	return stale
}

// known returns the result of an earlier call with the same key, if no package has been installed
// or removed since that call.
func (p *Packages) known(ctx context.Context, key string) *Installation {
	p.mu.Lock()
	done, left := p.done[key], p.left
	p.mu.Unlock()
	if done == nil || p.look(ctx, left.path) != left {
		return nil
	}
	again := done.clone()
	again.RestartNeeded = nil
	return again
}

// remember stores an installation under key, so that [Packages.known] finds it. left is the state
// that the directory of the packages had before the packages were listed. If left is zero, remember
// stores nothing.
func (p *Packages) remember(key string, done *Installation, left siteDirectory) {
	if left == (siteDirectory{}) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left != left || len(p.done) >= maxKnown {
		p.done, p.left = map[string]*Installation{}, left
	}
	p.done[key] = done.clone()
}

func (i *Installation) clone() *Installation {
	cloned := *i
	cloned.Packages, cloned.RestartNeeded, cloned.Renamed = slices.Clone(i.Packages), slices.Clone(i.RestartNeeded), slices.Clone(i.Renamed)
	cloned.Excluded, cloned.NotImportable = slices.Clone(i.Excluded), slices.Clone(i.NotImportable)
	return &cloned
}

// look returns the present state of a directory, or the zero value if the daemon does not report
// the state.
func (p *Packages) look(ctx context.Context, path string) siteDirectory {
	info, err := p.sb.Files.Stat(ctx, path, &PathParams{User: "root"})
	if err != nil || info.ModTime.IsZero() {
		return siteDirectory{}
	}
	return siteDirectory{path, info.ModTime}
}
