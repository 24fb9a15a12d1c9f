package docker

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/system"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
)

// Report describes what the daemon provides.
func (e *Engine) Report() engine.Report {
	r := engine.Report{
		Engine: engine.Docker, Promises: e.promises(), Isolation: engine.Full, IDs: 1,
		Most:   engine.Bounds{CPUs: float64(e.info.NCPU), MemoryBytes: e.info.MemTotal},
		Memory: e.enforced(e.info.MemoryLimit), CPU: e.enforced(e.info.CPUCfsQuota), Processes: e.enforced(e.info.PidsLimit), Disk: e.disk(),
		Pause:  "the daemon's pause, by a control group",
		Egress: "proxy only: a container has no network of its own",
	}
	r.Notes = append(r.Notes, fmt.Sprintf("sandboxes are containers of %s on %s at %s", e.product, e.info.OperatingSystem, e.host))
	if !hasSecurity(e.info, "seccomp") {
		r.Notes = append(r.Notes, "the daemon filters no system calls (seccomp)")
	}
	if e.options.NetworkDisabled {
		r.Egress = "none: network is off for every sandbox"
	}
	return r
}

// promises returns the promises that a container keeps. For each promise that a container does not
// keep, the result has a reason.
func (e *Engine) promises() engine.Promises {
	p := engine.Promises{
		engine.Commands:     "",
		engine.Terminals:    "",
		engine.Ports:        "",
		engine.TwoUsers:     "all processes of a container have the user that it was started with",
		engine.AllEgress:    "a container has no network: only programs that use the proxy of their environment reach the outside",
		engine.NetworkRules: "",
		engine.MemoryLimit:  unless(e.info.MemoryLimit, "the daemon has no control group for memory"),
		engine.CPULimit:     unless(e.info.CPUCfsQuota, "the daemon has no control group for processors"),
		engine.ProcessLimit: unless(e.info.PidsLimit, "the daemon has no control group for processes"),
		engine.DiskLimit:    e.quotaReason(),
		engine.Pauses:       "",
		engine.SavedFiles:   "",
		engine.SavedMemory:  "a daemon does not write the memory of processes to files",
		engine.SharedLayers: "a container stands on its image only",
		engine.Volumes:      "volumes belong to the server's machine and ids, and a container may have others",
		engine.HeaderRules:  "a container cannot be shown a certificate authority",
		engine.Mounts:       e.noMounts(),
		engine.Images:       "",
		engine.IdleLimits:   "",
		engine.HostServices: "",
		engine.Resizes:      e.noResize(),
	}
	if e.options.NetworkDisabled {
		p.Lack("network is off for every sandbox", engine.AllEgress, engine.HostServices)
	}
	return p
}

func unless(have bool, reason string) string {
	if have {
		return ""
	}
	return reason
}

func (e *Engine) enforced(have bool) string {
	if have {
		return "control group of version " + strings.TrimPrefix(e.info.CgroupVersion, "v") + ", by the daemon"
	}
	return "not enforced: the daemon has no such control group"
}

func (e *Engine) quotaReason() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.quota {
		return ""
	}
	return e.noQuota
}

func (e *Engine) disk() string {
	if reason := e.quotaReason(); reason != "" {
		return "not enforced: " + reason
	}
	return "quota of the storage driver " + e.info.Driver
}

// hasQuota reports whether the daemon may be able to limit a container's writes. If it is not able
// to, hasQuota also returns the reason. Only the creation of the first container shows whether the
// daemon really limits the writes.
func hasQuota(info system.Info) (bool, string) {
	backing := ""
	for _, pair := range info.DriverStatus {
		if pair[0] == "Backing Filesystem" {
			backing = pair[1]
		}
	}
	switch {
	case info.Driver == "btrfs" || info.Driver == "zfs", info.Driver == "overlay2" && backing == "xfs":
		return true, ""
	}
	return false, strings.TrimSpace(fmt.Sprintf("the storage driver %s limits nothing on %s (it takes overlay2 on xfs with the option pquota, btrfs or zfs)", info.Driver, backing))
}

// hasSecurity reports whether the daemon lists a security option as one that it uses.
func hasSecurity(info system.Info, name string) bool {
	return slices.ContainsFunc(info.SecurityOptions, func(option string) bool {
		return option == name || strings.HasPrefix(option+",", "name="+name+",")
	})
}
