package sandbox

import (
	"context"
	"io"
	"strings"

	"github.com/e2bctl/e2bctl/internal/pip"
)

// LockFile pins packages to versions and to the contents of their files, so that
// [Packages.InstallLock] always installs the same files. Its text is a pip requirements file with
// hashes, and people can read it. Store it together with a program. Files of pip-compile and uv are
// also accepted if they have no markers.
type LockFile struct {
	// Comment contains the first lines of the text. They describe the lock and have no effect.
	Comment string
	// Packages are the packages to install. pip installs them without their dependencies.
	Packages []LockedPackage
}

// LockedPackage is one package of a [LockFile].
type LockedPackage struct {
	Name, Version string
	// SHA256 contains the hashes, in hex, of the files that may be installed.
	SHA256 []string
	// File is the name of the wheel, if [Packages.Lock] found one. If File is empty, the wheel is not
	// cached on this machine.
	File string
}

// LockParams sets how to make a lock.
type LockParams struct {
	// Output receives pip's output, like [InstallParams].Output.
	Output io.Writer
}

// Lock determines the files that pip would install for requirements, and installs nothing. It does
// not accept paths of wheels. The lock contains only packages that the sandbox does not have, so
// use the lock only for sandboxes of the same template. Create the lock in a sandbox in which no
// untrusted code has run, because the hashes come from that sandbox. Lock needs pip 22.2.
func (p *Packages) Lock(ctx context.Context, requirements []string, params *LockParams) (*LockFile, error) {
	parsed, err := parseRequirements(requirements)
	if err != nil {
		return nil, err
	}
	ctx, end, err := p.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	arguments := make([]string, len(parsed))
	for i, r := range parsed {
		if r.Wheel {
			return nil, &RequirementError{Requirement: r.Text, Reason: "a lock is of what an index has: give a name"}
		}
		arguments[i] = r.Text
	}
	place, before, err := p.place(ctx)
	if err != nil {
		return nil, err
	}
	defer place.close(ctx)
	run, err := p.startPip(ctx, place, requirements, orZero(params).Output)
	if err != nil {
		return nil, err
	}
	defer run.close(ctx)
	lock, err := run.resolve(ctx, arguments)
	if err == nil && place.wasm != nil {
		lock = lock.withoutInstalled(before)
	}
	return lock, err
}

// resolve determines the files that pip would install.
func (c *pipRun) resolve(ctx context.Context, requirements []string) (*LockFile, error) {
	report := c.path("report.json")
	if err := c.write(ctx, report, strings.NewReader("")); err != nil {
		return nil, err
	}
	arguments := []string{"install", "--dry-run", "--prefer-binary", "--report", report}
	if err := c.run(ctx, append(arguments, requirements...)...); err != nil {
		return nil, err
	}
	f, err := c.sb.Files.Open(ctx, report, &FileParams{User: "root"})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	read, from, err := pip.ReadReport(f)
	if err != nil {
		return nil, c.sb.failed(ctx, "lock packages: read pip's report", requirementError(err))
	}
	lock := newLock(read)
	if c.wasm != nil {
		err = c.checkDist(ctx, lock, from)
	}
	return lock, err
}

// withoutInstalled returns a lock without the packages that a sandbox has.
func (l *LockFile) withoutInstalled(have *site) *LockFile {
	versions := have.versions()
	missing := &LockFile{Comment: l.Comment, Packages: []LockedPackage{}}
	for _, one := range l.Packages {
		if versions[pip.Normalize(one.Name)] != one.Version {
			missing.Packages = append(missing.Packages, one)
		}
	}
	return missing
}

// locked returns the lock in the form of package pip. A nil lock stays nil.
func (l *LockFile) locked() *pip.Lock {
	if l == nil {
		return nil
	}
	locked := &pip.Lock{Comment: l.Comment, Packages: make([]pip.Locked, len(l.Packages))}
	for i, one := range l.Packages {
		locked.Packages[i] = pip.Locked(one)
	}
	return locked
}

func newLock(locked *pip.Lock) *LockFile {
	lock := &LockFile{Comment: locked.Comment, Packages: make([]LockedPackage, len(locked.Packages))}
	for i, one := range locked.Packages {
		lock.Packages[i] = LockedPackage(one)
	}
	return lock
}

// MarshalText returns the lock as a requirements file.
func (l *LockFile) MarshalText() ([]byte, error) {
	text, err := l.locked().Marshal()
	return text, requirementError(err)
}

// UnmarshalText reads the text of MarshalText, even if it was edited, and files of the same format
// that other programs wrote. The error is a [*RequirementError] with the line number.
func (l *LockFile) UnmarshalText(text []byte) error {
	var read pip.Lock
	if err := read.Unmarshal(text); err != nil {
		return requirementError(err)
	}
	*l = *newLock(&read)
	return nil
}
