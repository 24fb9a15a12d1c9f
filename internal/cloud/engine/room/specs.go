//go:build linux

package room

import (
	"encoding/json"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/counter"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/place"
)

// roomSpec is what the room is told.
type roomSpec struct {
	Ranged  bool `json:"ranged"`
	InPlace bool `json:"inPlace,omitempty"` // without namespaces
	// Limits for the sandboxes of this room: for all together, or for each if it
	// has a range of ids.
	Counters  counter.Maxima `json:"counters,omitempty"`
	Limits    []rlimit       `json:"limits,omitempty"`
	Processes uint64         `json:"processes,omitempty"` // of all of them
}

// initSpec is what the first stage of a sandbox is told.
type initSpec struct {
	Ranged  bool              `json:"ranged"`
	Path    string            `json:"path"`            // PATH of login shells
	Trees   []string          `json:"trees"`           // host directories to show
	Mounted []bool            `json:"mounted"`         // which of Trees were passed as a mount, in order
	Devices bool              `json:"devices"`         // a mount with the sandbox's own devices follows those of Trees
	Private bool              `json:"private"`         // the last file lists what must not be shown of Trees
	Links   map[string]string `json:"links"`           // symbolic links at the root, as on the host
	Disk    int64             `json:"disk"`            // bytes
	Place   *place.Root       `json:"place,omitempty"` // without namespaces
	Limits  []rlimit          `json:"limits"`
	// Counters are the maxima of the sandbox's own user namespace.
	Counters counter.Maxima `json:"counters,omitempty"`
	Way      way            `json:"way,omitempty"` // out of the network namespace
}

// rlimit is a limit of every process: its number and its value.
type rlimit [2]uint64

// dnsPort is the port of name servers.
const dnsPort = 53

// way tells the first stage what to do about the egress path.
type way string

const (
	wayNone  way = ""      // there is none except the proxy
	wayTry   way = "try"   // build it, use it once, and report what went wrong
	wayBuild way = "build" // it is known to work on this machine: build it, or fail
)

// agentSpec is what the second stage is told, besides its configuration.
type agentSpec struct {
	Hostname string      `json:"hostname"`
	Ranged   bool        `json:"ranged"`
	Egress   bool        `json:"egress"`
	Place    *place.Root `json:"place,omitempty"` // without namespaces
}

// zygoteSpec tells the zygote how to be like a sandbox.
type zygoteSpec struct {
	initSpec
	Config json.RawMessage `json:"config"`
}

// kernelOrder says what a forked process must become: the same as the agent.
type kernelOrder struct {
	Ranged bool     `json:"ranged"`
	Owner  int      `json:"owner"` // of the sandbox's user namespace, as the room numbers ids
	CPUs   int      `json:"cpus"`
	Limits []rlimit `json:"limits"`
	Keep   uint64   `json:"keep"`   // capabilities
	Filter string   `json:"filter"` // the seccomp program in hexadecimal
}
