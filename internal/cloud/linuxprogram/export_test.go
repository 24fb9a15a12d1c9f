package linuxprogram

import (
	"context"
	"io"
)

// ModulePath is the path of the module whose sources are needed.
const ModulePath = modulePath

// Build compiles the program from a version of the module.
func Build(ctx context.Context, version, architecture, to string) error {
	return source{module: modulePath, version: version}.build(ctx, io.Discard, architecture, to)
}
