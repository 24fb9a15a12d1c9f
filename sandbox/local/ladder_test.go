//go:build linux

package local_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/refusetest"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// refuseVariable makes this program act on a machine that refuses what the variable lists.
const refuseVariable = "LOCAL_TEST_REFUSE"

// TestLadder really refuses the cloud what isolation needs: where namespaces
// are refused it uses the next level, and where Landlock is refused too it does not start.
func TestLadder(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, refuse string
		want         []string
	}{
		{"namespaces", "namespaces", []string{"started: restricted: it works", `refuses isolation "full"`, "WARN the local cloud isolates sandboxes less than fully isolation=restricted"}},
		{"signals", "namespaces signals", oldLandlock()},
		{"signals by name", "namespaces signals restricted", pastLandlock},
		{"everything", "namespaces landlock", []string{"no isolation", "full: ", "operation not permitted", "restricted: ", "landlock: ", "to mend it"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
			cmd.Env = append(os.Environ(), refuseVariable+"="+tt.refuse)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if strings.HasPrefix(string(out), "no landlock") && os.Getenv("CI") != "true" {
				t.Skip("this kernel has no Landlock")
			}
			t.Logf("%s", out)
			for _, want := range tt.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("no %q in %s", want, out)
				}
			}
		})
	}
}

// TestMissingCalls takes away each call that older kernels do not have: a cloud starts, or says
// which kernel the levels take.
func TestMissingCalls(t *testing.T) {
	t.Parallel()
	for _, call := range refusetest.Calls() {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
			cmd.Env = append(os.Environ(), refuseVariable+"="+call)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			text := string(out)
			t.Logf("%.600s", text)
			if strings.Contains(text, "started: full: it works") {
				return
			}
			if !strings.Contains(text, "isolation full takes Linux 5.12 or later") {
				t.Errorf("got %s, want full isolation, or the kernel that it takes", text)
			}
		})
	}
}

// pastLandlock is what a start says that Landlock did not stop. It ends at the next step: what
// answers like an old version of Landlock asks about system calls, as only one process can.
var pastLandlock = []string{"no isolation", "restricted: try a sandbox: ", "already asks about its system calls"}

// oldLandlock returns what an old version of Landlock leads to: signals are stopped only
// where sandboxes have user ids of their own, which root gives them.
func oldLandlock() []string {
	if os.Geteuid() == 0 {
		return pastLandlock
	}
	return []string{"no isolation", "restricted: ", "version 5, does not stop signals", "WithIsolation"}
}

// startRefused starts a cloud on the machine that refuses, and writes how it went.
func startRefused(w io.Writer, refuse string) error {
	_, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		fmt.Fprintln(w, "no landlock:", errno)
		return nil
	}
	if err := refusetest.Refuse(refuse); err != nil {
		return err
	}
	ctx := context.Background()
	var options []local.Option
	if strings.Contains(refuse, "restricted") {
		options = append(options, local.WithIsolation(local.Restricted))
	}
	cloud, err := local.Start(ctx, options...)
	if errors.Is(err, local.ErrNoIsolation) {
		fmt.Fprintln(w, err)
		return nil
	}
	if err != nil {
		return err
	}
	defer cloud.Close()
	return sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
		result, err := sb.Commands.Run(ctx, "echo it works", nil)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "started: %s: %s%s", cloud.Isolation(), result.Stdout, cloud.Report().Notes)
		return nil
	}, cloud.Option())
}
