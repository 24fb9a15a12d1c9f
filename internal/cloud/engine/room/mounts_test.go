//go:build linux

package room

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/cloud/mounts"
	"github.com/e2bctl/e2bctl/internal/must"
)

// ordinary is the host's id that owns the directories that tests mount: this user's, if it is
// not root.
func ordinary() int {
	if id := os.Geteuid(); id != 0 {
		return id
	}
	return 12345
}

// newHostDir makes a directory with a file, which belong to an ordinary user.
func newHostDir(t testing.TB, text string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "shown")
	file := filepath.Join(dir, "file")
	err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(file, []byte(text), 0o600))
	if err == nil && os.Geteuid() == 0 {
		err = errors.Join(os.Chown(dir, ordinary(), ordinary()), os.Chown(file, ordinary(), ordinary()))
	}
	must.Do(t, err)
	return dir
}

// The files of a directory's owner belong to the user of each sandbox. The sandbox writes
// only where it may, and no file becomes the host's root's.
func TestMounts(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	shown, own := newHostDir(t, "of the host"), newHostDir(t, "to be changed")
	foreign := filepath.Join(shown, "foreign")
	if err := os.WriteFile(foreign, []byte("secret"), 0o600); err != nil { // owned by root, if this is root
		t.Fatal(err)
	}
	s := newSandbox(t, r, engine.SandboxOptions{Mounts: []engine.Mount{{Dir: shown, Path: "/shown"}, {Dir: own, Path: "/home/user/own", Writable: true}}})
	for _, user := range []string{"user", "root"} {
		wantOutput(t, s, user, "cat /shown/file; echo x 2>/dev/null >/shown/new || echo refused; rm /shown/file 2>/dev/null || echo refused; touch /shown/file 2>/dev/null || echo refused",
			"of the hostrefused\nrefused\nrefused")
		wantOutput(t, s, user, "cd /home/user/own && echo "+user+" >made-by-"+user+" && cat made-by-"+user+" && echo changed >file && cat file", user+"\nchanged")
	}
	wantOutput(t, s, "user", "stat -c %u /shown /shown/file /home/user/own", strings.Join([]string{userOf(r), userOf(r), userOf(r)}, "\n"))
	if r.ranged() {
		wantOutput(t, s, "user", "stat -c %u /shown/foreign; cat /shown/foreign 2>/dev/null || echo refused", "65534\nrefused")
		wantOutput(t, s, "root", "cat /shown/foreign 2>/dev/null || echo refused", "refused")
	}
	wantOutput(t, s, "root", "cp /usr/bin/id /home/user/own/setuid && chmod 4755 /home/user/own/setuid && grep -c ' /home/user/own .*nosuid,nodev' /proc/mounts; grep -c ' /shown [^ ]* ro,nosuid,nodev' /proc/mounts", "1\n1")
	for _, try := range []string{
		"mount -o remount,rw /shown", "mount -o remount,bind,rw /shown", "umount /shown", "mount --bind /shown /mnt", "mknod /home/user/own/null c 1 3",
		"ln /shown/file /home/user/own/hard", "chown 0 /shown/file", "chmod 777 /shown",
	} {
		wantOutput(t, s, "root", "("+try+") >/dev/null 2>&1 || echo refused", "refused")
	}
	wantOutput(t, s, "root", "ls -d /shown/../.. && ls /home/user/own/..", "/shown/../..\nown")

	entries, err := os.ReadDir(own)
	must.Do(t, err)
	for _, e := range entries {
		var stat unix.Stat_t
		must.Do(t, unix.Lstat(filepath.Join(own, e.Name()), &stat))
		if stat.Uid == mounts.StrangerID && stat.Gid == mounts.StrangerID && r.ranged() {
			continue // it is root's
		}
		if want := uint32(ordinary()); stat.Uid != want || stat.Gid == 0 {
			t.Errorf("%s belongs to %d:%d on the host, want %d or the stranger", e.Name(), stat.Uid, stat.Gid, want)
		}
	}
	if text, err := os.ReadFile(filepath.Join(shown, "file")); string(text) != "of the host" {
		t.Errorf("got %q and error %v, want that nothing has changed", text, err)
	}
}

// Nothing in a sandbox can make the host's programs wait for a file of a mount, or hide a
// name in it from them.
func TestMountsHoldNobodyUp(t *testing.T) {
	t.Parallel()
	r, shown, own := newRoom(t), newHostDir(t, "of the host"), newHostDir(t, "to be changed")
	s := newSandbox(t, r, engine.SandboxOptions{Mounts: []engine.Mount{{Dir: shown, Path: "/shown"}, {Dir: own, Path: "/own", Writable: true}}})
	const lease, delegation, noName, renameWhiteout = 1024, 1040, "c 0 0", 4
	for _, user := range []string{"user", "root"} {
		for _, command := range []int{lease, delegation} {
			for _, open := range []string{"'/shown/file'", "'/own/file'", "'/own/made', 'w'"} {
				for kind := range 2 { // reading and writing
					wantOutput(t, s, user, fmt.Sprintf("python3 -c \"import fcntl; f = open(%s); fcntl.fcntl(f, %d, %d)\" 2>/dev/null || echo refused", open, command, kind), "refused")
				}
			}
		}
		wantOutput(t, s, user, "mknod /own/whiteout "+noName+" 2>/dev/null || echo refused", "refused")
		wantOutput(t, s, user, fmt.Sprintf("touch /own/a && python3 -c \"import ctypes; assert ctypes.CDLL(None).syscall(%d, -100, b'/own/a', -100, b'/own/b', %d) == 0\" 2>/dev/null || echo refused", unix.SYS_RENAMEAT2, renameWhiteout), "refused")
		wantOutput(t, s, user, "mkfifo /own/fifo && mknod /own/pipe p && mv /own/a /own/c && rm /own/fifo /own/pipe /own/c && echo made", "made")
	}
	f, err := os.OpenFile(filepath.Join(shown, "file"), os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatalf("the host's writer would wait: %v", err)
	}
	f.Close()
}

// An opened directory is shown even if it was renamed before the start.
func TestMountsAfterRename(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	for name, replace := range map[string]func(dir string) error{
		"link":      func(dir string) error { return os.Symlink("/", dir) },
		"directory": func(dir string) error { return os.Mkdir(dir, 0o777) },
		"nothing":   func(string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			dir := newHostDir(t, "the one that was meant")
			opened, err := os.Open(dir)
			must.Do(t, err)
			defer opened.Close()
			must.Do(t, errors.Join(os.Rename(dir, dir+".moved"), replace(dir)))
			s := newSandbox(t, r, engine.SandboxOptions{Mounts: []engine.Mount{{Dir: dir, Path: "/shown", File: opened}}})
			wantOutput(t, s, "user", "cat /shown/file; ls /shown", "the one that was meantfile")
		})
	}
	dir := newHostDir(t, "")
	must.Do(t, errors.Join(os.Rename(dir, dir+".moved"), os.Symlink("/", dir)))
	if _, err := r.NewSandbox(t.Context(), engine.SandboxOptions{ID: "link", Mounts: []engine.Mount{{Dir: dir, Path: "/shown"}}}); err == nil {
		t.Error("a link was followed that nothing was opened through")
	}
}

// A sandbox does not get file systems that are mounted in a directory later.
func TestMountsLater(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root mounts anything in a directory of the host")
	}
	dir := newHostDir(t, "text")
	must.Do(t, errors.Join(unix.Mount(dir, dir, "", unix.MS_BIND, ""), unix.Mount("", dir, "", unix.MS_SHARED, ""), os.Mkdir(filepath.Join(dir, "below"), 0o755)))
	defer func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	s := newSandbox(t, newRoom(t), engine.SandboxOptions{Mounts: []engine.Mount{{Dir: dir, Path: "/shown"}}})
	must.Do(t, unix.Mount("none", filepath.Join(dir, "below"), "tmpfs", 0, ""))
	wantOutput(t, s, "root", "cat /shown/file; grep -c /shown /proc/mounts", "text1")
}

// A directory that root of a sandbox made can be shown like any other.
func TestMountsOfStranger(t *testing.T) {
	t.Parallel()
	r, dir := newRoom(t), newHostDir(t, "")
	s := newSandbox(t, r, engine.SandboxOptions{ID: "a", Mounts: []engine.Mount{{Dir: dir, Path: "/data", Writable: true}}})
	wantOutput(t, s, "root", "mkdir /data/made && echo text >/data/made/file", "")
	again := newSandbox(t, r, engine.SandboxOptions{ID: "b", Mounts: []engine.Mount{{Dir: filepath.Join(dir, "made"), Path: "/data", Writable: true}}})
	wantOutput(t, again, "user", "cat /data/file; echo more >/data/file; cat /data/file", "text\nmore")
}

// The files of a mount are not saved, and a link that a sandbox left at its path is not
// followed.
func TestMountsSaved(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	mounts := []engine.Mount{{Dir: newHostDir(t, "secret-of-the-host"), Path: "/home/user/shown"}}
	s := newSandbox(t, r, engine.SandboxOptions{ID: "a", Mounts: mounts})
	wantOutput(t, s, "user", "echo mine >/home/user/own", "")
	saved := saveTo(t, s)
	if text := string(readSavedFile(t, saved)); strings.Contains(text, "secret-of-the-host") || !strings.Contains(text, "mine") {
		t.Error("what was saved has the file of the host, or does not have the sandbox's own")
	}
	again := newSandbox(t, r, engine.SandboxOptions{ID: "b", Files: saved, Mounts: mounts})
	wantOutput(t, again, "user", "cat /home/user/own /home/user/shown/file", "mine\nsecret-of-the-host")
	without := newSandbox(t, r, engine.SandboxOptions{ID: "c", Files: saved})
	wantOutput(t, without, "root", "ls -A /home/user/shown && rmdir /home/user/shown && ln -s /etc /home/user/shown", "")
	_, err := r.NewSandbox(t.Context(), engine.SandboxOptions{ID: "d", Files: saveTo(t, without), Mounts: mounts})
	if err == nil || !strings.Contains(err.Error(), "/home/user/shown is a link") {
		t.Errorf("got error %v, want the link to be named", err)
	}
}

// TestMountsThatCannotBeOpened checks that a sandbox never starts without a directory that it was
// to have, whether the server or the sandbox makes the mount.
func TestMountsThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	for _, ranged := range []bool{true, false} {
		s := &Sandbox{room: &Room{ids: roomIDs{ranged: ranged}}, options: engine.SandboxOptions{Mounts: []engine.Mount{{Dir: filepath.Join(t.TempDir(), "gone"), Path: "/shown"}}}}
		var files wire.Files
		volumes, err := s.mountHost(nil, &files)
		must.Is(t, err, os.ErrNotExist)
		if len(volumes) != 0 || files.Len() != 0 {
			t.Errorf("ranged %v: got the volumes %v and %d files, want none", ranged, volumes, files.Len())
		}
	}
}

func TestMountsRefused(t *testing.T) {
	t.Parallel()
	for _, level := range []engine.Isolation{engine.Restricted, engine.None} {
		_, err := newRoomOn(t, level).NewSandbox(t.Context(), engine.SandboxOptions{ID: "a", Mounts: []engine.Mount{{Dir: t.TempDir(), Path: "/shown"}}})
		if !errors.Is(err, &engine.LackError{Feature: engine.Mounts}) {
			t.Errorf("%s: got error %v, want %v", level, err, &engine.LackError{Feature: engine.Mounts})
		}
	}
	full := newRoom(t)
	file := filepath.Join(newHostDir(t, ""), "file")
	for _, dir := range []string{file, filepath.Join(t.TempDir(), "gone")} {
		if _, err := full.NewSandbox(t.Context(), engine.SandboxOptions{ID: "b", Mounts: []engine.Mount{{Dir: dir, Path: "/shown"}}}); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("got error %v, want one that names %s", err, dir)
		}
	}
	if full.ranged() {
		_, err := full.NewSandbox(t.Context(), engine.SandboxOptions{ID: "c", Mounts: []engine.Mount{{Dir: t.TempDir(), Path: "/shown", Writable: true}}})
		if !errors.Is(err, &engine.LackError{Feature: engine.Mounts}) || !strings.Contains(err.Error(), "belongs to root") {
			t.Errorf("writable, of root: got error %v, want %v", err, &engine.LackError{Feature: engine.Mounts})
		}
	}
}
