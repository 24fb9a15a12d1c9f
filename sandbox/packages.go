package sandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/jupyter"
)

// Packages installs packages of Python. It is safe for concurrent use.
type Packages struct {
	sb *Sandbox
	// credentials says that addresses with a password in them may go along.
	credentials bool
}

// Installation is what an installation did.
type Installation struct {
	// Packages are those asked for, and those that came or changed with them,
	// sorted by name.
	Packages []Package
	// RestartNeeded names packages that changed while code of the default
	// context has them loaded: it sees the old ones until it is restarted.
	RestartNeeded []string
}

// Package is an installed package.
type Package struct{ Name, Version string }

// RequirementError is a requirement that is refused before anything is sent.
// It is [api.ErrInvalidArgument].
type RequirementError struct {
	Requirement string
	Reason      string
}

func (e *RequirementError) Error() string {
	return fmt.Sprintf("sandbox: requirement %q: %s", shorten(e.Requirement, 128), e.Reason)
}

// Is matches [api.ErrInvalidArgument].
func (e *RequirementError) Is(target error) bool { return target == api.ErrInvalidArgument }

// InstallError is an installation that pip refused or failed at.
type InstallError struct {
	Requirements []string
	// ExitCode is pip's.
	ExitCode int
	// Stderr is the end of what pip said, at most 4 KiB.
	Stderr string
	// Offline says that the sandbox was created without internet, or that all is
	// denied to it but what its network rules allow: the index has to be among that.
	Offline bool
}

func (e *InstallError) Error() string {
	text := lastLine(e.Stderr)
	for line := range strings.Lines(e.Stderr) {
		if strings.HasPrefix(line, "ERROR:") {
			text = shorten(strings.TrimSpace(line), 256)
		}
	}
	if e.Offline {
		text += "; the sandbox reaches only what its network rules allow (WithInternet, WithNetwork), and the package index is to be among that"
	}
	return fmt.Sprintf("sandbox: install %s: pip ended with status %d: %s", shorten(strings.Join(e.Requirements, " "), 128), e.ExitCode, text)
}

const (
	maxInstallStderr = 4 << 10
	pipPython        = "python3"
)

// pipEnvs keep pip from asking, from looking for itself, and from refusing to
// touch the Python of a system that is the sandbox's alone.
var pipEnvs = map[string]string{
	"PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore",
	"PIP_BREAK_SYSTEM_PACKAGES": "1", "PIP_PROGRESS_BAR": "off",
}

// Install installs packages for the sandbox's Python, as root. A requirement is
// a name with or without extras, versions and a marker ("humanize==4.*",
// "pandas[excel]>=2"), or the path of a wheel on this machine, which is
// uploaded. Options, addresses and anything else are a [*RequirementError]. What
// pip fails at is an [*InstallError].
//
// That pip is told what this machine's pip knows by its environment (PIP_*) and
// its configuration files: index, further indexes, trusted hosts, certificates,
// timeout and retries. Addresses with credentials are left out unless
// [WithPipCredentials] was given.
func (p *Packages) Install(ctx context.Context, requirements ...string) (*Installation, error) {
	wheels, names, err := parseRequirements(requirements)
	if err != nil {
		return nil, err
	}
	settings, err := readPipSettings(p.credentials)
	if err != nil {
		return nil, err
	}
	ctx, end, err := p.sb.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	arguments := slices.Clone(requirements)
	directory := "/tmp/e2bctl-" + jupyter.NewID()
	certificates := directory + "/certificates.pem"
	if len(wheels) > 0 || settings.certificates != nil {
		defer p.sb.background(ctx, func(ctx context.Context) {
			_, _ = p.sb.Commands.run(ctx, []string{"rm", "-rf", directory}, &CommandParams{User: "root"})
		})
		for i, wheel := range wheels {
			if arguments[i], err = p.upload(ctx, wheel, directory); err != nil {
				return nil, err
			}
		}
		if settings.certificates != nil {
			if err := p.sb.Files.Write(ctx, certificates, settings.certificates, &FileParams{User: "root"}); err != nil {
				return nil, err
			}
		}
	}
	before, err := p.installed(ctx)
	if err != nil {
		return nil, err
	}
	argv := append([]string{pipPython, "-m", "pip", "install"}, arguments...)
	result, err := p.sb.Commands.run(ctx, argv, &CommandParams{User: "root", Cwd: "/", Envs: settings.environment(certificates), MaxOutput: 64 << 10})
	if failed, ok := errors.AsType[*ExitError](err); ok {
		return nil, &InstallError{
			Requirements: requirements, ExitCode: failed.Result.ExitCode, Stderr: tail(result.Stderr, maxInstallStderr),
			Offline: p.sb.offline(ctx),
		}
	}
	if err != nil {
		return nil, p.sb.failed(ctx, "install packages", err)
	}
	after, err := p.installed(ctx)
	if err != nil {
		return nil, err
	}
	installation := &Installation{}
	var upgraded []string
	for name, version := range after {
		old, was := before[name]
		if old != version || slices.Contains(names, normalized(name)) {
			installation.Packages = append(installation.Packages, Package{name, version})
		}
		if was && old != version {
			upgraded = append(upgraded, name)
		}
	}
	slices.SortFunc(installation.Packages, func(a, b Package) int { return cmp.Compare(a.Name, b.Name) })
	installation.RestartNeeded = p.loaded(ctx, upgraded)
	return installation, nil
}

// upload gives the path of a wheel in the sandbox.
func (p *Packages) upload(ctx context.Context, wheel, directory string) (string, error) {
	f, err := os.Open(wheel)
	if err != nil {
		return "", fmt.Errorf("sandbox: install packages: %w", err)
	}
	defer f.Close()
	path := directory + "/" + filepath.Base(wheel)
	return path, p.sb.Files.WriteFrom(ctx, path, f, &FileParams{User: "root"})
}

// installed lists what the sandbox's Python has, by name.
func (p *Packages) installed(ctx context.Context) (map[string]string, error) {
	const script = `import importlib.metadata as m, json
found = {}
for d in m.distributions():
    name = d.metadata["Name"]
    if name:
        found.setdefault(name, d.version)
print(json.dumps(found))`
	var found map[string]string
	return found, p.python(ctx, script, nil, &found)
}

// python runs a script that prints JSON.
func (p *Packages) python(ctx context.Context, script string, arguments []string, out any) error {
	argv := append([]string{pipPython, "-c", script}, arguments...)
	result, err := p.sb.Commands.run(ctx, argv, &CommandParams{User: "root", Cwd: "/", MaxOutput: 16 << 20})
	if err == nil {
		err = json.Unmarshal([]byte(result.Stdout), out)
	}
	if err != nil {
		return p.sb.failed(ctx, "list packages", err)
	}
	return nil
}

// loaded tells which of the packages the default context has loaded, and makes
// it see what is new. That is a service to the caller: a context that is busy
// or not open, or a failure, is no reason to fail.
func (p *Packages) loaded(ctx context.Context, upgraded []string) []string {
	k := p.sb.code.open("python")
	if k == nil {
		return nil
	}
	const modules = "modules"
	reply, err := k.whenFree(ctx, jupyter.ExecuteRequest{
		Code: "__import__('importlib').invalidate_caches()", Silent: true,
		UserExpressions: map[string]string{modules: `','.join({m.split('.')[0] for m in __import__('sys').modules})`},
	})
	if err != nil || len(upgraded) == 0 {
		return nil
	}
	text := Result{Data: reply.UserExpressions[modules].Data}.Text()
	const script = `import importlib.metadata as m, json, sys
found = {}
for name in sys.argv[1:]:
    d = m.distribution(name)
    top = (d.read_text("top_level.txt") or "").split()
    found[name] = top or sorted({f.parts[0].split(".")[0] for f in d.files or []})
print(json.dumps(found))`
	var tops map[string][]string
	if p.python(ctx, script, upgraded, &tops) != nil {
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

var (
	requirement = regexp.MustCompile(`^([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)` + // name
		` *(?:\[ *[A-Za-z0-9._-]+(?: *, *[A-Za-z0-9._-]+)* *\])?` + // extras
		` *(?:` + version + `(?: *, *` + version + `)*|\( *` + version + `(?: *, *` + version + `)* *\))?` +
		` *(?:; *[A-Za-z0-9_.'"<>=!~(), +*-]+)?$`) // marker
	wheelName = regexp.MustCompile(`^([A-Za-z0-9_.]+)(?:-[A-Za-z0-9_.+!]+){4,5}\.whl$`)
	separator = regexp.MustCompile(`[-_.]+`)
)

const version = `(?:===|==|~=|!=|<=|>=|<|>) *[A-Za-z0-9_.*+!-]+`

// parseRequirements gives the wheels by position, and the names of all.
func parseRequirements(requirements []string) (wheels map[int]string, names []string, err error) {
	if len(requirements) == 0 {
		return nil, nil, &RequirementError{Reason: "there is none"}
	}
	wheels = map[int]string{}
	for i, r := range requirements {
		if len(r) > 1024 {
			return nil, nil, &RequirementError{r, "longer than 1024 bytes"}
		}
		if strings.HasSuffix(r, ".whl") && !strings.Contains(r, "://") {
			match := wheelName.FindStringSubmatch(filepath.Base(r))
			if match == nil {
				return nil, nil, &RequirementError{r, "not the name of a wheel (name-version-python-abi-platform.whl)"}
			}
			if _, err := os.Stat(r); err != nil {
				return nil, nil, &RequirementError{r, "no such wheel on this machine"}
			}
			wheels[i] = r
			names = append(names, normalized(match[1]))
			continue
		}
		match := requirement.FindStringSubmatch(r)
		switch {
		case strings.HasPrefix(r, "-"):
			return nil, nil, &RequirementError{r, "options of pip are not allowed here"}
		case strings.Contains(r, "://") || strings.Contains(r, "@"):
			return nil, nil, &RequirementError{r, "addresses are not allowed here: give a name, or the path of a wheel"}
		case match == nil:
			return nil, nil, &RequirementError{r, `not of the form name[extras]==version ("humanize==4.*")`}
		}
		names = append(names, normalized(match[1]))
	}
	return wheels, names, nil
}

// normalized is the form in which names of packages are compared.
func normalized(name string) string {
	return strings.ToLower(separator.ReplaceAllString(name, "-"))
}

func tail(s string, limit int) string {
	return strings.ToValidUTF8(s[max(len(s)-limit, 0):], "")
}
