//go:build linux

package room

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
)

// roomIDs are the ids of the room as this process numbers them.
type roomIDs struct {
	ranged bool // a range, of which each sandbox gets 65,536; otherwise a single id
}

// planIDs decides which ids the room gets. No id inside may ever be host uid 0:
// with it core_pattern can be opened for writing without any capability.
func planIDs() (roomIDs, error) {
	if os.Geteuid() != 0 {
		return roomIDs{}, nil
	}
	data, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return roomIDs{}, err
	}
	for _, m := range parseIDMap(data) {
		if m.inside <= spawn.IDBase && m.inside+m.count >= spawn.IDBase+spawn.IDCount {
			return roomIDs{ranged: true}, nil
		}
	}
	for _, m := range parseIDMap(data) {
		if m.inside == 0 && m.outside != 0 {
			return roomIDs{}, nil // this is root of a user namespace, so an ordinary user outside
		}
	}
	return roomIDs{}, errors.New("this root has no other ids to give to sandboxes")
}

type idRange struct{ inside, outside, count uint64 }

func parseIDMap(data []byte) []idRange {
	var ranges []idRange
	for len(data) > 0 {
		var r idRange
		line := data
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			line, data = data[:i], data[i+1:]
		} else {
			data = nil
		}
		if n, err := fmt.Sscan(string(line), &r.inside, &r.outside, &r.count); err == nil && n == 3 {
			ranges = append(ranges, r)
		}
	}
	return ranges
}

// roomAttr returns how the room is started.
func roomAttr(ids roomIDs) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: spawn.Namespaces, Setsid: true, Pdeathsig: syscall.SIGKILL}
	spawn.MapIDs(attr, ids.ranged, spawn.IDBase, spawn.IDCount, os.Geteuid(), os.Getegid())
	return attr
}
