//go:build linux

package local_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// roomOf returns the process of the host that is the room of a sandbox in which a process has
// mark among its arguments.
func roomOf(t *testing.T, mark string) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", daemonOf(t, mark)))
	must.Do(t, err)
	_, rest, _ := strings.Cut(string(status), "\nPPid:\t")
	parent, _, _ := strings.Cut(rest, "\n")
	room, err := strconv.Atoi(parent)
	must.Do(t, err)
	return room
}

// TestRoomsKilled checks that a killed room takes the running sandboxes with it, which are then
// gone with the reason. A new room takes the next sandboxes and those that were paused. The third
// death within a minute ends the cloud, with its cause.
func TestRoomsKilled(t *testing.T) {
	t.Parallel()
	ctx, dir := patience.Context(t), t.TempDir()
	cloud, err := local.Start(ctx, local.WithStateDir(filepath.Join(dir, "state")))
	must.Do(t, err)
	client, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	defer client.Close()
	create := func() *sandbox.Sandbox {
		t.Helper()
		sb, err := client.Create(ctx)
		must.Do(t, err)
		t.Cleanup(func() { _ = sb.Close() }) // it is gone
		return sb
	}
	paused := create()
	must.Do(t, paused.Files.Write(ctx, "a.txt", []byte("text"), nil))
	must.Do(t, paused.Pause(ctx, nil))
	for range 3 {
		sb := create()
		again, err := client.Connect(ctx, paused.ID())
		must.Do(t, err)
		defer again.Close()
		if text, err := again.Files.ReadText(ctx, "a.txt", nil); err != nil || text != "text" {
			t.Errorf("the paused sandbox has %q, %v", text, err)
		}
		mark := "mark-" + sb.ID()
		if _, err := sb.Commands.Start(ctx, "exec -a "+mark+" sleep 1000", nil); err != nil {
			t.Fatal(err)
		}
		patience.Until(t, "the command runs", func() bool { return len(processesWith(mark)) > 0 })
		must.Do(t, syscall.Kill(roomOf(t, mark), syscall.SIGKILL))
		patience.Until(t, "the sandboxes of the room have ended", func() bool {
			_, err = sb.Commands.Run(ctx, "true", nil)
			return err != nil
		})
		if gone, ok := errors.AsType[*sandbox.GoneError](err); cloud.Err() == nil && (!ok || !strings.Contains(gone.Reason, "signal 9")) {
			t.Errorf("a command in a sandbox of the room: got %v, want how the room ended", err)
		}
	}
	<-cloud.Done()
	if err := cloud.Err(); err == nil || !strings.Contains(err.Error(), "signal 9") {
		t.Errorf("the cloud ended by %v", err)
	}
	if err := cloud.Close(); err != nil {
		t.Error(err)
	}
}

func processesWith(mark string) []string {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	return slices.DeleteFunc(all, func(name string) bool {
		line, err := os.ReadFile(name)
		return err != nil || !strings.Contains(string(line), mark+"\x00")
	})
}
