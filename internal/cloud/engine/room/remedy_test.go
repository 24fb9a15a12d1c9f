//go:build linux

package room

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/landlock"
)

// TestRemedies checks that the remedy for a refusal fits the machine.
func TestRemedies(t *testing.T) {
	t.Parallel()
	refused, missing := errors.New("clone: operation not permitted"), errors.New("open_tree: function not implemented")
	for _, tt := range []struct {
		name       string
		level      engine.Isolation
		err        error
		at         surroundings
		want, none string
	}{
		{"container", engine.Full, refused, surroundings{container: true}, "seccomp=unconfined --security-opt systempaths=unconfined", "apparmor"},
		{"container under AppArmor", engine.Full, refused, surroundings{container: true, apparmor: "docker-default"}, "--security-opt apparmor=unconfined", "sysctl"},
		{"Ubuntu", engine.Full, refused, surroundings{sysctls: map[string]string{"kernel.apparmor_restrict_unprivileged_userns": "1"}}, "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0", "seccomp"},
		{"Debian", engine.Full, refused, surroundings{sysctls: map[string]string{"kernel.unprivileged_userns_clone": "0"}}, "sudo sysctl kernel.unprivileged_userns_clone=1", "seccomp"},
		{"root on Ubuntu", engine.Full, refused, surroundings{root: true, sysctls: map[string]string{"kernel.apparmor_restrict_unprivileged_userns": "1"}}, "WSL 2", "sudo"},
		{"no namespaces", engine.Full, refused, surroundings{root: true, sysctls: map[string]string{"user.max_user_namespaces": "0"}}, "sudo sysctl user.max_user_namespaces=15000", "seccomp"},
		{"as many as there may be", engine.Full, unix.ENOSPC, surroundings{}, "user.max_user_namespaces", "seccomp"},
		{"older kernel", engine.Full, missing, surroundings{kernel: "5.4.0-42-generic"}, "isolation full takes Linux 5.12 or later, and this is 5.4.0-42-generic", "seccomp"},
		{"older kernel without Landlock", engine.Restricted, missing, surroundings{kernel: "5.12.1"}, "isolation restricted takes Linux 5.13 or later, and this is 5.12.1", "seccomp"},
		{"a hidden call", engine.Full, missing, surroundings{kernel: "6.8.0", container: true}, "hides the call", "AppArmor"},
		{"WSL 1", engine.Full, missing, surroundings{kernel: "4.4.0-19041-Microsoft"}, "use WSL 2", "AppArmor"},
		{"Landlock is off", engine.Restricted, fmt.Errorf("landlock: %w", unix.EOPNOTSUPP), surroundings{kernel: "6.8.0"}, "lsm=", "AppArmor"},
		{"nothing known", engine.Full, refused, surroundings{}, "WSL 2", "sudo"},
	} {
		got := remedyOf([]engine.Attempt{{Isolation: tt.level, Err: tt.err}}, tt.at)
		if !strings.Contains(got, tt.want) || strings.Contains(got, tt.none) {
			t.Errorf("%s: got %q, want %q and not %q", tt.name, got, tt.want, tt.none)
		}
	}
	if got := remedyOf([]engine.Attempt{{Isolation: engine.Full, Err: errHostRoot}, {Isolation: engine.Restricted, Err: landlock.ErrSignals}}, surroundings{}); got != "" {
		t.Errorf("got %q, want nothing beside what the errors say", got)
	}
}

// TestRefusals checks that only errors by which a kernel refuses an isolation level lead to a
// weaker one.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, err := range append([]error{errHostRoot, errNoDirectories, landlock.ErrSignals, errors.New("build: mount /proc: operation not permitted"), unix.ENOSYS, os.ErrNoHandle, errors.New("envd was ended by signal 31 (bad system call)")}, refusals...) {
		if !isRefusal(fmt.Errorf("try a sandbox: %w", err)) {
			t.Errorf("%v is no refusal", err)
		}
	}
	for _, err := range []error{
		engine.ErrOutOfMemory, errBootTimeout, unix.EBADF, unix.EFBIG, unix.ENOENT, errors.New("envd exited with status 2"),
		fmt.Errorf("%w: write cpu.max: %w", errLimit, unix.EINVAL), fmt.Errorf("%w: %w", errLimit, unix.EACCES),
	} {
		if isRefusal(fmt.Errorf("try a sandbox: %w", err)) {
			t.Errorf("%v is a refusal", err)
		}
	}
}
