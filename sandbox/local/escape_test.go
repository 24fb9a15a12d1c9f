//go:build linux

package local_test

import (
	"os"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/escapetest"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// TestDockerEscape tries the escapes from a container to this machine.
func TestDockerEscape(t *testing.T) {
	t.Parallel()
	escape(t, dockerOptions(t, local.DockerParams{}), "")
}

// TestGVisorEscape tries the escapes from gVisor to this machine, as both users.
func TestGVisorEscape(t *testing.T) {
	t.Parallel()
	escape(t, gvisorOptions(t), "root", "user")
}

// escape tries the escapes to this machine, as each of the users.
func escape(t *testing.T, options []local.Option, users ...string) {
	t.Helper()
	sb := sandboxtest.New(t, options...).Create(t)
	all := escapetest.List(t, os.Getpid())
	some := escapetest.OfHost(all)
	if len(some) != 21 {
		t.Errorf("%d of %d escapes lead to the host, want 21", len(some), len(all))
	}
	for _, user := range users {
		for _, e := range some {
			result, err := sb.Commands.Run(t.Context(), "export TMPDIR=$(mktemp -d); ("+e.Command+"); echo tried", &sandbox.CommandParams{User: user})
			// A command that did not run proves nothing.
			if err != nil || strings.Contains(result.Stdout, "ESCAPED") || !strings.HasSuffix(strings.TrimSpace(result.Stdout), "tried") {
				t.Errorf("%q: %s: %s\n%+v, %v", user, e.Name, e.Command, result, err)
			}
		}
	}
}
