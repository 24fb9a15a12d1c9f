package sandbox

import (
	"context"
	"errors"
)

// Packages installs packages of Python. It is safe for concurrent use.
type Packages struct{ sb *Sandbox }

// Installation is what an installation did.
type Installation struct {
	// Packages are those asked for and those that came or changed with them, by
	// name.
	Packages []Package
	// RestartNeeded names packages that changed while code has them loaded: the
	// context sees the old ones until it is restarted.
	RestartNeeded []string
}

// Package is an installed package.
type Package struct{ Name, Version string }

// Install installs packages for the sandbox's Python. A requirement is a name
// with or without extras and versions ("humanize==4.*", "pandas[excel]>=2"), or
// the path of a wheel on this machine, which is uploaded.
func (p *Packages) Install(_ context.Context, _ ...string) (*Installation, error) {
	return nil, errors.New("sandbox: install packages: not yet")
}
