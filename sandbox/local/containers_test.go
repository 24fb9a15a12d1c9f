//go:build linux

package local_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/refusetest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// containerVariable makes this program act as root of a container that refuses the calls that the
// variable lists.
const containerVariable = "LOCAL_TEST_CONTAINER"

// dockerCapabilities are the capabilities of root in a container of Docker.
var dockerCapabilities = []int{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FSETID, unix.CAP_FOWNER, unix.CAP_MKNOD, unix.CAP_NET_RAW, unix.CAP_SETGID,
	unix.CAP_SETUID, unix.CAP_SETFCAP, unix.CAP_SETPCAP, unix.CAP_NET_BIND_SERVICE, unix.CAP_SYS_CHROOT, unix.CAP_KILL, unix.CAP_AUDIT_WRITE,
}

// TestContainers has root make sandboxes with the capabilities, and the calls of the kernel,
// that containers give: with the isolation that they allow, and whole ones.
func TestContainers(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give up capabilities of root")
	}
	const changed = `changes: "0o604 2.0\n9\n9\nrefused\n"`
	const profile = "namespaces mounts others" // the calls that Docker's refuses
	more := append(dockerCapabilities[:len(dockerCapabilities):len(dockerCapabilities)], unix.CAP_SYS_ADMIN, unix.CAP_SYS_PTRACE)
	all := make([]int, unix.CAP_LAST_CAP+1)
	for i := range all {
		all[i] = i
	}
	for _, tt := range []struct {
		name, refuse string
		has          []int
		want         string
	}{
		{"nothing asked", profile, dockerCapabilities, "restricted, ids: 1"},
		{"both options", "", dockerCapabilities, "full, ids: 1"},
		{"both options and capabilities", "", more, "full, ids: 65536"},
		{"the capabilities that are needed", "", []int{
			unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_KILL, unix.CAP_SYS_ADMIN, unix.CAP_SYS_PTRACE,
		}, "full, ids: 65536"},
		{"capabilities without their calls", profile, more, "restricted, ids: 1"},
		{"no mounts", "mounts", all, "restricted, ids: 1"},
		{"privileged", "", all, "full, ids: 65536"},
		{"no capabilities", profile, nil, "restricted, ids: 1"},
		{"no capabilities and both options", "", nil, "restricted, ids: 1"},
		{"one capability less", "", dockerCapabilities[1:], "restricted, ids: 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if out := contain(t, tt.has, tt.refuse); !strings.Contains(out, "isolation: "+tt.want+"\n") || !strings.Contains(out, "kept: a line\n") || !strings.Contains(out, changed) {
				t.Errorf("got %s, want a whole sandbox with isolation %s, and %s", out, tt.want, changed)
			}
		})
	}
}

// contain runs startContained with these capabilities and no others.
func contain(t *testing.T, has []int, refuse string) string {
	t.Helper()
	self := copySelf(t)
	kept := make(map[int]bool)
	for _, c := range has {
		kept[c] = true
	}
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), containerVariable+"="+refuse, "HOME="+home, "XDG_CACHE_HOME="+home, "XDG_RUNTIME_DIR=", "TMPDIR=/tmp")
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: a dropped capability does not come back
		for c := range unix.CAP_LAST_CAP + 1 {
			if kept[c] {
				continue
			}
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil {
				started <- os.NewSyscallError("prctl", err)
				return
			}
		}
		started <- cmd.Start()
	}()
	must.Do(t, <-started)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, &out)
	}
	return out.String()
}

// startContained starts a cloud where calls are refused, and writes the result: the isolation,
// and the state that a sandbox kept while it was paused, and in its snapshot.
func startContained(w io.Writer, refuse string) error {
	if refuse != "" {
		if err := refusetest.Refuse(refuse); err != nil {
			return err
		}
	}
	ctx := context.Background()
	cloud, err := local.Start(ctx)
	if err != nil {
		return err
	}
	defer cloud.Close()
	fmt.Fprintf(w, "isolation: %s, ids: %d\nnotes: %s\n", cloud.Isolation(), cloud.Report().UserIDs, cloud.Report().Notes)
	return sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
		if _, err := sb.Commands.Run(ctx, "mkdir dir && echo a line > dir/file && chmod 600 dir/file", nil); err != nil {
			return err
		}
		if _, err := sb.RunCode(ctx, "x = 6", nil); err != nil {
			return err
		}
		if err := changeFiles(ctx, w, sb); err != nil {
			return err
		}
		if err := sb.Pause(ctx, nil); err != nil {
			return err
		}
		if err := sb.Resume(ctx, nil); err != nil {
			return err
		}
		snapshot, err := sb.Snapshot(ctx, nil)
		if err != nil {
			return err
		}
		return sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
			result, err := sb.Commands.Run(ctx, "cat dir/file", nil)
			if err == nil {
				fmt.Fprint(w, "kept: ", result.Stdout)
			}
			return err
		}, cloud.Option(), sandbox.WithTemplate(snapshot.ID))
	}, cloud.Option())
}

// changeFiles changes files in a sandbox in every way, while the daemon watches them, and writes the
// result.
func changeFiles(ctx context.Context, w io.Writer, sb *sandbox.Sandbox) error {
	watch, err := sb.Files.Watch(ctx, "dir", nil)
	if err != nil {
		return err
	}
	defer watch.Close()
	const change = `import os
f = os.open("dir/changed", os.O_CREAT | os.O_RDWR); os.fchmod(f, 0o640); os.fchown(f, os.getuid(), os.getgid()); os.utime(f, (1, 2))
os.chmod("changed", 0o604, dir_fd=os.open("dir", os.O_RDONLY)) if os.chmod in os.supports_dir_fd else 0
print(oct(os.fstat(f).st_mode & 0o777), os.fstat(f).st_mtime)
for number in 999, -1:
    try: os.fchmod(number, 0o600)
    except OSError as e: print(e.errno)
try: os.fchmod(os.open("/usr/bin/env", 0), 0o777); print("changed a file of the machine")
except OSError: print("refused")`
	result, err := sb.Commands.Exec(ctx, "python3", []string{"-c", change}, nil)
	if err != nil {
		return err
	}
	for event, err := range watch.Events(ctx) {
		if err != nil {
			return err
		}
		if event.Name == "changed" {
			break
		}
	}
	fmt.Fprintf(w, "changes: %q\n", result.Stdout)
	_, err = sb.Commands.Run(ctx, "install -m 750 dir/file dir/installed && touch -d @5 dir/installed && test $(stat -c %a-%Y dir/installed) = 750-5", nil)
	return err
}
