package linuxprogram

import (
	"context"
	"io"
)

// ModulePath is the module of the program.
const ModulePath = modulePath

// Build compiles the program of a version.
func Build(ctx context.Context, version, architecture, to string) error {
	return source{module: modulePath, version: version}.build(ctx, io.Discard, architecture, to)
}
