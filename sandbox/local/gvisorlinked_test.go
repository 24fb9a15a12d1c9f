//go:build linux

package local_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/sandbox/local"
)

// TestGVisorLinked checks that setup refuses a program that is linked to libraries, before it
// builds anything. The error has the same words as that of a cloud's start.
func TestGVisorLinked(t *testing.T) {
	t.Parallel()
	const linked = "/bin/sh"
	_, setup := local.SetupGVisor(t.Context(), t.Output(), &local.SetupGVisorParams{Go: filepath.Join(t.TempDir(), "none"), Binary: linked})
	cloud, start := local.Start(t.Context(), local.WithEngine(local.EngineGVisor), local.WithBinary(linked))
	if start == nil {
		start = errors.Join(errors.New("it started"), cloud.Close())
	}
	for what, err := range map[string]error{"setup": setup, "start": start} {
		if err == nil || !strings.Contains(err.Error(), linked+" is linked to libraries") || !strings.Contains(err.Error(), "CGO_ENABLED=0") || strings.Contains(err.Error(), "local.") {
			t.Errorf("%s: got %v, want why, what to do, and no name of Go", what, err)
		}
	}
}
