//go:build linux

package room

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
	"github.com/e2bctl/e2bctl/internal/must"
)

func TestShareProcesses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		most, used, own, want int64
		says                  string
	}{
		{most: 512, used: 10, own: 40, want: 256},
		{most: 80, used: 10, own: 40, want: 30},
		{most: 10_000, used: 9_000, own: 40, want: 960},
		{most: 64, used: 10, own: 40, says: "at least 74"},
		{most: 40, used: 1, own: 10, says: "at least 48"},
	} {
		got, err := shareProcesses(cgroup.ProcessLimit{Dir: "/group", Max: tt.most, Used: tt.used}, tt.own)
		if got != tt.want || (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%+v: got %d and error %v", tt, got, err)
		}
	}
}

// TestMachineProcesses checks the maximum for several machines. A machine that does not tell it
// has no maximum that a server could rely on.
func TestMachineProcesses(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can change its root directory")
	}
	var own unix.Rlimit
	must.Do(t, unix.Getrlimit(unix.RLIMIT_NPROC, &own))
	for name, tt := range map[string]struct {
		files map[string]string
		want  int64
		err   error
	}{
		"nothing known":        {err: fs.ErrNotExist},
		"threads not known":    {files: map[string]string{"pid_max": "300\n"}, err: fs.ErrNotExist},
		"numbers not known":    {files: map[string]string{"threads-max": "300\n"}, err: fs.ErrNotExist},
		"threads not a number": {files: map[string]string{"pid_max": "300\n", "threads-max": "many\n"}, err: strconv.ErrSyntax},
		"fewer threads":        {files: map[string]string{"pid_max": "300\n", "threads-max": "200\n"}, want: 200},
		"fewer numbers":        {files: map[string]string{"pid_max": "200\n", "threads-max": "300\n"}, want: 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			proc := filepath.Join(root, "proc/sys/kernel")
			must.Do(t, os.MkdirAll(proc, 0o755))
			for name, text := range tt.files {
				must.Do(t, os.WriteFile(filepath.Join(proc, name), []byte(text), 0o600))
			}
			onOwnThread(func() {
				if err := errors.Join(unix.Unshare(unix.CLONE_FS), unix.Chroot(root)); err != nil {
					t.Error(err)
					return
				}
				most, err := machineProcesses()
				if want := int64(min(uint64(tt.want), own.Cur)); most != want || !errors.Is(err, tt.err) {
					t.Errorf("got %d and error %v, want %d and %v", most, err, want, tt.err)
				}
				for _, wanted := range []int64{0, 1000} { // the limits of control groups are not known either
					if _, err := planProcesses(wanted); err == nil {
						t.Errorf("%d processes are planned, although nothing is known", wanted)
					}
				}
			})
		})
	}
}

// A supervisor of many sandboxes has no more threads than a supervisor without sandboxes:
// when sandboxes have taken all processes, it could not get more.
func TestSupervisorThreads(t *testing.T) {
	t.Parallel()
	for _, level := range []engine.Isolation{engine.Full, engine.Restricted} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			r := newRoomOn(t, level)
			for range 12 {
				newSandbox(t, r, engine.SandboxOptions{})
			}
			threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", roomPID(t, r)))
			if most := spawn.ThreadsOf(spawn.RoomProcessors); err != nil || len(threads) == 0 || len(threads) > most {
				t.Errorf("the room has %d threads, want 1 to %d: %v", len(threads), most, err)
			}
		})
	}
}
