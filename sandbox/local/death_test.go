//go:build linux

package local_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// daemonOf returns the process of the host that is the first one of the sandbox in which a
// process has mark among its arguments.
func daemonOf(t *testing.T, mark string) int {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must.Do(t, err)
	for _, name := range all {
		line, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(line, []byte(mark+"\x00")) {
			continue
		}
		pid := filepath.Base(filepath.Dir(name))
		for range 8 { // its ancestors
			status, err := os.ReadFile("/proc/" + pid + "/status")
			if err != nil {
				break
			}
			field := func(name string) string {
				_, rest, _ := strings.Cut(string(status), "\n"+name+":")
				value, _, _ := strings.Cut(rest, "\n")
				return strings.TrimSpace(value)
			}
			if inside := strings.Fields(field("NSpid")); len(inside) > 1 && inside[len(inside)-1] == "1" {
				first, err := strconv.Atoi(pid)
				must.Do(t, err)
				return first
			}
			pid = field("PPid")
		}
	}
	t.Skip("the sandbox has no namespace of processes whose first one could be killed")
	return 0
}

// TestDaemonKilled checks that every call that is under way when a sandbox's daemon is killed,
// and every call right after it, reports the cause of death.
func TestDaemonKilled(t *testing.T) {
	t.Parallel()
	cloud, ctx := sandboxtest.New(t), patience.Context(t)
	for range 3 {
		sb := cloud.Create(t)
		mark := "mark-" + sb.ID()
		var calls, begun sync.WaitGroup
		told := func(what string, err error) {
			gone, ok := errors.AsType[*sandbox.GoneError](err)
			if !ok || gone.State != sandbox.GoneDied || !strings.Contains(gone.Reason, "signal 9") {
				t.Errorf("%s: got %v, want that envd was ended by signal 9", what, err)
			}
		}
		write := func(ctx context.Context) error { return sb.Files.Write(ctx, "a.txt", []byte("text"), nil) }
		for range 8 {
			begun.Add(1)
			first := sync.OnceFunc(begun.Done)
			calls.Go(func() {
				_, err := sb.Commands.Run(ctx, "echo begun; exec -a "+mark+" sleep 1000", &sandbox.CommandParams{Stdout: writerFunc(func(p []byte) (int, error) {
					first()
					return len(p), nil
				})})
				told("a command", err)
			})
		}
		for range 4 { // until it fails
			calls.Go(func() {
				for {
					if err := write(ctx); err != nil {
						told("an upload", err)
						return
					}
				}
			})
		}
		begun.Add(1)
		first := sync.OnceFunc(begun.Done)
		calls.Go(func() {
			_, err := sb.RunCode(ctx, "import time; print('begun'); time.sleep(1000)", &sandbox.RunCodeParams{Stdout: writerFunc(func(p []byte) (int, error) {
				first()
				return len(p), nil
			})})
			told("code", err)
		})
		begun.Wait()
		must.Do(t, syscall.Kill(daemonOf(t, mark), syscall.SIGKILL))
		calls.Wait()
		told("a call after it", write(ctx))
	}
}
