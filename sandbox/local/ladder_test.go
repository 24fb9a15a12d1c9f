//go:build linux

package local_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/refusetest"
	"github.com/e2bctl/e2bctl/internal/cloud/pyenv"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// refuseVariable lists calls. This program then acts as on a machine that refuses them.
const refuseVariable = "LOCAL_TEST_REFUSE"

// TestLadder really refuses the calls that isolation needs: where namespaces are refused
// the cloud uses the next level, and where Landlock is refused too it does not start.
func TestLadder(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, refuse string
		want         []string
	}{
		{"namespaces", "namespaces", []string{"started: restricted: it works", `refuses isolation "full"`, "WARN the local cloud isolates sandboxes less than fully isolation=restricted"}},
		{"uptimes", "clocks", []string{"started: full: it works"}},
		{"signals", "namespaces signals", oldLandlock()},
		{"signals by name", "namespaces signals restricted", pastLandlock},
		{"everything", "namespaces landlock", []string{"no isolation", "full: ", "operation not permitted", "restricted: ", "landlock: ", "to mend it"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out := startWhere(t, tt.refuse)
			for _, want := range tt.want {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in %s", want, out)
				}
			}
		})
	}
}

// startWhere starts a cloud where the machine refuses something, and returns the output.
func startWhere(t *testing.T, refuse string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), refuseVariable+"="+refuse)
	const python = "/usr/bin/python3" // named, it is the only one that is looked at: no code runs
	if _, err := os.Stat(python); err == nil {
		cmd.Env = append(cmd.Env, pyenv.Variable+"="+python)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if strings.HasPrefix(string(out), "no landlock") && os.Getenv("CI") != "true" {
		t.Skip("this kernel has no Landlock")
	}
	t.Logf("%.600s", out)
	return string(out)
}

// missingCalls begins the table of containers.md about calls of the kernel.
const missingCalls = "| without | as root | as another user | where namespaces are refused, too |"

// containersPage documents the isolation of sandboxes on machines that lack system calls.
const containersPage = "containers.md"

// TestMissingCalls takes away each call that older kernels do not have, and that profiles of
// seccomp refuse. The isolation is that of the page's table. Where it is less, the message names
// the call, and the kernel if it lacks the call.
func TestMissingCalls(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(containersPage)
	must.Do(t, err)
	_, rows, found := strings.Cut(string(text), "\n"+missingCalls+"\n")
	if !found {
		t.Fatalf("%s has no table %q", containersPage, missingCalls)
	}
	rows, _, _ = strings.Cut(rows, "\n\n")
	asked := make(map[string]bool)
	column := 1
	if os.Geteuid() != 0 {
		column = 2
	}
	for row := range strings.SplitSeq(rows, "\n") {
		cells := cellsOf(row)
		for i, call := range strings.Split(cells[0], "`") {
			if i%2 == 0 { // the text between names
				continue
			}
			asked[call] = true
			missCall(t, call, call, strings.Trim(cells[column], "`"))
			if call != "clone3" { // by EPERM no program with threads of glibc runs at all
				missCall(t, call, "namespaces "+call+"=EPERM", strings.Trim(cells[3], "`"))
			}
		}
	}
	if got, want := slices.Sorted(maps.Keys(asked)), refusetest.Calls(); !slices.Equal(got, want) {
		t.Errorf("the table of %s has the calls %q, want %q", containersPage, got, want)
	}
}

// missCall starts a cloud where a call is refused, and wants the isolation, or "none".
func missCall(t *testing.T, call, refuse, want string) {
	t.Run(refuse, func(t *testing.T) {
		t.Parallel()
		text := startWhere(t, refuse)
		start := "started: " + want + ": it works"
		missing, needed := !strings.Contains(refuse, "EPERM"), strings.Contains(refuse, "namespaces") && want == "restricted"
		var says []string
		if want == "none" {
			start = "no isolation"
		}
		if want != "full" && !needed { // it is this call that takes a level away
			says = append(says, call)
		}
		if want != "full" && missing {
			says = append(says, "isolation full takes Linux 5.12 or later")
		}
		if want == "none" && missing {
			says = append(says, "isolation restricted takes Linux 5.13 or later")
		}
		for _, part := range append(says, start) {
			if !strings.Contains(text, part) {
				t.Errorf("got %s, want %q", text, part)
			}
		}
	})
}

// pastLandlock are the messages of a start that gets past Landlock. The start fails at the next
// step: the imitation of an old Landlock asks about system calls, as only one process can.
var pastLandlock = []string{"no isolation", "restricted: try a sandbox: ", "already asks about its system calls"}

// oldLandlock returns the messages of a start with an old version of Landlock. Signals are stopped
// only if sandboxes have user ids of their own, which root gives them.
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
	options := []local.Option{local.WithWarm(0)} // what a machine refuses shows in the first sandbox
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
		result, err := sb.Commands.Run(ctx, "touch file && chmod 600 file && echo it works", nil)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "started: %s: %s%s", cloud.Isolation(), result.Stdout, cloud.Report().Notes)
		return nil
	}, cloud.Option())
}
