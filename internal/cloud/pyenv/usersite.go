package pyenv

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// userPath is a .pth file that makes pip accept --user in an environment. Python runs it at
// each start.
//
//go:embed user.pth
var userPath string

// allowUser makes the environment's pip accept --user. Notebooks and models use this option,
// which pip refuses in an environment by default.
func (b *builder) allowUser(ctx context.Context) error {
	var printed strings.Builder
	err := b.command(ctx, func(line string) { printed.WriteString(line) },
		venvPython(b.directory), "-I", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
	if err != nil {
		return err
	}
	packages := strings.TrimSpace(printed.String())
	if !filepath.IsAbs(packages) {
		return fmt.Errorf("python: let pip take --user: %s names %q as the directory of its packages, want an absolute path", venvPython(b.directory), packages)
	}
	if err := os.WriteFile(filepath.Join(packages, "_e2bctl_user.pth"), []byte(userPath), 0o644); err != nil {
		return fmt.Errorf("python: let pip take --user: %w", err)
	}
	return nil
}
