//go:build linux

package room

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// newVolume makes a directory that only this user reaches, whose files belong to the
// user of sandboxes.
func newVolume(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "files")
	must.Do(t, os.Mkdir(dir, 0o755))
	if os.Geteuid() == 0 {
		must.Do(t, os.Chown(dir, protocol.UserID, protocol.UserID))
	}
	return dir
}

func wantOutput(t testing.TB, s *Sandbox, user, command, want string) {
	t.Helper()
	if got := call(t, s, "/run", testRequest{User: user, Command: command}); got.Status != 0 || strings.TrimSpace(got.Output) != want {
		t.Errorf("%s: got %+v, want %q", command, got, want)
	}
}

// Several sandboxes with different ids have a volume at the same time, with the same
// owners inside.
func TestVolumes(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	dir, other := newVolume(t), newVolume(t)
	a := newSandbox(t, r, engine.SandboxOptions{ID: "a", Volumes: []engine.Volume{{Dir: dir, Path: "/data"}, {Dir: other, Path: "/home/user/deep/er"}}})
	b := newSandbox(t, r, engine.SandboxOptions{ID: "b", Volumes: []engine.Volume{{Dir: dir, Path: "/mnt/b"}}})
	wantOutput(t, a, "user", "echo one >/data/file && chmod 640 /data/file && cat /data/file", "one")
	wantOutput(t, b, "user", "cat /mnt/b/file && echo two >>/mnt/b/file && mkdir /mnt/b/dir", "one")
	wantOutput(t, a, "user", "cat /data/file", "one\ntwo")
	wantOutput(t, a, "user", "echo x >/home/user/deep/er/f && ls /home/user/deep/er && stat -c %u /home/user/deep", "f\n"+userOf(r))
	wantOutput(t, a, "root", "echo root >/data/roots && chmod 600 /data/roots && stat -c '%u %a' /data /data/file /data/roots", userOf(r)+" 755\n"+userOf(r)+" 640\n0 600")
	wantOutput(t, b, "root", "cat /mnt/b/roots", "root")
	if r.ranged() {
		wantOutput(t, b, "user", "cat /mnt/b/roots 2>/dev/null || echo refused", "refused")
	}
	for name, want := range map[string]uint32{"file": protocol.UserID, "roots": 0} {
		var stat unix.Stat_t
		must.Do(t, unix.Lstat(filepath.Join(dir, name), &stat))
		if !r.ranged() {
			want = uint32(os.Geteuid())
		}
		if stat.Uid != want || stat.Gid != want {
			t.Errorf("%s: got owner %d:%d on the host, want %d", name, stat.Uid, stat.Gid, want)
		}
	}
	wantOutput(t, a, "root", "cd /data && cp /usr/bin/id setuid && chmod 4755 setuid && grep -c ' /data .*nosuid,nodev' /proc/mounts", "1")
	if r.ranged() {
		wantOutput(t, b, "user", "/mnt/b/setuid -u", "1000")
		wantOutput(t, a, "root", "mknod /data/null c 1 3 2>/dev/null || echo refused", "refused")
	}
	wantOutput(t, a, "root", "umount /data 2>/dev/null || echo refused", "refused")
	wantOutput(t, a, "root", "cd /data && ls ../.. >/dev/null && rm -r dir && ls /data", "file\nroots\nsetuid")
}

// userOf returns the id of user inside.
func userOf(r *Room) string {
	if !r.ranged() {
		return "0"
	}
	return strconv.Itoa(protocol.UserID)
}

// The content of a volume is not saved, and is available again when the saved files
// are used.
func TestVolumesSaved(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	dir := newVolume(t)
	volumes := []engine.Volume{{Dir: dir, Path: "/home/user/data"}}
	s := newSandbox(t, r, engine.SandboxOptions{ID: "a", Volumes: volumes})
	wantOutput(t, s, "user", "echo mine >/home/user/own && echo secret-of-the-volume >/home/user/data/file", "")
	saved := saveTo(t, s)
	if text := string(readSavedFile(t, saved)); strings.Contains(text, "secret-of-the-volume") || !strings.Contains(text, "mine") {
		t.Error("what was saved has the file of the volume, or does not have the sandbox's own")
	}
	wantOutput(t, s, "user", "echo later >/home/user/data/file", "")
	next := newSandbox(t, r, engine.SandboxOptions{ID: "b", Files: saved, Volumes: volumes})
	wantOutput(t, next, "user", "cat /home/user/own /home/user/data/file", "mine\nlater")
	without := newSandbox(t, r, engine.SandboxOptions{ID: "c", Files: saved})
	wantOutput(t, without, "user", "cat /home/user/own; ls /home/user/data", "mine")

	// A sandbox that replaces its volume with a link does not get the volume at
	// another path.
	wantOutput(t, without, "root", "rmdir /home/user/data && ln -s /etc /home/user/data", "")
	_, err := r.NewSandbox(t.Context(), engine.SandboxOptions{ID: "d", Files: saveTo(t, without), Volumes: volumes})
	if err == nil || !strings.Contains(err.Error(), "/home/user/data is a link") {
		t.Errorf("got error %v, want the link to be named", err)
	}
}

func TestVolumesRefused(t *testing.T) {
	t.Parallel()
	r := newRoomOn(t, engine.None)
	_, err := r.NewSandbox(t.Context(), engine.SandboxOptions{ID: "a", Volumes: []engine.Volume{{Dir: newVolume(t), Path: "/data"}}})
	if !errors.Is(err, &engine.LackError{Feature: engine.Volumes}) {
		t.Errorf("without mounts: got error %v, want %v", err, &engine.LackError{Feature: engine.Volumes})
	}
	full := newRoom(t)
	_, err = full.NewSandbox(t.Context(), engine.SandboxOptions{ID: "b", Volumes: []engine.Volume{{Dir: filepath.Join(t.TempDir(), "gone"), Path: "/data"}}})
	if !errors.Is(err, os.ErrNotExist) && (err == nil || !strings.Contains(err.Error(), "no such file")) {
		t.Errorf("without a directory: got error %v, want %v", err, os.ErrNotExist)
	}
	if !full.ranged() {
		return
	}
	_, err = full.NewSandbox(t.Context(), engine.SandboxOptions{ID: "c", Volumes: []engine.Volume{{Dir: "/proc/self", Path: "/data"}}})
	if !errors.Is(err, &engine.LackError{Feature: engine.Volumes}) || !strings.Contains(err.Error(), "id-mapped") {
		t.Errorf("on a file system without id-mapped mounts: got error %v, want %v", err, &engine.LackError{Feature: engine.Volumes})
	}
}
