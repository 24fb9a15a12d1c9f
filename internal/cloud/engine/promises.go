package engine

// Name names an engine.
type Name string

// The engines.
const (
	// Room isolates sandboxes with namespaces of this machine's kernel. See package room.
	Room Name = "room"
	// Docker runs each sandbox in a container of the user's own Docker or Podman.
	Docker Name = "docker"
	// Wasm runs Python in WebAssembly, without processes. Each sandbox runs in a room. See package wasm.
	Wasm Name = "wasm"
	// GVisor runs each sandbox in a kernel in user space, which runs in a room. See package gvisor.
	GVisor Name = "gvisor"
	// Kubernetes runs each sandbox in a pod of a cluster. See package kubernetes.
	Kubernetes Name = "kubernetes"
)

// Names lists the engines that users can choose.
var Names = []Name{Room, Docker, Wasm, GVisor}

// Feature is a feature of sandboxes that an engine may have or lack.
type Feature string

// The features.
const (
	Commands  Feature = "commands"
	Terminals Feature = "terminals"
	Ports     Feature = "ports of programs"
	TwoUsers  Feature = "root and user are two ids"
	// Without AllEgress, only programs that use the proxy reach the network.
	AllEgress    Feature = "every program reaches the network through the rules"
	NetworkRules Feature = "network rules"
	MemoryLimit  Feature = "memory limit"
	CPULimit     Feature = "processor limit"
	ProcessLimit Feature = "process limit"
	DiskLimit    Feature = "disk limit"
	Pauses       Feature = "pause with memory"                                            // [Sandbox].Freeze
	SavedFiles   Feature = "snapshots, forks and file pauses"                             // [Sandbox].Save and [SandboxOptions].Files
	SavedMemory  Feature = "memory in snapshots, forks and pauses that outlast the cloud" // [Sandbox].SaveMemory and [SandboxOptions].Memory
	SharedLayers Feature = "shared layers"                                                // [SandboxOptions].Layers
	Volumes      Feature = "volumes"                                                      // [SandboxOptions].Volumes
	HeaderRules  Feature = "header rules"                                                 // [SandboxOptions].Authority
	Mounts       Feature = "mounts of host directories"                                   // [SandboxOptions].Mounts
	IdleLimits   Feature = "idle limits"
	HostServices Feature = "services of this machine"
	Resizes      Feature = "resize of a running sandbox" // [Sandbox].Resize
	Images       Feature = "container images"            // [SandboxOptions].Image
)

// Features lists all features, in display order.
var Features = []Feature{
	Commands, Terminals, Ports, TwoUsers, AllEgress, NetworkRules, MemoryLimit, CPULimit, ProcessLimit, DiskLimit,
	Pauses, SavedFiles, SavedMemory, SharedLayers, Volumes, HeaderRules, Mounts, Images, IdleLimits, HostServices, Resizes,
}

// Promises maps each feature to the reason why the engine lacks it on this machine, or to "" if the
// engine has it.
type Promises map[Feature]string

// Everything returns the promises of an engine that has all features.
func Everything() Promises {
	p := Promises{}
	for _, f := range Features {
		p[f] = ""
	}
	return p
}

// Lack records that the features are missing. why is the reason.
func (p Promises) Lack(why string, features ...Feature) {
	for _, f := range features {
		p[f] = why
	}
}
