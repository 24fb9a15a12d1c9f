//go:build linux

package local_test

import (
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestGVisorOutOfMemory checks that commands and code say so when memory ran out, whichever process
// of gVisor the kernel of this machine ended.
func TestGVisorOutOfMemory(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t, append(gvisorOptions(t), local.WithResources(local.Resources{MemoryBytes: 256 << 20}))...)
	const eat = "all = []\nwhile True: all.append(b'x' * (1 << 24))"
	for name, run := range map[string]func(sb *sandbox.Sandbox) error{
		"command": func(sb *sandbox.Sandbox) error {
			_, err := sb.Commands.Run(t.Context(), `exec python3 -c "`+eat+`"`, nil)
			return err
		},
		"code": func(sb *sandbox.Sandbox) error {
			_, err := sb.RunCode(t.Context(), eat, nil)
			return err
		},
	} {
		sb, err := sandbox.Create(t.Context(), cloud.Option())
		must.Do(t, err)
		defer func() { _ = sb.Close() }() // it may have died
		if err := run(sb); err == nil || !strings.Contains(err.Error(), "out of memory") {
			t.Errorf("%s: got %v, want that memory ran out", name, err)
		}
	}
}
