package image

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pinned"
)

// fullVariable makes the test binary run [TestOnSmallDisk], in a mount namespace of its own.
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

// TestOnSmallDisk is the part of TestFullDisk in the process with the small disk. If an image does
// not fit, compressed or unpacked, the error names the cause and nothing of the image is left. An
// image that fits still works.
func TestOnSmallDisk(t *testing.T) {
	dir := os.Getenv(fullVariable)
	if dir == "" {
		t.Skip("it needs a disk of its own: TestFullDisk runs it")
	}
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=2m,mode=700"); err != nil {
		t.Fatal("mounting: ", err)
	}
	allowed := t.TempDir()
	w := newWorldIn(t, filepath.Join(dir, "state"), func(_ *world, o *Options) { o.Archives = []string{allowed} })
	random := make([]byte, 4<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(random)
	for name, text := range map[string]string{"fetched": string(random), "unpacked": strings.Repeat("a", 8<<20)} {
		ref := w.push(t, name, imageOf(t, layerOf(t, types.OCILayer, "a", text)))
		if _, err := w.Pull(t.Context(), ref, nil, nil); err == nil || !strings.Contains(err.Error(), "no space left on device") {
			t.Errorf("%s: got %v, want that there is no space", name, err)
		}
		if ids := w.left(t); len(ids) > 0 {
			t.Errorf("%s: got %d layers left, want none", name, len(ids))
		}
		if _, err := w.Give(t.Context(), ref, nil, &keeper{}, nil); err == nil || !strings.Contains(err.Error(), "no space left on device") {
			t.Errorf("%s, to give it: got %v, want that there is no space", name, err)
		}
		w.left(t)
	}
	img, err := w.Pull(t.Context(), w.push(t, "small", imageOf(t, layerOf(t, types.OCILayer, "a", "1"))), nil, nil)
	if err != nil || !slices.Equal(w.files(t, img.Layers), []string{"a=1"}) {
		t.Errorf("got %+v, %v, want the image that fits", img, err)
	}

	writeLayout(t, allowed, nil)
	// Reading the first bytes of a process's memory fails, as reading a file on a broken disk.
	if err := unix.Mount("/proc/self/mem", filepath.Join(allowed, "index.json"), "", unix.MS_BIND, ""); err != nil {
		t.Fatal("mounting: ", err)
	}
	defer func() { must.Do(t, unix.Unmount(filepath.Join(allowed, "index.json"), 0)) }()
	_, err = w.Pull(t.Context(), "oci:"+allowed, nil, nil)
	must.Is(t, err, unix.EIO)
}
