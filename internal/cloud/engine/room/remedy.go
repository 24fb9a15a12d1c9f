//go:build linux

package room

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/landlock"
)

// Versions of Linux that remedies name: for each level, the oldest version with all calls that the
// level needs.
const (
	kernelOfFull       = "5.12" // the first version with mount_setattr, for mounts with mapped ids
	kernelOfRestricted = "5.13" // the first version with Landlock
)

// surroundings are settings of the machine that explain a refusal. They never cause a level to be
// skipped: the room tests the machine's support by trying it.
type surroundings struct {
	kernel    string // the release of the kernel
	container bool   // this process is in a container
	apparmor  string // the profile of this process; "" for none
	root      bool
	sysctls   map[string]string // values of settings by their names; only settings that this kernel has
}

// namespaceSettings are the settings with which distributions refuse namespaces. Each entry has the
// value that refuses namespaces and the value that allows them.
var namespaceSettings = []struct {
	name, refuses, allows string
	toRoot                bool // namespaces are refused to root, too, and not only to other users
}{
	{"kernel.apparmor_restrict_unprivileged_userns", "1", "0", false},
	{"kernel.unprivileged_userns_clone", "0", "1", false},
	{"user.max_user_namespaces", "0", "15000", true},
}

// lookAround reads the surroundings. It leaves out settings that cannot be read.
func lookAround() surroundings {
	s := surroundings{root: os.Geteuid() == 0, sysctls: make(map[string]string)}
	read := func(path string) string {
		text, _ := os.ReadFile(path)
		return strings.TrimSpace(string(text))
	}
	s.kernel = read("/proc/sys/kernel/osrelease")
	for _, mark := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Lstat(mark); err == nil {
			s.container = true
		}
	}
	for _, name := range []string{"container", "KUBERNETES_SERVICE_HOST"} {
		s.container = s.container || os.Getenv(name) != ""
	}
	s.apparmor, _, _ = strings.Cut(read("/proc/self/attr/current"), " (")
	if s.apparmor == "unconfined" {
		s.apparmor = ""
	}
	for _, setting := range namespaceSettings {
		if value := read("/proc/sys/" + strings.ReplaceAll(setting.name, ".", "/")); value != "" {
			s.sysctls[setting.name] = value
		}
	}
	return s
}

// remedyOf returns a remedy for the levels that the machine refused. It returns "" if each error
// already contains its own remedy.
func remedyOf(attempts []engine.Attempt, s surroundings) string {
	var remedies []string
	for _, a := range attempts {
		if remedy := remedyFor(a, s); remedy != "" && !slices.Contains(remedies, remedy) {
			remedies = append(remedies, remedy)
		}
	}
	return strings.Join(remedies, "; ")
}

// remedyFor returns a remedy for one refused level.
func remedyFor(a engine.Attempt, s surroundings) string {
	text := a.Err.Error()
	switch {
	case errors.Is(a.Err, errHostRoot), errors.Is(a.Err, errNoDirectories), errors.Is(a.Err, landlock.ErrSignals):
		return ""
	case lacks(a.Err):
		return kernelRemedy(a.Isolation, s)
	case strings.Contains(text, unix.EOPNOTSUPP.Error()) && a.Isolation == engine.Restricted:
		return "switch Landlock on: add landlock to the boot parameter lsm= of the kernel"
	}
	for _, setting := range namespaceSettings {
		if s.sysctls[setting.name] == setting.refuses && (setting.toRoot || !s.root) && !s.container {
			return fmt.Sprintf("sudo sysctl %s=%s", setting.name, setting.allows)
		}
	}
	switch {
	case s.container:
		options := "--security-opt seccomp=unconfined --security-opt systempaths=unconfined"
		if s.apparmor != "" {
			options += " --security-opt apparmor=unconfined"
		}
		return "start this container with " + options
	case strings.Contains(text, unix.ENOSPC.Error()), strings.Contains(text, unix.EUSERS.Error()):
		return "sudo sysctl user.max_user_namespaces=15000, or fewer namespaces one inside the other"
	case s.apparmor != "":
		return "run it outside of the AppArmor profile " + s.apparmor
	}
	return "on Ubuntu, sysctl kernel.apparmor_restrict_unprivileged_userns=0;" +
		" in a container, --security-opt seccomp=unconfined --security-opt systempaths=unconfined;" +
		" on Windows, WSL 2; elsewhere, sysctl user.max_user_namespaces=15000"
}

// kernelRemedy returns a remedy for a kernel that lacks a call.
func kernelRemedy(level engine.Isolation, s surroundings) string {
	oldest := kernelOfFull
	if level == engine.Restricted {
		oldest = kernelOfRestricted
	}
	remedy := fmt.Sprintf("isolation %s takes Linux %s or later, and this is %s", level, oldest, s.kernel)
	switch {
	case strings.HasSuffix(s.kernel, "-Microsoft"):
		remedy += " (WSL 1): use WSL 2"
	case !older(s.kernel, oldest):
		remedy += ", so a seccomp profile or another kernel beneath this process hides the call: in a container, --security-opt seccomp=unconfined"
	}
	return remedy
}

// older reports whether the first of two releases of the kernel is before the second.
func older(release, than string) bool {
	var a, b [2]int
	_, errA := fmt.Sscanf(release, "%d.%d", &a[0], &a[1])
	_, errB := fmt.Sscanf(than, "%d.%d", &b[0], &b[1])
	return errA == nil && errB == nil && (a[0] < b[0] || a[0] == b[0] && a[1] < b[1])
}
