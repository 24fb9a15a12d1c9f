//go:build linux

package spawn

import (
	"math/rand/v2"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
)

// IDBase is the first host id of the range for sandboxes of root servers. The range is above the
// ids that distributions, systemd-nspawn and container engines assign. It is below the ids that
// some programs interpret as negative numbers.
const (
	IDBase     = 0x70000000
	IDCount    = 1 << 28
	RoomIDs    = IDCount / 2 // ids of one room
	SlotSize   = guest.IDs
	SlotsCount = RoomIDs / SlotSize
)

// RandomFirst returns a random first id for the ids of a room. The rooms of other servers then have
// other ids, also in other containers: processes of one id may signal each other, and the kernel
// counts them together. Two rooms have an id in common with a probability below 1/65,536, because
// their sandboxes use the same few ids of each slot. The range leaves out the slot of
// mounts.StrangerID, which all servers share.
func RandomFirst() int { return IDBase + SlotSize + rand.N(IDCount-RoomIDs-SlotSize+1) }

// Namespaces are the flags of the namespaces that the room and each sandbox create for themselves.
const Namespaces = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC |
	syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// FirstID returns the first id of a slot, in the room's numbering. It is the id of the sandbox's
// root and of the owner of the sandbox's user namespace.
func FirstID(slot uint32) int { return int(slot) * SlotSize }

// MapIDs maps ids into the user namespace of a new process, starting at 0. If ranged is true, it
// maps count ids from base on. Otherwise it maps only root, to the ids uid and gid outside.
func MapIDs(attr *syscall.SysProcAttr, ranged bool, base, count, uid, gid int) {
	if !ranged {
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
		return
	}
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: base, Size: count}}
	attr.GidMappings = attr.UidMappings
	attr.GidMappingsEnableSetgroups = true
	attr.Credential = &syscall.Credential{} // root of the new namespace, no supplementary groups
}
