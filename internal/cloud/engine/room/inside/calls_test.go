//go:build linux

package inside

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
)

// endOfWatch is a system call that no tested code makes. It ends the watch of failNth.
const endOfWatch = unix.SYS_GETPPID

// failNth calls do, and makes the n-th of its system calls with this number fail with EIO. It returns
// the text to which an argument of that call points, or "" if do makes fewer calls. It must be called
// on a thread that ends afterwards: see apart.
func failNth(number uint32, n, argument int, do func() error) (text string, err error) {
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		return "", err
	}
	defer memory.Close()
	seen := 0
	ended, err := calltest.Watch([]uint32{number, endOfWatch}, func(c calltest.Call) (fails unix.Errno, last bool) {
		if c.Number == endOfWatch {
			return 0, true
		}
		if seen++; seen != n {
			return 0, false
		}
		there := make([]byte, 64)
		_, _ = memory.ReadAt(there, int64(c.Arguments[argument])) // an argument that is no text is not looked at
		name, _, _ := bytes.Cut(there, []byte{0})
		text = "?" + string(name)
		return unix.EIO, false
	})
	if err != nil {
		return "", err
	}
	err = do()
	_, _, _ = unix.Syscall(endOfWatch, 0, 0, 0)
	<-ended
	return text, err
}

// TestEachCallOfABuildFails makes each system call of a build fail, one after the other. The build then
// fails too, because a sandbox must not begin with a part of its files, or with a file system that is
// less closed than it should be.
func TestEachCallOfABuildFails(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	optional := []string{ // what is not there is left out; a tree whose overlay is refused is read-only
		"?overlay", "?/etc/ld.so.conf.d", "?/etc/apt/keyrings", "?/etc/apt/preferences.d", "?/etc/apt/sources.list.d", "?/etc/apt/trusted.gpg.d",
		"?/usr/share/base-passwd/passwd.master", "?/usr/share/base-passwd/group.master",
	}
	again := map[bool]func(*testing.T, *wire.Files) *wire.InitSpec{}
	for _, layered := range []bool{false, true} {
		var files wire.Files
		spec := buildSpec(t, &files)
		if layered {
			files.Close()
			spec = layeredSpec(t, false, &files)
		}
		path := saveChanged(t, spec, &files)
		again[layered] = func(t *testing.T, files *wire.Files) *wire.InitSpec {
			t.Helper()
			reopen(t, path, files, wire.FileSaved)
			return &wire.InitSpec{Runner: spec.Runner, Disk: spec.Disk, Layers: spec.Layers, Saved: "layout", Links: map[string]string{"/link": "etc"}}
		}
	}
	for kind, specify := range map[string]func(*testing.T, *wire.Files) *wire.InitSpec{
		"trees": buildSpec,
		"saved": again[false], "saved layers": again[true],
		"layers": func(t *testing.T, files *wire.Files) *wire.InitSpec { return layeredSpec(t, false, files) },
		"image":  func(t *testing.T, files *wire.Files) *wire.InitSpec { return layeredSpec(t, true, files) },
	} {
		for _, call := range []struct {
			name     string
			number   uint32
			argument int // which one tells an optional part
			onlyOf   string
		}{
			{"mount", unix.SYS_MOUNT, 2, ""}, {"move_mount", unix.SYS_MOVE_MOUNT, 1, ""}, {"open_tree", unix.SYS_OPEN_TREE, 1, ""}, {"mount_setattr", unix.SYS_MOUNT_SETATTR, 1, ""},
			{"mkdirat", unix.SYS_MKDIRAT, 1, ""}, {"fchownat", unix.SYS_FCHOWNAT, 1, ""}, {"mknodat", unix.SYS_MKNODAT, 1, ""},
			{"symlinkat", unix.SYS_SYMLINKAT, 1, "trees"}, {"openat", unix.SYS_OPENAT, 1, "trees"}, {"fchmodat", unix.SYS_FCHMODAT, 1, ""}, {"utimensat", unix.SYS_UTIMENSAT, 1, "trees"},
			{"chdir", unix.SYS_CHDIR, 0, "trees"}, {"pivot_root", unix.SYS_PIVOT_ROOT, 0, "trees"}, {"umount2", unix.SYS_UMOUNT2, 0, "trees"},
		} {
			for n := 1; call.onlyOf == "" || call.onlyOf == kind; n++ {
				var files wire.Files
				spec, text := specify(t, &files), ""
				apart(t, func() error {
					var err error
					text, err = failNth(call.number, n, call.argument, func() error {
						b, err := build(namespaces{}, spec, &files)
						if err == nil {
							err = b.files.Close()
						}
						return err
					})
					switch {
					case text == "":
						return err
					case slices.Contains(optional, text) && (err == nil || errors.Is(err, unix.EIO)):
					case !errors.Is(err, unix.EIO):
						t.Errorf("%s: the call %d of %s, with %s, failed: got error %v, want its error", kind, n, call.name, text, err)
					}
					return nil
				})
				if text == "" {
					break
				}
			}
		}
	}
}
