//go:build linux

package docker_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker/dockertest"
	"github.com/e2bctl/e2bctl/internal/must"
)

// owner is the host's id of the owner of the mounted directories.
const owner = 12345

// hostDir makes a directory of an ordinary user, with a file of that user that is closed to
// others and one of root's, and with another file system below.
func hostDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "shown")
	below := filepath.Join(dir, "below")
	err := errors.Join(os.MkdirAll(below, 0o755), os.WriteFile(filepath.Join(dir, "own"), []byte("own"), 0o600), os.WriteFile(filepath.Join(dir, "secret"), []byte("secret"), 0o600))
	for _, name := range []string{".", "own", "below"} {
		err = errors.Join(err, os.Chown(filepath.Join(dir, name), owner, owner))
	}
	if err == nil {
		err = unix.Mount("none", below, "tmpfs", 0, "mode=777")
	}
	must.Do(t, err)
	t.Cleanup(func() {
		if err := unix.Unmount(below, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	must.Do(t, os.WriteFile(filepath.Join(below, "hidden"), []byte("hidden"), 0o644))
	return dir
}

// TestMounts checks that a sandbox sees a directory of the host, writes there only if it may,
// and gets no access to files of other users there.
func TestMounts(t *testing.T) {
	t.Parallel()
	dir := hostDir(t)
	for name, user := range map[string]string{"root": "", "user": "nobody", "ids": "60:61"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, open(t, docker.Options{User: user}), engine.SandboxOptions{
				Mounts: []engine.Mount{{Dir: dir, Path: "/shown"}, {Dir: dir, Path: "/data", Writable: true}},
			})
			for _, tt := range []struct{ command, want string }{
				{"cat /shown/own", "own"},
				{"touch /shown/x /shown/below/x || echo read-only", "read-only"},
				{"cat /shown/secret || cat /data/secret || echo closed", "closed"},
				{"chmod 777 /data/secret || echo closed", "closed"},
				{"chmod 777 /shown/own || echo read-only", "read-only"},
				{"ls /shown/below /data/below | grep hidden || echo empty", "empty"},
				{`grep -c " /shown [^ ]* ro,nosuid,nodev" /proc/mounts`, "1"},
				{`grep -c " /data [^ ]* rw,nosuid,nodev" /proc/mounts`, "1"},
				{"mount -o remount,bind,rw /shown || mount -o remount,suid,dev /data || umount /shown || echo refused", "refused"},
				{"mknod /data/node-" + name + " c 1 3 || echo refused", "refused"},
				{`python3 -c '
import os, sys
open(sys.argv[1], "w").close()
for data in [b"\1\0\0\2" + b"\xff" * 8 + bytes(8), b"\1\0\0\3" + b"\xff" * 8 + bytes(12)]:
    try: print(os.setxattr(sys.argv[1], "security.capability", data))
    except OSError: print("refused")
' /data/caps-` + name, "refused\nrefused"},
				{"cp /bin/busybox /data/setuid-" + name + " && chmod 6755 /data/setuid-" + name + " && echo made", "made"},
			} {
				if got, _ := try(t, s, "user", "("+tt.command+") 2>/dev/null"); got != tt.want {
					t.Errorf("%s: got %q, want %q", tt.command, got, tt.want)
				}
			}
			var stat unix.Stat_t
			if err := unix.Lstat(filepath.Join(dir, "setuid-"+name), &stat); err != nil || stat.Uid != owner || stat.Gid != owner {
				t.Errorf("the program that it made belongs to %d:%d, %v, want %d", stat.Uid, stat.Gid, err, owner)
			}
			handover := docker.HandoverOf(s)
			if data, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(data), handover) {
				t.Errorf("error %v, or a mount is in %s after the start", err, handover)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(handover); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: got error %v, want that it is gone", handover, err)
			}
		})
	}
}

// TestMountsRefused checks that a mount that cannot be made as requested is refused. Nothing is left
// then, nor if the container does not start.
func TestMountsRefused(t *testing.T) {
	temporary := ownTemporary(t)
	roots, shown := t.TempDir(), hostDir(t)
	for name, tt := range map[string]struct {
		options docker.Options
		mount   engine.Mount
		want    string
		is      error
	}{
		"of root":    {docker.Options{}, engine.Mount{Dir: roots, Path: "/data", Writable: true}, "it belongs to root", &engine.LackError{Feature: engine.Mounts}},
		"no owners":  {docker.Options{}, engine.Mount{Dir: "/proc/sys", Path: "/data"}, "refuses to map ids", &engine.LackError{Feature: engine.Mounts}},
		"nobody's":   {docker.Options{User: "stranger"}, engine.Mount{Dir: shown, Path: "/data"}, `which ids the user "stranger" has`, &engine.LackError{Feature: engine.Mounts}},
		"a link":     {docker.Options{}, engine.Mount{Dir: "/proc/self", Path: "/data"}, "open the directory /proc/self", nil},
		"no start":   {docker.Options{SecurityOpt: []string{`seccomp={"defaultAction":"SCMP_ACT_ERRNO"}`}}, engine.Mount{Dir: shown, Path: "/data"}, "start the container", nil},
		"no program": {docker.Options{}, engine.Mount{Dir: shown, Path: "/data", Writable: true}, "begin a tunnel", nil},
	} {
		tt.options.Image = dockertest.Bare
		opened := open(t, tt.options)
		if name == "no program" { // no option of Open keeps the program from beginning
			docker.SetSecurityOpt(opened, `seccomp={"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["socketpair","prctl"],"action":"SCMP_ACT_KILL_PROCESS"}]}`)
		}
		_, err := opened.NewSandbox(t.Context(), options(t, engine.SandboxOptions{Mounts: []engine.Mount{{Dir: shown, Path: "/first"}, tt.mount}}))
		if err == nil || !strings.Contains(err.Error(), tt.want) || tt.is != nil && !errors.Is(err, tt.is) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
		wantNoHandover(t, temporary)
	}
}

// ownTemporary returns the directory for temporary files of this test alone.
func ownTemporary(t *testing.T) string {
	t.Helper()
	dockertest.Shared(t) // before TMPDIR is set: shared files do not belong there
	dockertest.Program(t)
	dir := filepath.Join(t.TempDir(), "[") // no pattern
	must.Do(t, os.Mkdir(dir, 0o700))
	t.Setenv("TMPDIR", dir)
	return dir
}

// wantNoHandover checks that no mount and nothing else of a handover is in the directory for
// temporary files, but for those that are in use.
func wantNoHandover(t *testing.T, temporary string, used ...string) {
	t.Helper()
	left, err := fs.Glob(os.DirFS(temporary), "e2bctl-mounts-*")
	for i, name := range left {
		left[i] = filepath.Join(temporary, name)
	}
	if err != nil || !slices.Equal(left, used) {
		t.Errorf("got %v, %v, want %v", left, err, used)
	}
	if data, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(data), filepath.Join(temporary, "e2bctl-mounts-")) {
		t.Errorf("error %v, or a mount is left", err)
	}
}

// TestMountsUnseen checks that a daemon that sees other files, or other mounts, than the
// server shows none of its own in place of them.
func TestMountsUnseen(t *testing.T) {
	daemon := dockertest.Apart(t, t.TempDir())
	dir, temporary := hostDir(t), ownTemporary(t)
	e := open(t, docker.Options{Host: daemon.Host(), Image: dockertest.Bare})
	for _, files := range []string{"the same files", "other files"} {
		if files == "other files" {
			must.Do(t, unix.Mount("none", temporary, "tmpfs", 0, ""))
			defer func() {
				if err := unix.Unmount(temporary, unix.MNT_DETACH); err != nil {
					t.Error(err)
				}
			}()
		}
		_, err := e.NewSandbox(t.Context(), options(t, engine.SandboxOptions{Mounts: []engine.Mount{{Dir: dir, Path: "/data", Writable: true}}}))
		if !errors.Is(err, &engine.LackError{Feature: engine.Mounts}) || !strings.Contains(err.Error(), "the daemon has other files or mounts than this server") {
			t.Errorf("%s: got %v, want it refused", files, err)
		}
		wantNoHandover(t, temporary)
	}
	if got := run(t, start(t, e, engine.SandboxOptions{}), "echo works"); got != "works" {
		t.Errorf("without mounts: got %q", got)
	}
}

// TestMountsAfterRename checks that a sandbox sees the directory that was opened, even if another
// one has taken its name.
func TestMountsAfterRename(t *testing.T) {
	t.Parallel()
	dir := hostDir(t)
	opened, err := os.Open(dir)
	must.Do(t, err)
	defer opened.Close()
	link := filepath.Join(filepath.Dir(dir), "link")
	must.Do(t, os.Symlink("/etc", link))
	s := start(t, open(t, docker.Options{Image: dockertest.Bare}), engine.SandboxOptions{Mounts: []engine.Mount{{Dir: link, Path: "/shown", File: opened}}})
	if got := run(t, s, "cat /shown/own"); got != "own" {
		t.Errorf("got %q, want the directory that was opened", got)
	}
}

// TestMountsOfDeadServer checks that the next engine removes everything that a server left that
// was killed between any two steps. It removes nothing of the directory that was mounted, and
// nothing of running sandboxes.
func TestMountsOfDeadServer(t *testing.T) {
	temporary, dir := ownTemporary(t), hostDir(t)
	s := start(t, open(t, docker.Options{Image: dockertest.Bare}), engine.SandboxOptions{Mounts: []engine.Mount{{Dir: dir, Path: "/shown"}}})
	var err error
	for _, made := range []string{"", "0", "0/mark", "0/mounted"} {
		handover := filepath.Join(temporary, "e2bctl-mounts-"+strings.ReplaceAll(made, "/", "-"))
		at := filepath.Join(handover, "0")
		err = errors.Join(err, os.Mkdir(handover, 0o700))
		if made != "" {
			err = errors.Join(err, os.Mkdir(at, 0o700))
		}
		if made == "0/mark" || made == "0/mounted" {
			err = errors.Join(err, os.WriteFile(filepath.Join(at, filepath.Base(handover)), nil, 0o600))
		}
		if made == "0/mounted" {
			err = errors.Join(err, unix.Mount(dir, at, "", unix.MS_BIND|unix.MS_REC, ""), unix.Mount("", at, "", unix.MS_REC|unix.MS_PRIVATE, ""))
		}
	}
	must.Do(t, err)
	open(t, docker.Options{})
	wantNoHandover(t, temporary, docker.HandoverOf(s))
	if text, err := os.ReadFile(filepath.Join(dir, "own")); string(text) != "own" {
		t.Errorf("got %q, %v, want that nothing was removed", text, err)
	}
}

// TestMountsSaved checks that files in a mount are not saved. Files that a sandbox without the mount
// wrote at its path do not come into the directory.
func TestMountsSaved(t *testing.T) {
	t.Parallel()
	dir := hostDir(t)
	mounts := []engine.Mount{{Dir: dir, Path: "/data", Writable: true}}
	e := open(t, docker.Options{Image: dockertest.Bare})
	s := start(t, e, engine.SandboxOptions{ID: "saved-mounts", Mounts: mounts})
	save := func(s engine.Sandbox) string {
		files := t.TempDir()
		must.Do(t, errors.Join(s.Freeze(t.Context()), s.Save(t.Context(), files)))
		return files
	}
	run(t, s, "echo mine >/mine")
	without := start(t, e, engine.SandboxOptions{ID: "saved-without", Files: save(s)})
	if got := run(t, without, "cat /mine; ls -A /data; mkdir -p /data; chmod 777 /data; echo planted >/data/planted"); got != "mine" {
		t.Errorf("without the mount: got %q, want what it wrote elsewhere", got)
	}
	again := start(t, e, engine.SandboxOptions{ID: "saved-again", Files: save(without), Mounts: mounts})
	if got := run(t, again, "cat /mine /data/own; ls -A /data"); !strings.HasPrefix(got, "mine\nown") || strings.Contains(got, "planted") {
		t.Errorf("with the mount again: got %q", got)
	}
	if _, err := os.Lstat(filepath.Join(dir, "planted")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of the host: got %v, want that nothing came into it", err)
	}
}
