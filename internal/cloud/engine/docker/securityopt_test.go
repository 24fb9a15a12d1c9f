//go:build linux

package docker_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker"
)

// TestSecurityOptions checks that an option that takes a protection away is refused by name,
// before a daemon is searched, and that one that adds a protection is not.
func TestSecurityOptions(t *testing.T) {
	t.Parallel()
	const noDaemon = "unix:///no/such/daemon.sock"
	for _, option := range []string{
		"no-new-privileges=false", "no-new-privileges:false", "no-new-privileges=0", "no-new-privileges=",
		"seccomp=unconfined", "seccomp:unconfined", "seccomp=", `seccomp={"defaultAction":"SCMP_ACT_ALLOW"}`, `seccomp={"defaultAction":"SCMP_ACT_LOG"}`, "seccomp={}", "seccomp=/etc/profile.json",
		"apparmor=unconfined", "apparmor:unconfined", "apparmor=", "apparmor",
		"label=disable", "label:disable", "label=type:spc_t", "label=user:unconfined_u",
		"systempaths=unconfined", "unmask=ALL", "writable-cgroups=true", "privileged", "cap-add=SYS_ADMIN", "pid=host", "",
	} {
		_, err := docker.Open(t.Context(), docker.Options{Host: noDaemon, SecurityOpt: []string{"no-new-privileges", option}})
		if err == nil || errors.Is(err, docker.ErrNoDaemon) || !strings.Contains(err.Error(), "security option") {
			t.Errorf("%q: got error %v, want a refusal", option, err)
		}
	}
	_, err := docker.Open(t.Context(), docker.Options{Host: noDaemon, SecurityOpt: []string{
		"no-new-privileges", "no-new-privileges=true", "no-new-privileges:true", "seccomp=builtin",
		`seccomp={"defaultAction":"SCMP_ACT_ERRNO"}`, "apparmor=docker-default", "label=level:s0:c1,c2",
	}})
	if err == nil || strings.Contains(err.Error(), "security option") {
		t.Errorf("options that add a protection: got error %v, want that there is no daemon", err)
	}
}
