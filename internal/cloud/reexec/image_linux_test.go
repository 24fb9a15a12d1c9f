package reexec

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest/login"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/inside"
	"github.com/e2bctl/e2bctl/internal/must"
)

// inImage calls f on a thread of its own with root as its root directory, and as the user uid, who has no
// rights of root.
func inImage(t *testing.T, root string, uid int, f func() error) (err error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can change its root directory")
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // and not unlocked: the thread ends with the goroutine
		if err = errors.Join(unix.Unshare(unix.CLONE_FS), unix.Chroot(root), unix.Chdir("/")); err != nil {
			return
		}
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
			err = errno
			return
		}
		err = f()
	}()
	<-ended
	return err
}

// image returns a directory with the files of an image. A name that ends with a slash is a directory.
func image(t *testing.T, of map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range of {
		path := filepath.Join(root, name)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if strings.HasSuffix(name, "/") {
			must.Do(t, os.MkdirAll(path, 0o755))
			continue
		}
		must.Do(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return root
}

// TestWriteProfile checks the profile of each kind of image, and that a profile which cannot be changed
// stays as it is.
func TestWriteProfile(t *testing.T) {
	t.Parallel()
	const root, nobody = 0, 65534
	const profile, profiles, text = "etc/profile", "etc/profile.d/", "PATH=/of/the/image\n"
	largest := strings.Repeat("x", maxProfile)
	for name, tt := range map[string]struct {
		files map[string]string
		uid   int
		mode  fs.FileMode // of the profile and of its directory; 0: it is not changed
		want  string      // "": no regular file
		err   error
		path  bool // PathFile is written
	}{
		"an empty image":         {want: login.Profile(login.PlainProfile), path: true},
		"a profile":              {files: map[string]string{profile: text}, mode: 0o600, want: login.Profile(text), path: true},
		"an empty profile":       {files: map[string]string{profile: ""}, want: login.Profile(""), path: true},
		"the largest profile":    {files: map[string]string{profile: largest}, want: login.Profile(largest), path: true},
		"a profile too large":    {files: map[string]string{profile: largest + "x"}, want: largest + "x", path: true},
		"a directory":            {files: map[string]string{profile + "/": ""}, path: true},
		"a directory of PATH":    {files: map[string]string{login.PathFile[1:] + "/": "", profile: text}, want: login.Profile(text), path: true},
		"no directory":           {files: map[string]string{"etc": ""}, err: syscall.ENOTDIR},
		"no rights in etc":       {files: map[string]string{"etc/": ""}, uid: nobody, err: fs.ErrPermission},
		"no rights for PATH":     {files: map[string]string{profiles: "", profile + "/": ""}, uid: nobody, err: fs.ErrPermission},
		"no rights to read":      {files: map[string]string{profiles: "", profile: text}, uid: nobody, mode: 0o222, want: text, err: fs.ErrPermission, path: true},
		"no rights, and no need": {files: map[string]string{profiles: "", profile: login.Profile(text)}, uid: nobody, mode: 0o444, want: login.Profile(text), path: true},
		"no rights to write":     {files: map[string]string{profiles: "", profile: text}, uid: nobody, mode: 0o444, want: text, err: fs.ErrPermission, path: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := image(t, tt.files)
			if tt.mode != 0 {
				must.Do(t, os.Chmod(filepath.Join(dir, profile), tt.mode))
			}
			if tt.uid != 0 && tt.path {
				must.Do(t, os.Chmod(filepath.Join(dir, profiles), 0o777))
			}
			must.Is(t, inImage(t, dir, tt.uid, func() error { return writeProfile("/bin:/it's") }), tt.err)
			got, _ := os.ReadFile(filepath.Join(dir, profile)) // a directory has no text
			if string(got) != tt.want {
				t.Errorf("got a profile of %d bytes, want %d: %.300q", len(got), len(tt.want), got)
			}
			if got, err := os.ReadFile(filepath.Join(dir, login.PathFile)); tt.path != (err == nil) || tt.path && string(got) != login.PathText("/bin:/it's") {
				t.Errorf("got the PATH %q and the error %v, want it to be written: %v", got, err, tt.path)
			}
			if info, err := os.Stat(filepath.Join(dir, profile)); tt.mode != 0 && (err != nil || info.Mode() != tt.mode) {
				t.Errorf("got %v and the error %v, want the mode %v", info, err, tt.mode)
			}
		})
	}
	t.Run("a link to itself", func(t *testing.T) {
		t.Parallel()
		dir := image(t, map[string]string{profiles: ""})
		must.Do(t, os.Symlink("profile", filepath.Join(dir, profile)))
		must.Is(t, inImage(t, dir, root, func() error { return writeProfile("/bin") }), syscall.ELOOP)
	})
}

// TestSettle checks that a sandbox has the accounts of its image, but a container has not, and that an
// error about the working directory does not keep the profile from being written.
func TestSettle(t *testing.T) {
	t.Parallel()
	for _, contained := range []bool{false, true} {
		dir := image(t, map[string]string{"etc/passwd": "root:x:0:0::/of/root:/bin/ash\nuser:x:5:6::/of/user:/bin/own\n", "file": ""})
		own := []guest.User{{Name: "root", Home: "/root", Shell: "/bin/sh"}, {Name: "user", UID: 7, GID: 7, Home: "/home/user", Shell: "/bin/sh", Credential: &syscall.Credential{Uid: 7, Gid: 7}}}
		g := &inside.Guest{Users: append([]guest.User(nil), own...)}
		want := own
		if !contained {
			want = []guest.User{
				{Name: "root", Home: "/of/root", Shell: "/bin/ash"}, // without a credential, as before
				{Name: "user", UID: 5, GID: 6, Home: "/of/user", Shell: "/bin/own", Credential: &syscall.Credential{Uid: 5, Gid: 6, Groups: []uint32{6}}},
			}
		}
		must.Is(t, inImage(t, dir, 0, func() error { return settle(&guest.Config{Contained: contained, Workdir: "/file/below"}, g) }), syscall.ENOTDIR)
		if diff := cmp.Diff(want, g.Users); diff != "" {
			t.Errorf("contained %v (-want +got):\n%s", contained, diff)
		}
		if got := files(t, filepath.Join(dir, "etc", "profile.d")); len(got) != 1 {
			t.Errorf("contained %v: got the profiles %q, want one", contained, got)
		}
		g.Users = append([]guest.User(nil), own...)
		must.Do(t, inImage(t, dir, 0, func() error { return settle(&guest.Config{Contained: contained, Workdir: "file/below"}, g) }))
	}
}

// TestAnyOwner checks that files of a container can have any owner only if its envd is root.
func TestAnyOwner(t *testing.T) {
	t.Parallel()
	for uid, want := range map[int]bool{0: true, 65534: false} {
		g, got := sandbox(t), !want
		must.Do(t, inImage(t, t.TempDir(), uid, func() error {
			got = daemonOptions(&guest.Config{Contained: true}, g, nil, &child.Memory{}, slog.New(slog.DiscardHandler)).AnyOwner
			return nil
		}))
		if got != want {
			t.Errorf("the user %d: got %v, want %v", uid, got, want)
		}
	}
}
