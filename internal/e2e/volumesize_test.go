//go:build linux

package e2e

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/pinned"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// needLoopDevices skips a test if no file system in a file can be mounted.
func needLoopDevices(t *testing.T) {
	t.Helper()
	cloud, err := local.Start(t.Context(), local.WithWarm(0), local.WithMaxVolumeBytes(volumeSize))
	if err != nil {
		if os.Geteuid() != 0 && strings.Contains(err.Error(), "only root") {
			t.Skip(err) // the error must be of this kind
		}
		pinned.Skip(t, "volumes with a size: %v", err)
	}
	must.Do(t, cloud.Close())
}

// TestVolumeSize checks that a volume with a size is full at that size, for sandboxes and
// for the content API, shares its files, and leaves no mount and no loop device, also
// when the server is killed. Its files exist again, also for a server that bounds no
// volume.
func TestVolumeSize(t *testing.T) {
	t.Parallel()
	needLoopDevices(t)
	ctx := t.Context()
	state := filepath.Join(t.TempDir(), "state")
	before := startServer(t, stateVariable+"="+state, boundedVariable+"=1")
	client, err := sandbox.NewClient(before.option(), sandbox.WithVolumeURL(before.url))
	must.Do(t, err)
	defer client.Close()
	volume, err := client.Volumes.Create(ctx, "small")
	must.Do(t, err)
	sb, err := client.Create(ctx, sandbox.WithVolume("small", "/small"), sandbox.WithVolume("small", "/again"))
	must.Do(t, err)
	sandboxtest.Run(t, sb, "id -u > /small/kept; ln -s kept /small/link; mkdir /small/mine")
	if got, want := sandboxtest.Run(t, sb, "ls -A /again; stat -c %U /again/kept; head -c 32M /dev/zero > /small/large || echo full; rm /again/large"), "kept\nlink\nmine\nuser\nfull"; got != want {
		t.Errorf("in the sandbox: got %q, want %q", got, want)
	}
	if err := volume.WriteFrom(ctx, "large", io.LimitReader(zeros{}, 2*volumeSize), nil); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("from outside: got error %v, want %v", err, syscall.ENOSPC)
	}
	if err := volume.WriteFrom(ctx, "half", io.LimitReader(zeros{}, volumeSize/2), nil); err != nil {
		t.Errorf("what fits: %v", err)
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || bytes.Contains(mounts, []byte(state)) {
		t.Errorf("got mounts %s and error %v, want none of %s", mounts, err, state)
	}
	if len(loopDevices(t, state)) != 1 {
		t.Errorf("got %v, want one loop device", loopDevices(t, state))
	}
	before.kill(t)
	_ = sb.Close() // its server is gone
	patience.Until(t, "its loop devices are gone", func() bool { return len(loopDevices(t, state)) == 0 })

	after := startServer(t, stateVariable+"="+state)
	again, err := sandbox.NewClient(after.option(), sandbox.WithVolumeURL(after.url))
	must.Do(t, err)
	defer again.Close()
	sb, err = again.Create(ctx, sandbox.WithVolume("small", "/small"))
	must.Do(t, err)
	if got, want := sandboxtest.Run(t, sb, "ls -A /small; cat /small/link"), "half\nkept\nlink\nmine\n1000"; got != want {
		t.Errorf("after the restart: got %q, want %q", got, want)
	}
	if err := sb.Close(); err != nil {
		t.Error(err)
	}
	after.stop(t)
	patience.Until(t, "its loop devices are gone", func() bool { return len(loopDevices(t, state)) == 0 })
}

// loopDevices returns the files in a directory that are loop devices.
func loopDevices(t *testing.T, dir string) (found []string) {
	t.Helper()
	devices, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	must.Do(t, err)
	for _, device := range devices {
		if file, err := os.ReadFile(device); err == nil && bytes.HasPrefix(file, []byte(dir)) {
			found = append(found, string(bytes.TrimSpace(file)))
		}
	}
	return found
}
