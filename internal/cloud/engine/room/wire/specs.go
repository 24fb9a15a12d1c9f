//go:build linux

package wire

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/counter"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/place"
)

// DecodeSpec decodes the specification in a message into spec, a pointer. Its error matches
// [ErrProtocol].
func DecodeSpec(data json.RawMessage, spec any) error {
	if err := json.Unmarshal(data, spec); err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return nil
}

// RoomSpec configures the room.
type RoomSpec struct {
	Ranged  bool `json:"ranged"`
	InPlace bool `json:"inPlace,omitempty"` // sandboxes have no namespaces
	// Counters and Limits apply to the sandboxes of this room. They apply to each sandbox if it has a
	// range of ids, and otherwise to all sandboxes together.
	Counters  counter.Maxima `json:"counters,omitempty"`
	Limits    []Rlimit       `json:"limits,omitempty"`
	Processes uint64         `json:"processes,omitempty"` // limit on the processes of all sandboxes together
}

// Runner describes how the programs of a sandbox run. Both stages of the sandbox receive it.
type Runner struct {
	Ranged bool        `json:"ranged"`         // root and user have different ids
	Root   *place.Root `json:"root,omitempty"` // root directory of a sandbox without namespaces
	// GVisor makes envd a process of gVisor. The second stage keeps its capabilities for this purpose,
	// and [FileRunsc], the program of gVisor, is passed to it. The root that the first stage builds is
	// the root of gVisor's sandbox, and not of any process here.
	GVisor bool `json:"gvisor,omitempty"`
}

// InitSpec configures the first stage of a sandbox.
type InitSpec struct {
	Runner
	Path    string            `json:"path"`             // PATH of login shells
	Trees   []string          `json:"trees"`            // host directories that exist in the sandbox
	Mounted []bool            `json:"mounted"`          // reports for each of Trees, in order, whether its mount is passed
	Devices bool              `json:"devices"`          // a mount with the sandbox's own devices is passed
	Private bool              `json:"private"`          // a list of the files of Trees to hide is passed
	Links   map[string]string `json:"links"`            // symbolic links at the root, as on the host
	Disk    int64             `json:"disk"`             // size of the disk in bytes
	Memory  int64             `json:"memory,omitempty"` // total memory in /proc/meminfo, in bytes; 0: the machine's
	Limits  []Rlimit          `json:"limits"`
	// Processors are the processors of the sandbox; empty means all processors of the machine.
	Processors []int `json:"processors,omitempty"`
	// Counters are the maxima of the sandbox's own user namespace.
	Counters counter.Maxima `json:"counters,omitempty"`
	// Saved is the layout of the saved files with which the sandbox begins. These files are passed. If
	// Saved is empty, the sandbox begins without saved files.
	Saved      string     `json:"saved,omitempty"`
	EgressPath EgressPath `json:"egressPath,omitempty"` // whether to make the egress path out of the network namespace
	Volumes    []Volume   `json:"volumes,omitempty"`
	// Authority is the PEM certificate of an authority for programs to trust.
	Authority []byte `json:"authority,omitempty"`
	// Mounter makes a mounter, which can replace the file system later. Its control socket is passed;
	// the first message there starts it.
	Mounter bool `json:"mounter,omitempty"`
	// Late makes the mounter enter the root after the second stage has been executed. The mounter
	// enters the root for itself and for the first process. A mounter with Late does nothing else, and
	// so does not replace the file system. If Late is set, Mounter is set too.
	Late bool `json:"late,omitempty"`
	// Layers are the layers below the sandbox, lowest first.
	Layers []Layer `json:"layers,omitempty"`
	// Image means that the root is a container image and contains nothing of the host. Layers contains
	// the layers of the image.
	Image bool `json:"image,omitempty"`
	// Program is the path of the program that gVisor's sandbox sees. Empty means that its mount is
	// passed.
	Program string `json:"program,omitempty"`
}

// EnterSpec configures the process that enters the root of an image together with the second stage.
type EnterSpec struct {
	Authority []byte `json:"authority,omitempty"` // as in InitSpec
}

// Layer is a directory of files that sandboxes share.
type Layer struct {
	// Dir contains a directory for each of Trees, called 0, 1 and so on. Empty means that a mount of
	// the layer was passed instead.
	Dir   string   `json:"dir,omitempty"`
	Trees []string `json:"trees"` // paths in the sandbox; "" is the root
}

// LayerAttributes are the attributes of the mount of a layer.
const LayerAttributes = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV

// VolumeAttributes are the attributes of the mount of a volume. With them, files that one sandbox
// makes in the volume grant no rights in another sandbox.
const VolumeAttributes = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV

// Volume is a directory of the host in a sandbox.
type Volume struct {
	// Dir is the path of the volume on the host. Empty means that a descriptor of its mount was
	// passed.
	Dir  string `json:"dir,omitempty"`
	Path string `json:"path"` // path of the volume in the sandbox
	// ReadOnly and Opened are for a directory that is not a volume. ReadOnly forbids all changes in
	// the directory. Opened means that a descriptor of the directory was passed, and that Dir must
	// still be the path of that directory.
	ReadOnly bool `json:"readOnly,omitempty"`
	Opened   bool `json:"opened,omitempty"`
}

// Attributes returns the attributes of the volume's mount.
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

// EgressPath instructs the first stage to make the egress path, or not to make it.
type EgressPath string

const (
	EgressNone  EgressPath = ""      // there is no egress path; only envd's proxy leads outside
	EgressTry   EgressPath = "try"   // build the path, use it once, and report an error
	EgressBuild EgressPath = "build" // the path is known to work on this machine: build it, or fail
)

// EnvdSpec configures the second stage, in addition to envd's configuration.
type EnvdSpec struct {
	Runner
	Hostname string `json:"hostname"`
	Egress   bool   `json:"egress"`
	Network  bool   `json:"network,omitempty"` // the sandbox's traffic to any address reaches the egress path
	// Names are names for /etc/hosts, with their addresses.
	Names map[string]netip.Addr `json:"names,omitempty"`
	// Restored means that gVisor's sandbox continues from saved memory. The directory of this memory
	// is passed.
	Restored bool `json:"restored,omitempty"`
}

// MeminfoSpec describes the /proc/meminfo of a sandbox for the room. The files passed with it are
// the text, the sandbox's /proc, and the memory.stat of the sandbox's control group, if there is
// one.
type MeminfoSpec struct {
	Total int64 `json:"total"` // total memory in the text, in bytes
}

// ResizeSpec describes the changed resources of a sandbox for the room. The file passed with it is the
// file system of the sandbox. A zero field means that a resource does not change.
type ResizeSpec struct {
	Disk       int64 `json:"disk,omitempty"`       // size of the disk in bytes
	Memory     int64 `json:"memory,omitempty"`     // total memory in /proc/meminfo, in bytes
	Processors []int `json:"processors,omitempty"` // processors in /proc/cpuinfo and /sys
}

// ZygoteSpec configures the zygote with the file system and isolation of a sandbox.
type ZygoteSpec struct {
	InitSpec
	Config guest.Config `json:"config"`
}

// KernelOrder configures a forked process with the isolation and limits of envd.
type KernelOrder struct {
	Ranged bool     `json:"ranged"`
	Owner  int      `json:"owner"` // the owner of the sandbox's user namespace, in the room's numbering
	CPUs   int      `json:"cpus"`
	Limits []Rlimit `json:"limits"`
	// Processors are the processors of the sandbox; empty means all processors of the machine.
	Processors []int  `json:"processors"`
	Keep       uint64 `json:"keep"`   // capabilities to keep
	Filter     string `json:"filter"` // the seccomp program in hexadecimal
}

// SaveSpec configures the process that saves files. The process gets the file system of the
// sandbox, or the sandbox's root directory, and the file or pipe to write to.
type SaveSpec struct {
	Layout  string   `json:"layout"`
	Trees   []string `json:"trees,omitempty"`
	InPlace bool     `json:"inPlace,omitempty"` // the sandbox has no namespaces
	Layered bool     `json:"layered,omitempty"` // the root of the sandbox is an overlay
	FirstID uint32   `json:"firstID,omitempty"` // id of the sandbox's root for this process
}

// LayersSpec configures the process that makes layers: a directory and a task.
type LayersSpec struct {
	Ranged bool `json:"ranged"`
	// Dir is the path of the directory. Empty means that a mount of the directory is passed.
	Dir string `json:"dir,omitempty"`
	// Layout is the layout of the saved files to unpack. These files are passed.
	Layout string `json:"layout,omitempty"`
	// Merge lists merges of trees.
	Merge []MergeSpec `json:"merge,omitempty"`
	// Tar configures the unpacking of a layer of a container image. The layer, a tar, is passed.
	Tar *TarSpec `json:"tar,omitempty"`
}

// TarSpec configures the unpacking of a layer of a container image. Paths are relative to
// the directory of the [LayersSpec].
type TarSpec struct {
	Below []string `json:"below,omitempty"` // directories of the layers below, highest first
	To    string   `json:"to"`              // directory to make for the layer
	IDs   int      `json:"ids"`
}

// MergeSpec configures the merge of one tree. Paths are relative to the directory of the
// [LayersSpec].
type MergeSpec struct {
	From  []string `json:"from"`            // directories to merge, highest first
	To    string   `json:"to"`              // directory to make for the merged tree
	Below bool     `json:"below,omitempty"` // there are other layers below all of From
}
