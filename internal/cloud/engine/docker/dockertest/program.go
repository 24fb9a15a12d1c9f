//go:build linux

package dockertest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

var program struct {
	once sync.Once
	path string
	err  error
}

// Program returns the path of a static e2bctl. The test program itself cannot be used, because with
// the race detector it is not static.
func Program(t testing.TB) string {
	t.Helper()
	program.once.Do(func() {
		dir, err := os.MkdirTemp("", "e2bctl-program-") //nolint:usetesting // other tests use it too
		if err != nil {
			program.err = err
			return
		}
		if program.err = os.Chmod(dir, 0o755); program.err != nil {
			return
		}
		program.path = filepath.Join(dir, "e2bctl")
		command := exec.CommandContext(context.WithoutCancel(t.Context()), "go", "build", "-o", program.path, "github.com/e2bctl/e2bctl/cli/e2bctl")
		command.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := command.CombinedOutput(); err != nil {
			program.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	must.Do(t, program.err)
	return program.path
}
