package template

import (
	"context"
	"fmt"
)

// Check finds out what [Build] would refuse or leave out of a definition, without a service. It
// reads the files that are copied. The notices name instructions that are left out because the result is the
// same. The error says all that is wrong with a Dockerfile, with the lines, or else the first
// file that cannot be copied. Images, and whether commands succeed, are not checked.
func Check(ctx context.Context, d Definition, p *BuildParams) (notices []string, err error) {
	if p == nil {
		p = &BuildParams{}
	}
	notices = d.Warnings()
	if d.err != nil {
		return notices, fmt.Errorf("template: check: %w", d.err)
	}
	files, err := prepare(ctx, d, p)
	if err != nil {
		return notices, fmt.Errorf("template: check: %w", err)
	}
	defer files.close()
	return append(notices, files.notices()...), nil
}
