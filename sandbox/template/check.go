package template

import (
	"context"
	"fmt"
)

// Check returns the errors and notices that [Build] would report for a definition. It needs no
// service. It reads the files to copy. The notices name instructions that are omitted because they
// do not change the result. The error contains all mistakes of a Dockerfile, with their lines, or
// else the first file that cannot be copied. Check does not check images, or whether commands
// succeed.
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
