//go:build linux

package room

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/cloud/shortage"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestLimitsTooLow checks that the error of a limit that this process cannot set names the
// limit to raise.
func TestLimitsTooLow(t *testing.T) {
	t.Parallel()
	var own unix.Rlimit
	must.Do(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &own))
	if err := checkLimits([]wire.Rlimit{{unix.RLIMIT_NOFILE, own.Max}}); err != nil {
		t.Errorf("got %v, want no error for what this process has", err)
	}
	for _, err := range []error{
		checkLimits([]wire.Rlimit{{unix.RLIMIT_NOFILE, own.Max + 1}}),
		tooLow(unix.RLIMIT_NOFILE, 96, 128),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), "raise ulimit -n: ") || shortage.Of(err).Error() != err.Error() {
			t.Errorf("got %v, want a shortage that names ulimit -n", err)
		}
	}
}

// TestCoreLimit checks that no program of the host reads the core of a sandbox.
func TestCoreLimit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		most    uint64
		pattern string
		want    uint64
		err     string
	}{
		{unix.RLIM_INFINITY, "|/usr/lib/systemd/systemd-coredump", 1, ""},
		{1, "core", 1, ""},
		{0, "core", 0, ""},
		{0, "/var/crash/core.%p", 0, ""},
		{0, "|/usr/lib/systemd/systemd-coredump", 0, "raise ulimit -c: "},
		{0, "@/run/core.socket", 0, "raise ulimit -c: "},
	} {
		got, err := coreWithin(tt.most, tt.pattern)
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.HasPrefix(err.Error(), tt.err) {
			t.Errorf("%d, %s: got %d, %v, want %d, %q", tt.most, tt.pattern, got, err, tt.want, tt.err)
		}
	}
}

// TestReservedData checks that memory that a program only reserves does not count against its
// limit if no control group limits memory.
func TestReservedData(t *testing.T) {
	t.Parallel()
	const memory, reserved = 512 << 20, 1 << 30
	r := newRoom(t)
	s := newSandbox(t, r, engine.SandboxOptions{Limits: engine.Limits{MemoryBytes: memory}})
	without := &Sandbox{
		room:  &Room{keeper: &Keeper{groups: new(cgroup.Groups)}, level: r.level, ids: r.ids, options: Options{ReservedBytes: reserved}},
		share: allotment{limits: s.share.limits},
	}
	choose(t, without.room)
	limits, err := without.rlimits()
	must.Do(t, err)
	if !slices.Contains(limits, wire.Rlimit{unix.RLIMIT_DATA, memory + reserved}) {
		t.Errorf("got %v, want data of %d bytes", limits, memory+reserved)
	}
}

// choose sets the runner of a room that was not started.
func choose(t *testing.T, r *Room) {
	t.Helper()
	var err error
	r.runner, err = r.chooseRunner()
	must.Do(t, err)
}
