//go:build linux

package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestSetMemory checks that a limit of version 2 below the use is never written, because the kernel
// would kill processes, and that memory.high is as before. The files are those of a directory: few
// machines have the memory in version 2.
func TestSetMemory(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		used, to int64
		want     string
		inUse    bool
	}{
		{"more", 600, 2000, "2000", false},
		{"less", 600, 700, "700", false},
		{"all that is used", 600, 600, "600", false},
		{"less than is used", 600, 599, "1000", true},
	} {
		g := &Group{Memory: Hierarchy{Dir: t.TempDir(), Version: 2}}
		write := func(name, text string) {
			must.Do(t, os.WriteFile(filepath.Join(g.Memory.Dir, name), []byte(text), 0o600))
		}
		read := func(name string) string {
			text, err := os.ReadFile(filepath.Join(g.Memory.Dir, name))
			must.Do(t, err)
			return strings.TrimSpace(string(text))
		}
		write("memory.max", "1000")
		write("memory.high", "max")
		write("memory.current", "600\n")
		err := g.SetMemory(1000, tt.to)
		switch used, inUse := errors.AsType[*engine.InUseError](err); {
		case inUse != tt.inUse || !inUse && err != nil:
			t.Errorf("%s: got %v, want in use: %v", tt.name, err, tt.inUse)
		case inUse && (used.Used != tt.used || used.Most != tt.to):
			t.Errorf("%s: got %+v, want %d in use of %d", tt.name, used, tt.used, tt.to)
		}
		if most, high := read("memory.max"), read("memory.high"); most != tt.want || high != "max" {
			t.Errorf("%s: memory.max is %s and memory.high %s, want %s and max", tt.name, most, high, tt.want)
		}
	}
}
