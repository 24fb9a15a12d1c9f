//go:build linux

package room

import (
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
)

func TestParseIDMap(t *testing.T) {
	t.Parallel()
	got := parseIDMap([]byte("         0          0 4294967295\n bad line\n 1000 65536 1"))
	want := []idRange{{0, 0, 4294967295}, {1000, 65536, 1}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(idRange{})); diff != "" {
		t.Error(diff)
	}
}

// Root's capabilities decide which ids sandboxes get. With Full isolation these never
// include the host's root.
func TestRootIDs(t *testing.T) {
	t.Parallel()
	host, remapped, alone := []idRange{{0, 0, 1 << 32}}, []idRange{{0, 100_000, 65_536}}, []idRange{{0, 1000, 1}}
	all := forOtherIDs | forRanges
	for name, tt := range map[string]struct {
		ids              []idRange
		has              uint64
		full, restricted roomIDs
		refused          error // with Full isolation
	}{
		"root of the machine":       {ids: host, has: all, full: roomIDs{apart: true, ranged: true}, restricted: roomIDs{apart: true}},
		"root of Docker":            {ids: host, has: forOtherIDs, full: roomIDs{apart: true}, restricted: roomIDs{apart: true}},
		"mounts alone":              {ids: host, has: all &^ (1 << unix.CAP_SYS_PTRACE), full: roomIDs{apart: true}, restricted: roomIDs{apart: true}},
		"no capability":             {ids: host, refused: errHostRoot},
		"one of them lacks":         {ids: host, has: all &^ (1 << unix.CAP_FOWNER), refused: errHostRoot},
		"root of a user namespace":  {ids: remapped, has: all},
		"a namespace with one user": {ids: alone, has: all},
	} {
		full, err := rootIDs(engine.Full, tt.ids, tt.has)
		if full != tt.full || !errors.Is(err, tt.refused) {
			t.Errorf("%s: full: got %+v and error %v, want %+v and %v", name, full, err, tt.full, tt.refused)
		}
		restricted, err := rootIDs(engine.Restricted, tt.ids, tt.has)
		if restricted != tt.restricted || err != nil {
			t.Errorf("%s: restricted: got %+v and error %v, want %+v", name, restricted, err, tt.restricted)
		}
	}
}

func TestIDsOfSandboxes(t *testing.T) {
	t.Parallel()
	t.Run("owner of a namespace", ownsNamespace)
	t.Run("two rooms", differOfRooms)
}

// ownsNamespace checks the user that makes a sandbox's user namespace: with ids of its own the
// sandbox has one of its own, too.
func ownsNamespace(t *testing.T) {
	t.Parallel()
	for _, slot := range []uint32{0, 1, 7} {
		ranged := &Sandbox{slot: slot, room: &Room{ids: roomIDs{apart: true, ranged: true}}}
		if got, want := ranged.owner(), spawn.FirstID(slot); got != want {
			t.Errorf("slot %d: got %d, want %d", slot, got, want)
		}
		apart := &Sandbox{slot: slot, room: &Room{ids: roomIDs{apart: true}}}
		if got := apart.owner(); got != 0 {
			t.Errorf("slot %d without a range: got %d, want 0", slot, got)
		}
	}
}

// differOfRooms checks that rooms of one machine have different ids: a sandbox of a room starts
// while a sandbox of another room has as many processes as it may have.
func differOfRooms(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("sandboxes of an ordinary user have the user's id")
	}
	for _, level := range []engine.Isolation{engine.Full, engine.Restricted} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			rooms := [2]*Room{newRoomOn(t, level), newRoomOn(t, level)}
			if a, b := rooms[0].ids.first, rooms[1].ids.first; a == b || a < spawn.IDBase || b < spawn.IDBase {
				t.Errorf("the first ids of two rooms are %d and %d, want different ones from %d on", a, b, spawn.IDBase)
			}
			few := engine.SandboxOptions{Limits: engine.Limits{MaxProcesses: 64}}
			greedy := newSandbox(t, rooms[0], few)
			got := sh(t, greedy, `python3 -c '
import subprocess
try:
    for _ in range(100): subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
except OSError: print("refused")'`)
			if got.Output != "refused\n" {
				t.Errorf("a sandbox starts 100 processes: got %+v, want a refusal", got)
			}
			if got := sh(t, newSandbox(t, rooms[1], few), "echo started"); got.Output != "started\n" {
				t.Errorf("a sandbox of another room: got %+v", got)
			}
		})
	}
}
