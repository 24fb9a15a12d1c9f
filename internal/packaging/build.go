package packaging

import (
	"cmp"
	"debug/buildinfo"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Build is a program that was built by the go command.
type Build struct {
	// Path is the file of the program. System and Architecture are its GOOS and GOARCH.
	Path, System, Architecture string
	// Version is the version of the main module, such as v0.1.0. The go command takes it from the tag
	// of the commit.
	Version string
	// Time is the time of the commit, or 1980 if the go command did not record the commit. Files in
	// packages have this time, so that the same commit always makes the same packages.
	Time time.Time
	// Modules are the modules that are linked, without the main module, sorted by path.
	Modules []Module
}

// Module is a module that is linked into a program.
type Module struct {
	Path, Version string
	Sum           string // the checksum of go.sum; "": none
}

// epoch is the first time that a zip file can record.
var epoch = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// ReadBuild reads the description that the go command recorded in a program.
func ReadBuild(path string) (Build, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return Build{}, fmt.Errorf("packaging: read how %s was built: %w", path, err)
	}
	b := Build{Path: path, Version: info.Main.Version, Time: epoch}
	for _, s := range info.Settings {
		switch s.Key {
		case "GOOS":
			b.System = s.Value
		case "GOARCH":
			b.Architecture = s.Value
		case "vcs.time":
			if at, err := time.Parse(time.RFC3339, s.Value); err == nil && at.After(epoch) {
				b.Time = at.UTC()
			}
		}
	}
	if b.System == "" || b.Architecture == "" {
		return Build{}, fmt.Errorf("packaging: %s does not record for which system it was built: build it with the go command", path)
	}
	for _, m := range info.Deps {
		b.Modules = append(b.Modules, moduleOf(m))
	}
	slices.SortFunc(b.Modules, func(x, y Module) int { return cmp.Compare(x.Path, y.Path) })
	return b, nil
}

// Carry adds the modules of a program that this program contains.
func (b *Build) Carry(other *Build) {
	b.Modules = append(b.Modules, other.Modules...)
	slices.SortFunc(b.Modules, func(x, y Module) int { return cmp.Compare(x.Path, y.Path) })
	b.Modules = slices.Compact(b.Modules)
}

func moduleOf(m *debug.Module) Module {
	if m.Replace != nil {
		m = m.Replace
	}
	return Module{Path: m.Path, Version: m.Version, Sum: m.Sum}
}

// Release returns the version without its leading v, as in file names. A build that has no tag has the
// version 0.0.0.
func (b *Build) Release() string {
	version, _, _ := strings.Cut(strings.TrimPrefix(b.Version, "v"), "+")
	if version == "" || version == "(devel)" {
		return "0.0.0"
	}
	return version
}

// Program returns the name of the program's file in packages.
func (b *Build) Program() string {
	if b.System == "windows" {
		return "e2bctl.exe"
	}
	return "e2bctl"
}
