//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// Programs of all users find out the system, its fonts and programs, and that text is
// UTF-8.
func TestSurroundings(t *testing.T) {
	t.Parallel()
	for _, level := range []local.Isolation{local.Full, local.Restricted} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			cloud := shared(t)
			if level != local.Full {
				cloud = sandboxtest.New(t, local.WithWarm(0), local.WithIsolation(level))
			}
			sb := cloud.Create(t)
			// Nobody has read it yet, so opening it has to wait for its text.
			if got, err := sb.Files.Read(t.Context(), "/proc/meminfo", nil); err != nil || !strings.HasPrefix(string(got), "MemTotal:") {
				t.Errorf("got %q, %v, want the memory", got, err)
			}
			for _, user := range []string{"root", "user"} {
				surroundings(t, sb, user)
			}
			for _, size := range []int{0, 10, 1 << 20, 2 << 20} { // a new file, and a replaced one
				want := strings.Repeat("x", size)
				must.Do(t, sb.Files.Write(t.Context(), "dir/file", []byte(want), nil))
				if got, err := sb.Files.Read(t.Context(), "dir/file", nil); err != nil || string(got) != want {
					t.Errorf("read %d bytes, %v, want the %d that were written", len(got), err, size)
				}
			}
			const locale = "import locale, os; [os.environ.get(n) for n in ('LANG', 'LC_CTYPE')] + [locale.getpreferredencoding(False)]"
			if got, want := sandboxtest.Eval(t, sb, locale), "['C.UTF-8', None, 'UTF-8']"; got != want {
				t.Errorf("the kernel's locale: got %s, want %s", got, want)
			}
		})
	}
}

// surroundings checks a user's command's view of this machine's system.
func surroundings(t *testing.T, sb *sandbox.Sandbox, user string) {
	t.Helper()
	print := func(command string) string {
		result, err := sb.Commands.Run(t.Context(), command, &sandbox.CommandParams{User: user})
		if err != nil {
			t.Fatalf("%s: %s: %v", user, command, err)
		}
		return result.Stdout
	}
	names, err := filepath.Glob("/etc/java-*-openjdk/security/java.security")
	must.Do(t, err)
	for _, name := range append(names, "/etc/os-release", "/etc/fonts/fonts.conf", "/etc/R/Renviron") {
		host, err := os.ReadFile(name)
		if err != nil {
			t.Logf("not on this machine: %v", err)
			continue
		}
		if got := print("cat " + name); got != string(host) {
			t.Errorf("%s: %s: got %q, want this machine's", user, name, got)
		}
	}
	if got, want := print("echo $LANG"), "C.UTF-8\n"; got != want {
		t.Errorf("%s: LANG: got %q, want %q", user, got, want)
	}
	programs, err := filepath.Glob("/usr/local/*/bin")
	must.Do(t, err)
	for _, shell := range []string{"sh -c", "bash -l -c"} {
		path := strings.Split(strings.TrimSpace(print(shell+" 'echo $PATH'")), ":")
		for _, dir := range programs {
			info, err := os.Lstat(filepath.Dir(dir))
			if err == nil && info.IsDir() && !slices.Contains(path, dir) {
				t.Errorf("%s: PATH of %s: got %q, want %s in it", user, shell, path, dir)
			}
		}
	}
}

// Kernels count the processors and the memory of their sandbox too, whether or not
// they were forked.
func TestKernelCountsProcessors(t *testing.T) {
	t.Parallel()
	if runtime.NumCPU() < 2 {
		t.Skip("this machine has one processor")
	}
	for _, level := range []local.Isolation{local.Full, local.Restricted} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			cloud := sandboxtest.New(t, local.WithIsolation(level), local.WithResources(local.Resources{CPUs: 1, MemoryBytes: 1 << 30}))
			const affinity = "len(__import__('os').sched_getaffinity(0))"
			if got := sandboxtest.Eval(t, cloud.Create(t), affinity); got != "1" {
				t.Errorf("processors to run on: got %s, want 1", got)
			}
			if level != local.Full {
				return // /proc and /sys are the machine's, and no kernel is forked
			}
			awaitWarm(t, cloud)
			sb := cloud.Create(t)
			if got, want := sandboxtest.Eval(t, sb, "["+forked+", "+affinity+"]"), "[True, 1]"; got != want {
				t.Errorf("forked, processors to run on: got %s, want %s", got, want)
			}
			const counts = "import os; [os.cpu_count(), open('/proc/cpuinfo').read().count('processor\\t:'), open('/proc/meminfo').readline().split()[1]]"
			if got, want := sandboxtest.Eval(t, sb, counts), "[1, 1, '1048576']"; got != want {
				t.Errorf("what the kernel counts: got %s, want %s", got, want)
			}
		})
	}
}
