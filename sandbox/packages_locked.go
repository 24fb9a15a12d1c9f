package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/e2bctl/e2bctl/internal/pip"
)

// InstallLockParams sets how to install a lock.
type InstallLockParams struct {
	// Require lists requirements, as for [Packages.Install], whose packages must be in the lock or in
	// the sandbox. If such a package is missing, the error is a [*RequirementError], and nothing is
	// installed. The versions of the lock are installed, even if a requirement specifies another
	// version.
	Require []string
	// Output receives pip's output, like [InstallParams].Output.
	Output io.Writer
}

// InstallLock installs the packages of a lock that the sandbox does not have. It installs nothing
// else: no dependencies, no other versions, no other contents. A wheel comes from the cache of this
// machine ([WithWheelCache]) if the cache contains it, and otherwise from the index. If the cache
// contains all wheels, the index is not used, so InstallLock also works in a sandbox without
// internet. A package that is not a wheel is built in the sandbox, with build tools from the index.
//
// If a file from the index differs from the file in the lock, the error is an [*InstallError] with
// HashMismatch, and nothing is installed. The same error occurs if the lock was made for another
// Python or system than the sandbox has, and the index has other files for that Python or system.
// The error then names the Python and the system of the lock. In all other respects InstallLock
// works like [Packages.Install]. Install does not use cached wheels, because without a lock only
// the sandbox itself could determine the correct content of a file.
func (p *Packages) InstallLock(ctx context.Context, lock *LockFile, params *InstallLockParams) (*Installation, error) {
	params = orZero(params)
	requirements := params.Require
	text, err := lock.MarshalText()
	if err != nil {
		return nil, err
	}
	wanted := make([]pip.Requirement, len(requirements))
	for i, r := range requirements {
		if wanted[i], err = pip.Parse(r); err != nil {
			return nil, requirementError(err)
		}
	}
	ctx, end, err := p.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	key := string(text) + strings.Join(requirements, "\n")
	if done := p.known(ctx, key); done != nil {
		return done, nil
	}
	place, before, err := p.place(ctx)
	if err != nil {
		return nil, err
	}
	defer place.close(ctx)
	have, names := before.versions(), pip.Names(wanted)
	missing := lock.withoutInstalled(before)
	for _, one := range lock.Packages {
		name := pip.Normalize(one.Name)
		names = append(names, name)
		have[name] = one.Version
	}
	for _, r := range wanted {
		if have[r.Name] == "" {
			return nil, &RequirementError{Requirement: r.Text, Reason: "neither in the lock nor in the sandbox"}
		}
	}
	if len(missing.Packages) > 0 {
		err := p.installLocked(ctx, place, missing, params.Output)
		if failed, ok := errors.AsType[*InstallError](err); ok {
			failed.lock, _, _ = strings.Cut(lock.Comment, "\n")
		}
		if err != nil {
			return nil, err
		}
	}
	installation := &Installation{}
	return installation, p.finish(ctx, place, key, installation, before, names)
}

// installLocked uploads the cached wheels, makes pip download the other wheels, installs all
// wheels, and caches the downloaded ones.
func (p *Packages) installLocked(ctx context.Context, place *place, lock *LockFile, output io.Writer) error {
	var asked []string
	for _, one := range lock.Packages {
		asked = append(asked, one.Name+"=="+one.Version)
	}
	start := func() (*pipRun, error) { return p.startPip(ctx, place, asked, output) }
	if place.wasm != nil {
		return p.installWheels(ctx, place, lock, start)
	}
	run, err := start()
	if err != nil {
		return err
	}
	defer run.close(ctx)
	wheels := run.path("wheels")
	absent, err := p.bring(ctx, run, lock, wheels)
	if err != nil {
		return err
	}
	// pip leaves no copy of a wheel that it installs from an index, so wheels for the cache are
	// downloaded first.
	toKeep := &LockFile{}
	if p.wheels.enabled() {
		for _, one := range absent.Packages {
			if one.File != "" {
				toKeep.Packages = append(toKeep.Packages, one)
			}
		}
	}
	if len(toKeep.Packages) > 0 {
		file, err := run.requirements(ctx, "fetch.txt", toKeep)
		if err != nil {
			return err
		}
		if err := run.run(ctx, "download", "--no-deps", "--require-hashes", "--dest", wheels, "-r", file); err != nil {
			return err
		}
	}
	arguments := append(slices.Clone(installing), "--no-deps", "--require-hashes")
	remote := len(absent.Packages) - len(toKeep.Packages)
	if remote < len(lock.Packages) {
		arguments = append(arguments, "--find-links", wheels)
	}
	if remote == 0 {
		arguments = append(arguments, "--no-index")
	}
	file, err := run.requirements(ctx, "lock.txt", lock)
	if err != nil {
		return err
	}
	if err := run.run(ctx, append(arguments, "-r", file)...); err != nil {
		return err
	}
	p.keepAll(ctx, run, toKeep, wheels)
	return nil
}

// bring uploads the cached wheels, and returns a lock with the packages that are not cached.
func (p *Packages) bring(ctx context.Context, run *pipRun, lock *LockFile, directory string) (*LockFile, error) {
	absent := &LockFile{}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelWrites)
	for _, one := range lock.Packages {
		var f *os.File
		if one.File != "" {
			f = p.wheels.open(one.SHA256)
		}
		if f == nil {
			absent.Packages = append(absent.Packages, one)
			continue
		}
		run.used = true
		group.Go(func() error {
			defer f.Close()
			return run.sb.Files.WriteFrom(ctx, path.Join(directory, one.File), f, &FileParams{User: "root"})
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("sandbox: install packages: %w", err)
	}
	return absent, nil
}

// requirements writes a lock for pip and returns its path.
func (c *pipRun) requirements(ctx context.Context, name string, lock *LockFile) (string, error) {
	text, err := lock.MarshalText()
	if err != nil {
		return "", err
	}
	return c.path(name), c.write(ctx, c.path(name), strings.NewReader(string(text)))
}

// keepAll caches the wheels that pip downloaded into a directory. It only logs errors, because
// the cache only makes the next installation faster.
func (p *Packages) keepAll(ctx context.Context, run *pipRun, fetched *LockFile, directory string) {
	for _, one := range fetched.Packages {
		if err := p.keep(ctx, run, one, path.Join(directory, one.File)); err != nil {
			p.sb.client.api.Logger().WarnContext(ctx, "a wheel is not kept", "sandbox", p.sb.ID(), "file", one.File, "error", err)
		}
	}
}

// keep caches one wheel that pip downloaded.
func (p *Packages) keep(ctx context.Context, run *pipRun, one LockedPackage, file string) error {
	f, err := run.sb.Files.Open(ctx, file, &FileParams{User: "root"})
	if err != nil {
		return err
	}
	defer f.Close()
	return p.wheels.add(one.SHA256, f)
}
