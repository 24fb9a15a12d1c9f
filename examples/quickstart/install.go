package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/e2bctl/e2bctl/sandbox"
)

// wheel is the name of the wheel that wheels/build.go builds.
const wheel = "quickstart_numbers-1.0-py3-none-any.whl"

// install installs a package from the index. If the index cannot be reached, it installs the
// wheel that is embedded in this program.
func install(ctx context.Context, do *steps, sb *sandbox.Sandbox) error {
	installed, err := sb.Packages.Install(ctx, []string{"humanize==4.*"}, nil)
	if err != nil && ctx.Err() == nil {
		do.note("the package index is out of reach, using the wheel of this example: %v", err)
		installed, err = installWheel(ctx, sb)
	}
	if err != nil {
		return err
	}
	for _, one := range installed.Packages {
		do.done("installed %s %s", one.Name, one.Version)
	}
	return nil
}

func installWheel(ctx context.Context, sb *sandbox.Sandbox) (*sandbox.Installation, error) {
	directory, err := os.MkdirTemp("", "quickstart-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(directory) }()
	content, err := files.ReadFile("wheels/" + wheel)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(directory, wheel)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return nil, err
	}
	return sb.Packages.Install(ctx, []string{path}, nil)
}
