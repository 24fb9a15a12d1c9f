//go:build linux

package room

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// A mute program says no hello, and continues when its control socket is closed.
type mute struct {
	path string
	pid  string // the file with the process id of the program
}

func newMute(t *testing.T) mute {
	t.Helper()
	m := mute{path: filepath.Join(t.TempDir(), "mute"), pid: filepath.Join(t.TempDir(), "pid")}
	syscall.ForkLock.RLock() // a child that has the file open for writing keeps it from being executed
	defer syscall.ForkLock.RUnlock()
	must.Do(t, os.WriteFile(m.path, fmt.Appendf(nil, "#!/bin/sh\necho $$ >%s.new && mv %s.new %s && exec sleep 1000\n", m.pid, m.pid, m.pid), 0o755))
	return m
}

// giveUp calls start, and ends its context once the program runs. When start has returned,
// the program must be gone.
func (m mute) giveUp(t *testing.T, start func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	started := make(chan error, 1)
	go func() { started <- start(ctx) }()
	var pid int
	patience.Until(t, "the program runs", func() bool {
		text, err := os.ReadFile(m.pid)
		if err == nil {
			pid, err = strconv.Atoi(string(text[:max(len(text), 1)-1]))
		}
		return err == nil
	})
	cancel()
	must.Is(t, patience.Receive(t, "the start to fail", started), context.Canceled)
	if err := unix.Kill(pid, unix.SIGKILL); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the program still ran: killing it had the error %v", err)
	}
}

// TestGuardThatSaysNothing checks that a guard whose start was given up is not left.
func TestGuardThatSaysNothing(t *testing.T) {
	t.Parallel()
	program := newMute(t)
	binary, err := openBinary(program.path, t.TempDir())
	must.Do(t, err)
	defer binary.Close()
	room, err := os.Open(os.DevNull)
	must.Do(t, err)
	defer room.Close()
	program.giveUp(t, func(ctx context.Context) error {
		_, _, err := (&Room{keeper: &Keeper{binary: binary}}).startGuard(ctx, room, nil)
		return err
	})
}

// TestKeeperThatSaysNothing checks that a keeper whose start was given up is not left.
func TestKeeperThatSaysNothing(t *testing.T) {
	t.Parallel()
	program, dir := newMute(t), instanceDir(t)
	program.giveUp(t, func(ctx context.Context) error {
		_, err := StartKeeper(ctx, KeeperOptions{Dir: dir, Binary: program.path})
		return err
	})
}
