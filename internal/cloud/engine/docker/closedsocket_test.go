//go:build linux

package docker_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestClosedSocket checks that a daemon whose socket this user may not open is not said to be
// missing.
func TestClosedSocket(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "docker.sock")
	listener, err := net.Listen("unix", path)
	must.Do(t, err)
	defer listener.Close()
	must.Do(t, errors.Join(os.Chmod(path, 0), os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755)))
	if os.Geteuid() == 0 { // root may open all, so this thread takes another user for a while
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		const same = ^uintptr(0)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, 65534, same); errno != 0 {
			t.Fatal(errno)
		}
		defer func() {
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, 0, same); errno != 0 {
				panic(errno)
			}
		}()
	}
	_, err = docker.Open(t.Context(), docker.Options{Host: "unix://" + path})
	if !errors.Is(err, docker.ErrNoDaemon) {
		t.Fatalf("got %v, want no daemon", err)
	}
	for want, is := range map[string]bool{path: true, "permission denied": true, "usermod -aG docker": true, "install": false} {
		if strings.Contains(err.Error(), want) != is {
			t.Errorf("got %v, want %q in it: %v", err, want, is)
		}
	}
}
