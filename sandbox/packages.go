package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/e2bctl/e2bctl/internal/pip"
)

// Packages installs Python packages. It is safe for concurrent use; installations run one after
// another.
//
// The sandbox's own pip selects the packages. They stay installed until the sandbox ends. To
// install exactly the same packages in another sandbox, and quickly, use a [LockFile].
//
// Python in WebAssembly (the wasm engine of the local cloud) has neither pip nor a network. For
// such a sandbox, a second sandbox exists during the call. It has the template base-room and the
// network rules of the first sandbox. The pip of the second sandbox finds and downloads wheels for
// WebAssembly and wheels for every system. The first sandbox unpacks these wheels into its user's
// home. pip ignores the packages that the first sandbox has, so it may install a newer version of
// such a package. If a package has no such wheel, the error is an [*InstallError] that names the
// package.
type Packages struct {
	sb    *Sandbox
	index *PackageIndex // the index to use; nil: the settings of this machine's pip
	// credentials permits addresses that contain a password.
	credentials bool
	wheels      wheelCache
	// turn is a semaphore for one process of pip, because two at the same time would damage each
	// other's work.
	turn chan struct{}

	mu sync.Mutex
	// done contains the results of this handle's calls. A result is valid as long as the directory of
	// the installed packages does not change.
	done map[string]*Installation
	left siteDirectory
}

func newPackages(sb *Sandbox, cfg sandboxConfig) *Packages {
	return &Packages{
		sb: sb, index: cfg.index, credentials: cfg.pipCredentials,
		wheels: wheelCacheOf(cfg.wheels, sb.client.api.SandboxURL()), turn: make(chan struct{}, 1),
	}
}

// Installation is the result of an installation.
type Installation struct {
	// Packages are the requested packages and the other packages that were added or changed,
	// sorted by name.
	Packages []InstalledPackage
	// RestartNeeded names packages that changed after code of the default context had imported them.
	// That context uses the old versions until it is restarted.
	RestartNeeded []string
	// Renamed are the requirements that named a module ("PIL") instead of its package
	// ("pillow").
	Renamed []RenamedPackage
	// Excluded are requirements whose marker excludes this Python. No package was installed for these
	// requirements.
	Excluded []ExcludedRequirement
	// NotImportable are modules of the added or changed packages that a new Python process
	// cannot import. That is no error, because some packages contain modules for other systems.
	NotImportable []ImportFailure
}

// InstalledPackage is a package in the sandbox.
type InstalledPackage struct{ Name, Version string }

// RenamedPackage is a requirement that was replaced by another package.
type RenamedPackage struct {
	// Import is the name in the requirement.
	Import string
	// Distribution is the package that was installed.
	Distribution string
}

// ExcludedRequirement is a requirement whose marker is false in the sandbox.
type ExcludedRequirement struct {
	// Name is the name of the package.
	Name string
	// Marker is the condition of the requirement, in the form that pip prints.
	Marker string
}

// ImportFailure is a module that cannot be imported. Its texts come from the
// sandbox.
type ImportFailure struct{ Package, Module, Error string }

// InstallParams sets how to install packages.
type InstallParams struct {
	// Output receives pip's output as it arrives, in whole lines and without the credentials of
	// indexes. An error from Output ends the installation. Output receives nothing if pip need not
	// run. Output may be nil.
	Output io.Writer
}

// Install installs packages for the sandbox's Python, as root. A requirement is a name with
// optional extras, versions and a marker ("humanize==4.*", "pandas[excel]>=2"), or the path of a
// wheel on this machine, which is uploaded. The error is a [*RequirementError] for options,
// addresses, modules of Python itself, patterns of imports ("numpy.*") and anything else. Some
// names of modules ("PIL", "yaml") are replaced by the names of their packages:
// Installation.Renamed reports the replacements. A failure of pip is an [*InstallError]. pip is
// stopped when ctx ends.
//
// Requested packages that are new are imported once, in a separate Python process, to check that
// they work. Install does nothing if an earlier call had the same requirements and no package has
// been installed or removed since that call.
//
// The sandbox's pip uses the settings of this machine's pip: index, further indexes, trusted hosts,
// certificates, timeout and retries. The settings come from this machine's environment (PIP_*) and
// pip's configuration files on this machine.
// Addresses with credentials are used only if [WithPipCredentials] is set. [WithPackageIndex]
// replaces these settings.
func (p *Packages) Install(ctx context.Context, requirements []string, params *InstallParams) (*Installation, error) {
	params = orZero(params)
	parsed, err := parseRequirements(requirements)
	if err != nil {
		return nil, err
	}
	ctx, end, err := p.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	key := strings.Join(requirements, "\n")
	fromHere := func(r pip.Requirement) bool { return r.Wheel }
	if done := p.known(ctx, key); done != nil && !slices.ContainsFunc(parsed, fromHere) {
		return done, nil
	}
	place, before, err := p.place(ctx)
	if err != nil {
		return nil, err
	}
	defer place.close(ctx)
	run, err := p.startPip(ctx, place, requirements, params.Output)
	if err != nil {
		return nil, err
	}
	defer run.close(ctx)
	var arguments []string
	installation := &Installation{}
	for _, r := range parsed {
		if r.Wheel {
			if r.Text, err = run.upload(ctx, r.Text); err != nil {
				return nil, fmt.Errorf("sandbox: install packages: %w", err)
			}
		}
		if r.Import != "" {
			installation.Renamed = append(installation.Renamed, RenamedPackage{r.Import, r.Distribution})
			p.sb.client.api.Logger().WarnContext(ctx, "a requirement names what is imported", "sandbox", p.sb.ID(),
				"import", r.Import, "installing", r.Distribution)
		}
		arguments = append(arguments, r.Text)
	}
	if place.wasm != nil {
		err = p.installResolved(ctx, place, run, arguments, before)
	} else {
		err = run.run(ctx, append(slices.Clone(installing), arguments...)...)
	}
	if err != nil {
		return nil, err
	}
	asked := pip.Names(parsed)
	for _, r := range run.excluded {
		if i := slices.Index(asked, pip.Normalize(r.Name)); i >= 0 { // another requirement may name the same package
			asked = slices.Delete(asked, i, i+1)
		}
		p.sb.client.api.Logger().WarnContext(ctx, "a requirement is not for this Python: nothing is installed for it", "sandbox", p.sb.ID(),
			"name", r.Name, "marker", r.Marker)
	}
	installation.Excluded = run.excluded
	return installation, p.finish(ctx, place, key, installation, before, asked)
}

// begin opens a call and waits until no other call of this handle uses pip.
func (p *Packages) begin(ctx context.Context) (_ context.Context, end func(), err error) {
	ctx, done, err := p.sb.begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	select {
	case p.turn <- struct{}{}:
		return ctx, func() { <-p.turn; done() }, nil
	case <-ctx.Done():
		defer done()
		return nil, nil, p.sb.failed(ctx, "wait for another installation", context.Cause(ctx))
	}
}

// finish adds the changed packages to an installation, and records the result.
func (p *Packages) finish(ctx context.Context, place *place, key string, installation *Installation, before *site, asked []string) error {
	left := p.look(ctx, before.Directory)
	after, err := place.site(ctx)
	if err != nil {
		return err
	}
	var upgraded, fresh []string
	for name, version := range after.Packages {
		old, was := before.Packages[name]
		wanted := slices.Contains(asked, pip.Normalize(name))
		if old != version || wanted {
			installation.Packages = append(installation.Packages, InstalledPackage{name, version})
		}
		if was && old != version {
			upgraded = append(upgraded, name)
		}
		if wanted && old != version {
			fresh = append(fresh, name)
		}
	}
	slices.SortFunc(installation.Packages, func(a, b InstalledPackage) int { return cmp.Compare(a.Name, b.Name) })
	slices.Sort(fresh)
	if installation.NotImportable, err = place.verify(ctx, fresh); err != nil {
		return err
	}
	installation.RestartNeeded = p.loaded(ctx, place, upgraded)
	p.remember(key, installation, left)
	return nil
}
