//go:build linux

package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// uptimeOf returns the seconds at the beginning of the text of /proc/uptime.
func uptimeOf(t *testing.T, text string) float64 {
	t.Helper()
	first, _, _ := strings.Cut(text, " ")
	seconds, err := strconv.ParseFloat(first, 64)
	must.Do(t, err)
	return seconds
}

// hostUptime returns the uptime of this machine in seconds.
func hostUptime(t *testing.T) float64 {
	t.Helper()
	text, err := os.ReadFile("/proc/uptime")
	must.Do(t, err)
	return uptimeOf(t, string(text))
}

// youngerThan checks that a sandbox was booted after the machine's uptime was since. The kernel
// rounds one second.
func youngerThan(t *testing.T, sb *sandbox.Sandbox, since float64) {
	t.Helper()
	got := uptimeOf(t, sandboxtest.Run(t, sb, "cat /proc/uptime"))
	if most := hostUptime(t) - since + 1; got > most {
		t.Errorf("the uptime is %g s, want at most %g s", got, most)
	}
}

// ownUptimes reports whether the kernel's version gives sandboxes uptimes of their own.
func ownUptimes(t *testing.T) bool {
	t.Helper()
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	must.Do(t, err)
	var major, minor int
	if _, err := fmt.Sscanf(string(release), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	return major > 6 || major == 6 && minor >= 3
}

// TestUptime checks that the uptime of a sandbox counts from its boot, for everything that runs
// in it. A pause with memory continues it, and a boot from the files begins it anew.
func TestUptime(t *testing.T) {
	t.Parallel()
	if !ownUptimes(t) {
		t.Skip("processes enter a time namespace at their execution since Linux 6.3")
	}
	began := hostUptime(t)
	cloud := sandboxtest.New(t, local.WithWarm(0))
	if cloud.Isolation() != local.Full {
		t.Skip("sandboxes have an uptime of their own with full isolation only")
	}
	awaitWarm(t, cloud)
	sb := cloud.Create(t)
	for _, one := range []struct {
		of     *sandbox.Sandbox
		forked string
	}{{sb, "True"}, {cloud.Create(t, sandbox.WithEnvs(startsCold)), "False"}} {
		youngerThan(t, one.of, began)
		const clock = `import os, time
[os.readlink("/proc/self/ns/time"), time.clock_gettime(time.CLOCK_BOOTTIME) < float(open("/proc/uptime").read().split()[0]) + 1, ` + forked + `]`
		want := fmt.Sprintf("['%s', True, %s]", sandboxtest.Run(t, one.of, "readlink /proc/self/ns/time"), one.forked)
		if got := sandboxtest.Eval(t, one.of, clock); got != want {
			t.Errorf("code has %s, want the clock of commands: %s", got, want)
		}
	}

	before := uptimeOf(t, sandboxtest.Run(t, sb, "cat /proc/uptime"))
	for _, mode := range []sandbox.PauseMode{sandbox.PauseFull, sandbox.PauseFilesystem} {
		must.Do(t, sb.Pause(t.Context(), &sandbox.PauseParams{Mode: mode}))
		resumed := hostUptime(t)
		must.Do(t, sb.Resume(t.Context(), nil))
		if mode == sandbox.PauseFilesystem {
			youngerThan(t, sb, resumed)
			continue
		}
		if got := uptimeOf(t, sandboxtest.Run(t, sb, "cat /proc/uptime")); got < before {
			t.Errorf("the uptime is %g s after a pause, and was %g s before", got, before)
		}
	}
}
