//go:build linux

package packaging_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/imagetest"
	"github.com/e2bctl/e2bctl/internal/interop"
	"github.com/e2bctl/e2bctl/internal/must"
)

// onMachine runs a script of sh in a mount namespace of its own, in the directory dir, as a user who may mount
// there. Only the variables env are set. It returns the output.
func onMachine(t *testing.T, dir, script string, env ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-euc", script)
	cmd.Dir, cmd.Env = dir, env
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	if id, group := os.Geteuid(), os.Getegid(); id != 0 {
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: group, Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// TestReadOnly runs the command and the Python module from a directory that nobody can write to, on a machine
// whose /tmp is read-only.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	python, _ := interop.NewestPython.FindPython(t)
	dir := t.TempDir()
	must.Do(t, os.MkdirAll(filepath.Join(dir, "bin"), 0o755))
	must.Do(t, os.Mkdir(filepath.Join(dir, "home"), 0o755))
	must.Do(t, os.Link(released(t).program(), filepath.Join(dir, "bin", "e2bctl")))
	must.Do(t, os.CopyFS(filepath.Join(dir, "e2bctl"), os.DirFS("python/e2bctl")))
	got := onMachine(t, dir, `
mount --bind . /mnt
mount -t tmpfs -o mode=700 none /mnt/home
mount -o remount,bind,ro /mnt
mount -t tmpfs -o ro none /tmp
cd /
/mnt/bin/e2bctl run -q --local -- echo one cloud
/mnt/bin/e2bctl local up --background >/dev/null 2>&1
/mnt/bin/e2bctl run -q --local -- echo another cloud
/mnt/bin/e2bctl local down >/dev/null 2>&1
"$PYTHON" -c 'import e2bctl
with e2bctl.local_cloud() as cloud: print(e2bctl.binary(), cloud.api_key[:4])'
ls -A /mnt
`, "HOME=/mnt/home", "PATH="+os.Getenv("PATH"), "PYTHON="+python, "PYTHONPATH=/mnt", "PYTHONDONTWRITEBYTECODE=1")
	if want := "one cloud\nanother cloud\n/mnt/bin/e2bctl e2b_\nbin\ne2bctl\nhome\n"; !strings.HasSuffix(got, want) {
		t.Errorf("got %q, want %q at its end", got, want)
	}
}

// TestWithoutLibraries runs the command on a machine that has only busybox, as one with musl has no glibc.
func TestWithoutLibraries(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Do(t, imagetest.Busybox(t, dir, "sh", "echo", "ls", "umount"))
	for _, name := range []string{"dev", "etc", "old", "proc", "root", "sys", "tmp", "usr", "var"} {
		must.Do(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, "etc/passwd"), []byte("root:x:0:0::/root:/bin/sh\n"), 0o644))
	must.Do(t, os.Link(released(t).program(), filepath.Join(dir, "bin", "e2bctl")))
	got := onMachine(t, dir, `
mount --rbind . .
cd "$PWD"
for dir in dev proc sys; do mount --rbind /$dir $dir; done
pivot_root . old
exec /bin/sh -euc 'cd /; umount -l /old; e2bctl run -q --local -- sh -c "echo hi; ls /bin/busybox"'
`, "HOME=/root", "PATH=/bin:/sbin:/usr/bin:/usr/sbin")
	if want := "hi\n/bin/busybox\n"; !strings.HasSuffix(got, want) {
		t.Errorf("got %q, want %q at its end", got, want)
	}
}
