//go:build linux

package kernel

import (
	_ "embed"
	"os/exec"
	"strings"
	"testing"
)

//go:embed testdata/interrupts.py
var interrupts string

// TestInterruptsOfOneCell checks that a signal interrupts the cell for which it was meant, at
// once or when it may, and never the next one.
func TestInterruptsOfOneCell(t *testing.T) {
	t.Parallel()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 on this machine: the driver is not run")
	}
	cmd := exec.CommandContext(t.Context(), path, "-B", "-c", interrupts)
	cmd.Dir = "python" // the directory of the driver
	if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "done" {
		t.Errorf("%v\n%s", err, out)
	}
}
