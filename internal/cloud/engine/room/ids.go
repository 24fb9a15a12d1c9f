//go:build linux

package room

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/capability"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/spawn"
)

// roomIDs are the ids of sandboxes on the host.
type roomIDs struct {
	// apart means that the ids belong to sandboxes of this room only. Otherwise all sandboxes have
	// the server's id.
	apart bool
	first int // the first of the ids that are apart
	// ranged means that each sandbox has 65,536 ids. Its root and its user are then different ids.
	ranged bool
}

// Capabilities that a server with the user id of root needs for some of its tasks.
const (
	// forOtherIDs allow starting processes with other ids, ending them, and making and removing
	// their files.
	forOtherIDs uint64 = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_KILL | 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER
	// forRanges are needed in addition to forOtherIDs, for mounts with mapped ids.
	forRanges uint64 = 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_SYS_PTRACE
)

// errHostRoot means that sandboxes would have the id of the host's root.
var errHostRoot = errors.New("this root lacks capabilities to give sandboxes another id than its own (setuid, setgid, kill, chown, dac_override and fowner, which Docker gives unless told to drop them): " +
	"add them, or run as an ordinary user")

// planIDs decides which ids sandboxes get at an isolation level. If this process is root, planIDs
// checks its capabilities, because root of a container lacks most of them. With Full isolation, no id
// inside may ever be the host's uid 0, because this uid can open core_pattern for writing without any
// capability.
func planIDs(level engine.Isolation) (roomIDs, error) {
	if os.Geteuid() != 0 {
		return roomIDs{}, nil
	}
	data, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return roomIDs{}, err
	}
	has, err := capability.Effective()
	if err != nil {
		return roomIDs{}, err
	}
	ids, err := rootIDs(level, parseIDMap(data), has)
	if ids.apart {
		ids.first = spawn.RandomFirst()
	}
	return ids, err
}

// rootIDs is like planIDs, for a server that is root with these ids and capabilities. It chooses no
// first id.
func rootIDs(level engine.Isolation, ids []idRange, has uint64) (roomIDs, error) {
	if has&forOtherIDs == forOtherIDs && slices.ContainsFunc(ids, func(m idRange) bool {
		return m.inside <= spawn.IDBase && m.inside+m.count >= spawn.IDBase+spawn.IDCount
	}) {
		return roomIDs{apart: true, ranged: level == engine.Full && has&forRanges == forRanges}, nil
	}
	if level == engine.Full && slices.ContainsFunc(ids, func(m idRange) bool { return m.inside == 0 && m.outside == 0 }) {
		return roomIDs{}, errHostRoot
	}
	return roomIDs{}, nil // without namespaces, or as root of a user namespace, which is an ordinary user outside
}

// firstOf returns the first host id of a slot.
func (ids roomIDs) firstOf(slot uint32) int { return ids.first + spawn.FirstID(slot) }

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

// roomAttr returns the attributes of the room's process.
func roomAttr(ids roomIDs) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: spawn.Namespaces, Setsid: true, Pdeathsig: syscall.SIGKILL}
	ids.mapTo(attr, ids.first, spawn.RoomIDs)
	return attr
}

// mapTo maps the ids of sandboxes into the user namespace of a process that the server starts. If
// sandboxes have ranges of ids, it maps count ids from first on. Otherwise it maps the only id, which
// all sandboxes share.
func (ids roomIDs) mapTo(attr *syscall.SysProcAttr, first, count int) {
	if ids.apart && !ids.ranged {
		first, count = ids.first, 1
	}
	spawn.MapIDs(attr, ids.apart, first, count, os.Geteuid(), os.Getegid())
}

// entersDirectories reports whether sandboxes can see directories of the server: by mounts with
// mapped ids, or because they have the server's id.
func (ids roomIDs) entersDirectories() bool { return ids.ranged || !ids.apart }

// errNoDirectories means that gVisor needs directories of the server.
var errNoDirectories = errors.New(noDirectories)

// noDirectories is the reason why sandboxes cannot see directories of the server.
const noDirectories = "this root lacks the capabilities sys_admin and sys_ptrace, so sandboxes have an id of their own that cannot enter its directories: add them (docker run --cap-add SYS_ADMIN --cap-add SYS_PTRACE), or run as an ordinary user"
