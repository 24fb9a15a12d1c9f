//go:build linux

package local_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// boundVariable makes this program start a cloud with the isolation that it names, and use up
// the memory of a sandbox.
const boundVariable = "LOCAL_TEST_BOUND"

// TestContainerBounds checks a server whose control groups, as those of a container, allow less
// than a sandbox has by default: sandboxes have that, show it, and say when its memory ran out,
// whether or not the server may make groups for them.
func TestContainerBounds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		fixed bool
		level local.Isolation
	}{{false, local.Full}, {true, local.Full}, {true, local.Restricted}} {
		t.Run(fmt.Sprint("fixed ", tt.fixed, " ", tt.level), func(t *testing.T) {
			t.Parallel()
			memory := limitedGroup(t, groupLimit{"memory", "memory.limit_in_bytes", "memory.max"}, "536870912")
			groups := []string{memory}
			if _, err := os.Stat(memory + "/cpu.max"); errors.Is(err, os.ErrNotExist) { // otherwise it is one hierarchy
				groups = append(groups, limitedGroup(t, groupLimit{"cpu", "cpu.cfs_quota_us", ""}, "70000"))
			} else if err := os.WriteFile(memory+"/cpu.max", []byte("70000 100000"), 0); err != nil {
				t.Fatal(err)
			}
			out := runInGroups(t, groups, tt.fixed, 0, boundVariable+"="+string(tt.level))
			for _, want := range []string{"512 MiB, 1 processors", "inside: 1", "command: out of memory", "kernel: out of memory"} {
				if !strings.Contains(out, want+"\n") {
					t.Errorf("got %s, want %q in it", out, want)
				}
			}
		})
	}
}

// useBounds starts a cloud, and writes the limits of a sandbox and the result of exceeding them.
func useBounds(w io.Writer, level string) error {
	ctx := context.Background()
	cloud, err := local.Start(ctx, local.WithIsolation(local.Isolation(level)))
	if err != nil {
		fmt.Fprintln(w, err)
		return nil
	}
	defer cloud.Close()
	return sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
		info, err := sb.Info(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%d MiB, %d processors\n", info.MemoryBytes>>20, info.CPUs)
		result, err := sb.Commands.Run(ctx, "nproc", nil)
		if err != nil {
			return err
		}
		fmt.Fprint(w, "inside: ", result.Stdout)
		// Two processes. Neither reaches a limit of its own. The kernel prefers them to the server.
		const eat = "import os, signal\nr, w = os.pipe()\nif os.fork() == 0:\n os.read(r, 1)\n x = b'x' * (300 << 20)\n signal.pause()\n" +
			"x = b'x' * (300 << 20)\nos.write(w, b'x')\nsignal.pause()"
		_, err = sb.Commands.Run(ctx, "exec python3 -c \""+eat+"\"", nil)
		fmt.Fprintln(w, "command:", reason(err))
		_, err = sb.RunCode(ctx, eat, nil)
		fmt.Fprintln(w, "kernel:", reason(err))
		return nil
	}, cloud.Option())
}

// TestServerSurvives checks that the kernel, if the memory of the machine or the container runs out,
// ends the commands and kernels of sandboxes before the server.
func TestServerSurvives(t *testing.T) {
	t.Parallel()
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	must.Do(t, err)
	server, err := strconv.Atoi(strings.TrimSpace(string(own)))
	must.Do(t, err)
	least := min(server+200, 1000)
	for _, level := range []local.Isolation{local.Full, local.Restricted, local.None} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			sb := sandboxtest.New(t, local.WithIsolation(level)).Create(t)
			if got, err := strconv.Atoi(sandboxtest.Run(t, sb, "cat /proc/self/oom_score_adj")); err != nil || got < least {
				t.Errorf("a command has the score %d (%v), want at least %d, the server has %d", got, err, least, server)
			}
			execution, err := sb.RunCode(t.Context(), "int(open('/proc/self/oom_score_adj').read())", nil)
			must.Do(t, err)
			if got, err := strconv.Atoi(execution.Text()); err != nil || got < least {
				t.Errorf("a kernel has the score %d (%v), want at least %d, the server has %d", got, err, least, server)
			}
		})
	}
}

// reason says whether memory ran out.
func reason(err error) string {
	if err != nil && strings.Contains(err.Error(), "out of memory") {
		return "out of memory"
	}
	return fmt.Sprint(err)
}
