//go:build linux

package local_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// code acts within sandboxes by code.
type code struct{}

func (code) write(t *testing.T, sb *sandbox.Sandbox, path, text string) bool {
	t.Helper()
	e := sandboxtest.RunCode(t, sb, fmt.Sprintf("with open(%q, 'w') as f: _ = f.write(%q)", path, text), nil)
	if e.Error != nil && e.Error.Name != "OSError" {
		t.Errorf("%s: got %v, want an OSError or none", path, e.Error)
	}
	return e.Error == nil
}

func (code) read(t *testing.T, sb *sandbox.Sandbox, path string) string {
	t.Helper()
	return strings.TrimSpace(sandboxtest.RunCode(t, sb, fmt.Sprintf("print(open(%q).read())", path), nil).Stdout)
}

func (code) remember(t *testing.T, sb *sandbox.Sandbox) func(*testing.T, *sandbox.Sandbox) bool {
	t.Helper()
	sandboxtest.RunCode(t, sb, "x = 'lives'", nil)
	return func(t *testing.T, sb *sandbox.Sandbox) bool {
		t.Helper()
		return sandboxtest.RunCode(t, sb, "x", nil).Text() == "lives"
	}
}

// wasmTries returns the tries of any engine, except for those that take a command, and those of the
// limits, which raise exceptions.
func (w *promised) wasmTries() map[string]func(*testing.T) (bool, error) {
	tries := maps.Clone(w.tries())
	for _, feature := range []string{
		"root and user are two ids", "every program reaches the network through the rules", "processor limit", "process limit",
		"memory in snapshots, forks and pauses that outlast the cloud", "container images",
	} {
		delete(tries, feature)
	}
	raises := func(name, code string) func(*testing.T) (bool, error) {
		return func(t *testing.T) (bool, error) {
			e := sandboxtest.RunCode(t, w.small.Create(t), code, nil)
			return e.Error != nil && e.Error.Name == name, nil
		}
	}
	tries["memory limit"] = raises("MemoryError", "x = bytearray(400 << 20)")
	tries["disk limit"] = raises("OSError", "with open('big', 'wb') as f:\n    for _ in range(32): f.write(bytes(1 << 20))")
	return tries
}
