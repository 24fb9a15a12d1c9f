//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// peak returns the most memory that a process has used.
func peak(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must.Do(t, err)
	var kilobytes int64
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	if _, err := fmt.Sscan(rest, &kilobytes); err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}

// TestLarge copies 256 MiB into a volume, into a pause and out of both, and checks that
// the server holds none of it in memory.
func TestLarge(t *testing.T) {
	t.Parallel()
	const size = 256 << 20
	ctx := t.Context()
	server := startServer(t, stateVariable+"="+filepath.Join(t.TempDir(), "state"))
	client, err := sandbox.NewClient(server.option(), sandbox.WithVolumeURL(server.url))
	must.Do(t, err)
	defer client.Close()
	sb, err := client.Create(ctx)
	must.Do(t, err)
	before := peak(t, server.pid())
	volume, err := client.Volumes.Create(ctx, "data")
	must.Do(t, err)
	must.Do(t, volume.WriteFrom(ctx, "large", io.LimitReader(zeros{}, size), nil))
	r, err := volume.Open(ctx, "large")
	must.Do(t, err)
	n, err := io.Copy(io.Discard, r)
	if err := errors.Join(err, r.Close(), r.Close()); n != size || err != nil { // twice
		t.Errorf("got %d bytes and error %v, want %d", n, err, size)
	}
	sandboxtest.Run(t, sb, fmt.Sprintf("head -c %d /dev/urandom > big; sha256sum big > sum", size))
	must.Do(t, errors.Join(sb.Pause(ctx, &sandbox.PauseParams{Mode: sandbox.PauseFilesystem}), sb.Resume(ctx, nil)))
	if got := sandboxtest.Run(t, sb, "sha256sum -c sum"); got != "big: OK" {
		t.Errorf("after the pause: got %q, want the file", got)
	}
	if grown := peak(t, server.pid()) - before; grown > size/4 {
		t.Errorf("the server needed %d MiB more, want it to hold nothing of the %d MiB", grown>>20, size>>20)
	}
	if err := errors.Join(sb.Close(), sb.Close()); err != nil {
		t.Error(err)
	}
	server.stop(t)
}

// TestPauseCancelled checks that after a cancelled pause, whose progress the caller does
// not know, the sandbox is running or paused, with all its files, and that its handle
// resumes it.
func TestPauseCancelled(t *testing.T) {
	t.Parallel()
	server := startServer(t, stateVariable+"="+filepath.Join(t.TempDir(), "state"))
	for _, mode := range []sandbox.PauseMode{sandbox.PauseFull, sandbox.PauseFilesystem} {
		sb, err := sandbox.Create(t.Context(), server.option())
		must.Do(t, err)
		sandboxtest.Run(t, sb, "head -c 20000000 /dev/urandom > big; sha256sum big > sum; (sleep 5000 &)")
		for range 4 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.Int64N(int64(100*time.Millisecond))))
			err := sb.Pause(ctx, &sandbox.PauseParams{Mode: mode})
			cancel()
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: got error %v, want %v", mode, err, context.DeadlineExceeded)
			}
			result, err := resumed(t, sb)
			if errors.Is(err, sandbox.ErrGone) { // the pause was still under way, and came after Resume
				result, err = resumed(t, sb)
			}
			if err != nil || result.Stdout != "big: OK\n" {
				t.Errorf("%s: got %+v and error %v, want the file", mode, result, err)
			}
			if info, err := sb.Info(t.Context()); err != nil || info.State != api.StateRunning {
				t.Errorf("%s: got %+v and error %v, want it to run", mode, info, err)
			}
		}
		if got := sandboxtest.Run(t, sb, sleepers); mode == sandbox.PauseFull && got != "1" {
			t.Errorf("got %s processes that went on, want 1", got)
		}
		if err := sb.Close(); err != nil {
			t.Error(err)
		}
	}
	server.stop(t)
}

// resumed resumes a sandbox and checks its large file.
func resumed(t *testing.T, sb *sandbox.Sandbox) (*sandbox.CommandResult, error) {
	t.Helper()
	if err := sb.Resume(t.Context(), nil); err != nil {
		t.Fatalf("resume: %v", err)
	}
	return sb.Commands.Run(t.Context(), "sha256sum -c sum", nil)
}
