package builds

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/pinned"
)

// fullVariable makes the test binary run [TestOnSmallDisk], in its own mount namespace.
const fullVariable = "E2BCTL_TEST_SMALL_DISK"

// TestFullDisk runs [TestOnSmallDisk] in a process with its own small disk, a mount in a user and
// mount namespace.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOnSmallDisk$")
	cmd.Env = append(os.Environ(), fullVariable+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	output, err := cmd.CombinedOutput()
	if errors.Is(err, fs.ErrPermission) || strings.Contains(string(output), "mounting: ") {
		pinned.Skip(t, "this machine lets nobody mount: %v: %s", err, output)
	}
	if err != nil {
		t.Errorf("%v: %s", err, output)
	}
}

// TestOnSmallDisk is the part of TestFullDisk in the process with the small disk. A build that does
// not fit fails, reports the full disk, and leaves nothing behind. A build that fits still works.
func TestOnSmallDisk(t *testing.T) {
	dir := os.Getenv(fullVariable)
	if dir == "" {
		t.Skip("it needs a disk of its own: TestFullDisk runs it")
	}
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=2m,mode=700"); err != nil {
		t.Fatal("mounting: ", err)
	}
	w := newWorld()
	w.size = 4 << 20
	s := w.serve(t, dir)
	build := func(name string) *templates.Failure {
		t.Helper()
		id := s.request(t, name)
		s.begin(t, id, "print "+name)
		status, _ := s.end(t, id)
		return status.Failure
	}
	if f := build("large"); f == nil || f.Step != "1" || !strings.Contains(f.Message, "no space left on device") {
		t.Errorf("got %+v, want the step to say that the disk is full", f)
	}
	hash := strings.Repeat("0", 64)
	if err := s.Uploads().Add(hash, bytes.NewReader(make([]byte, 4<<20)), 4<<20); !errors.Is(err, unix.ENOSPC) || s.Uploads().Has(hash) {
		t.Errorf("upload: got %v, want ENOSPC and nothing kept", err)
	}
	w.size = 10
	if f := build("small"); f != nil {
		t.Errorf("got %+v, want it to be built", f)
	}
	if err := s.Uploads().Add(hash, strings.NewReader("text"), 4); err != nil {
		t.Error(err)
	}
	if n := s.kept(t); n != 1 {
		t.Errorf("got %d layers, want that of the small one", n)
	}
}
