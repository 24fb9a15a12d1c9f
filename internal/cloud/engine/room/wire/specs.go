//go:build linux

package wire

import (
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/counter"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/place"
)

// RoomSpec is what the room is told.
type RoomSpec struct {
	Ranged  bool `json:"ranged"`
	InPlace bool `json:"inPlace,omitempty"` // without namespaces
	// Limits for the sandboxes of this room: for all together, or for each if it
	// has a range of ids.
	Counters  counter.Maxima `json:"counters,omitempty"`
	Limits    []Rlimit       `json:"limits,omitempty"`
	Processes uint64         `json:"processes,omitempty"` // of all of them
}

// InitSpec is what the first stage of a sandbox is told.
type InitSpec struct {
	Ranged  bool              `json:"ranged"`
	Path    string            `json:"path"`             // PATH of login shells
	Trees   []string          `json:"trees"`            // host directories to show
	Mounted []bool            `json:"mounted"`          // which of Trees were passed as a mount, in order
	Devices bool              `json:"devices"`          // a mount with the sandbox's own devices follows those of Trees
	Private bool              `json:"private"`          // the last file lists what must not be shown of Trees
	Links   map[string]string `json:"links"`            // symbolic links at the root, as on the host
	Disk    int64             `json:"disk"`             // bytes
	Root    *place.Root       `json:"root,omitempty"`   // without namespaces
	Memory  int64             `json:"memory,omitempty"` // bytes that /proc/meminfo shows; 0: the machine's
	Limits  []Rlimit          `json:"limits"`
	// Processors are those that the sandbox runs on; none: all of the machine's.
	Processors []int `json:"processors,omitempty"`
	// Counters are the maxima of the sandbox's own user namespace.
	Counters counter.Maxima `json:"counters,omitempty"`
	// Saved is the layout of the saved files to begin with, which are the last file of
	// all; "": there are none.
	Saved      string     `json:"saved,omitempty"`
	EgressPath EgressPath `json:"egressPath,omitempty"` // out of the network namespace
	Volumes    []Volume   `json:"volumes,omitempty"`
	// Authority is a certificate, as PEM, that programs are to trust.
	Authority []byte `json:"authority,omitempty"`
	// Mounter: the last file of all is the control socket of a mounter to start, which can
	// replace the file system later.
	Mounter bool `json:"mounter,omitempty"`
	// Late: the same, but the mounter only enters the root, when the second stage has been
	// executed.
	Late bool `json:"late,omitempty"`
	// Layers are what the sandbox stands on, lowest first. Their mounts follow those of
	// Trees.
	Layers []Layer `json:"layers,omitempty"`
	// Image: the root is that of a container image, which Layers have, with nothing of the
	// host.
	Image bool `json:"image,omitempty"`
	// GVisor: the second stage runs gVisor, and keeps its capabilities for that. What is
	// built is the root of gVisor's sandbox, and not that of any process here.
	GVisor bool `json:"gvisor,omitempty"`
	// Program is where the program is that gVisor's sandbox sees; "": its mount is the last
	// file of all.
	Program string `json:"program,omitempty"`
}

// EnterSpec is what the process is told that enters the root of an image together with the
// second stage.
type EnterSpec struct {
	Authority []byte `json:"authority,omitempty"` // as in InitSpec
}

// Layer is a directory of files that sandboxes share.
type Layer struct {
	// Dir contains a directory for each of Trees, called 0, 1 and so on; "": its mount was
	// passed.
	Dir   string   `json:"dir,omitempty"`
	Trees []string `json:"trees"` // paths in the sandbox; "" is the root
}

// LayerAttributes are those of the mount of a layer.
const LayerAttributes = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV

// VolumeAttributes are those of the mount of a volume: what one sandbox makes there
// grants no rights in another.
const VolumeAttributes = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV

// Volume is a directory of the host in a sandbox.
type Volume struct {
	// Dir is its path on the host; "": its mount was passed, after those of the layers.
	Dir  string `json:"dir,omitempty"`
	Path string `json:"path"` // in the sandbox
	// ReadOnly and Opened are of a directory that is no volume: nothing in it can be
	// changed, and a descriptor of it was passed, which Dir has to lead to.
	ReadOnly bool `json:"readOnly,omitempty"`
	Opened   bool `json:"opened,omitempty"`
}

// Attributes returns those of its mount.
func (v Volume) Attributes() uint64 {
	if v.ReadOnly {
		return VolumeAttributes | unix.MOUNT_ATTR_RDONLY
	}
	return VolumeAttributes
}

// Rlimit is a limit of every process: its number and its value.
type Rlimit [2]uint64

// DNSPort is the port of name servers.
const DNSPort = 53

// EgressPath tells the first stage what to do about the egress path.
type EgressPath string

const (
	EgressNone  EgressPath = ""      // there is none except the proxy
	EgressTry   EgressPath = "try"   // build it, use it once, and report what went wrong
	EgressBuild EgressPath = "build" // it is known to work on this machine: build it, or fail
)

// EnvdSpec is what the second stage is told, besides its configuration.
type EnvdSpec struct {
	Hostname string      `json:"hostname"`
	Ranged   bool        `json:"ranged"`
	Egress   bool        `json:"egress"`
	Root     *place.Root `json:"root,omitempty"` // without namespaces
	// GVisor: envd is a process of gVisor, whose program is the last file. Network: what it
	// sends to any address reaches the egress path.
	GVisor  bool `json:"gvisor,omitempty"`
	Network bool `json:"network,omitempty"`
	// Restored: it goes on from saved memory, whose directory is the file before that program.
	Restored bool `json:"restored,omitempty"`
}

// MeminfoSpec is what the room is told of the /proc/meminfo of a sandbox. It gets the file
// with the text, the sandbox's /proc, and what its control group says of its memory, if
// there is a group.
type MeminfoSpec struct {
	Total int64 `json:"total"` // bytes that the text shows
}

// MeminfoFiles is how many of these files the first stage of a sandbox makes.
const MeminfoFiles = 2

// ZygoteSpec tells the zygote how to be like a sandbox.
type ZygoteSpec struct {
	InitSpec
	Config guest.Config `json:"config"`
}

// KernelOrder says what a forked process must become: the same as envd.
type KernelOrder struct {
	Ranged bool     `json:"ranged"`
	Owner  int      `json:"owner"` // of the sandbox's user namespace, as the room numbers ids
	CPUs   int      `json:"cpus"`
	Limits []Rlimit `json:"limits"`
	// Processors are those of the sandbox; none: all of the machine's.
	Processors []int  `json:"processors"`
	Keep       uint64 `json:"keep"`   // capabilities
	Filter     string `json:"filter"` // the seccomp program in hexadecimal
}

// SaveSpec is what the process that saves files is told, which gets the file system of
// the sandbox, or its root directory, and the file or pipe to write to.
type SaveSpec struct {
	Layout  string   `json:"layout"`
	Trees   []string `json:"trees,omitempty"`
	InPlace bool     `json:"inPlace,omitempty"` // without namespaces
	Layered bool     `json:"layered,omitempty"` // its root is an overlay
	FirstID uint32   `json:"firstID,omitempty"` // what the sandbox's root is for this process
}

// LayersSpec is what the process that makes layers is told: what to do in which directory.
type LayersSpec struct {
	Ranged bool `json:"ranged"`
	// Dir is the path of the directory; "": a mount of it is the first file.
	Dir string `json:"dir,omitempty"`
	// Layout is that of the saved files to unpack, which are the last file.
	Layout string `json:"layout,omitempty"`
	// Merge are the directories to make one of, highest first.
	Merge []MergeSpec `json:"merge,omitempty"`
	// Tar says where to unpack a layer of a container image, a tar that is the last file.
	Tar *TarSpec `json:"tar,omitempty"`
}

// TarSpec is about a layer of a container image. Paths are below the directory.
type TarSpec struct {
	Below []string `json:"below,omitempty"` // highest first
	To    string   `json:"to"`              // does not exist
	IDs   int      `json:"ids"`
}

// MergeSpec is about one tree. Paths are below the directory.
type MergeSpec struct {
	From  []string `json:"from"`            // highest first
	To    string   `json:"to"`              // does not exist
	Below bool     `json:"below,omitempty"` // there is something below all of From
}
