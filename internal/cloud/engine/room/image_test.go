//go:build linux

package room

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/imagetest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/layer"
	"github.com/e2bctl/e2bctl/internal/must"
)

var anImage = &engine.Image{Reference: "localhost/test"}

// newImageRoom starts a room as a cloud does, with a tree of the host that sandboxes of
// images must not see.
func newImageRoom(t testing.TB) *Room {
	t.Helper()
	r, _ := newLayeredRoom(t)
	return r
}

func imageLayer(t testing.TB, r *Room, whole bool, fill func(root string) error) (dir string) {
	t.Helper()
	return imagetest.Layer(t, r.Report().IDs, whole, fill)
}

// busyboxImage returns the layers of an image that has only busybox, above a layer with the
// files that fill makes.
func busyboxImage(t testing.TB, r *Room, fill func(root string) error) (layers []string) {
	t.Helper()
	layers = []string{imageLayer(t, r, true, func(root string) error { return imagetest.Busybox(t, root) })}
	if fill != nil {
		layers = append(layers, imageLayer(t, r, false, fill))
	}
	return layers
}

// TestImage checks that the root of a sandbox of an image is the image's, with the files
// that every sandbox has, and that the image does not change.
func TestImage(t *testing.T) {
	t.Parallel()
	r := newImageRoom(t)
	layers := busyboxImage(t, r, func(root string) error {
		return errors.Join(os.Mkdir(filepath.Join(root, "srv"), 0o755), os.WriteFile(filepath.Join(root, "srv", "file"), []byte("of the image\n"), 0o644))
	})
	before := onHost(t, layers[0]) + onHost(t, layers[1])
	for name, processes := range map[string]int{"warm": 0, "cold": 500} {
		s := newSandbox(t, r, engine.SandboxOptions{ID: name, Image: anImage, Layers: layers, Limits: engine.Limits{MaxProcesses: processes}})
		for _, tt := range []struct{ command, want string }{
			{"ls /", "bin\ndev\netc\nhome\nproc\nroot\nrun\nsrv\nsys\ntmp"},
			{"ls /etc", "group\nhostname\nhosts\npasswd\nresolv.conf\nshadow"},
			{"cat /etc/hostname; hostname", name + "\n" + name},
			{"grep -c localhost /etc/hosts; grep -c nameserver /etc/resolv.conf", "2\n1"},
			{"ls /dev", "fd\nfull\nnull\nptmx\npts\nrandom\nshm\nstderr\nstdin\nstdout\ntty\nurandom\nzero"},
			{"ls /home /run", "/home:\nuser\n\n/run:"},
			{"grep -c " + filepath.Dir(layers[0]) + " /proc/mounts", "0"},
			{"cat /srv/file; echo x > /dev/null", "of the image"},
			{"echo changed > /srv/file; rm /bin/true; touch /new /home/user/file; cat /srv/file", "changed"},
		} {
			if got := sh(t, s, tt.command); strings.TrimSpace(got.Output) != tt.want {
				t.Errorf("%s: %s: got %+v, want %q", name, tt.command, got, tt.want)
			}
		}
		wantOutput(t, s, "user", "cd ~ && pwd && echo x > /tmp/x && id -un && echo $HOME", "/home/user\nuser\n/home/user")
		if r.ranged() {
			wantOutput(t, s, "user", "stat -c %U:%G ~; id -u", "user:user\n1000")
		}
	}
	if diff := cmp.Diff(before, onHost(t, layers[0])+onHost(t, layers[1])); diff != "" {
		t.Errorf("the image was changed (-before +after):\n%s", diff)
	}
}

// TestImageHostile checks that no file that an image has in place of a sandbox's own files
// leads out of the sandbox or keeps it from starting.
func TestImageHostile(t *testing.T) {
	t.Parallel()
	r := newImageRoom(t)
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	must.Do(t, errors.Join(os.Chmod(outside, 0o777), os.WriteFile(secret, []byte("user:x:4242:4242::/outside:/bin/false\n"), 0o666), os.Chmod(secret, 0o666)))
	before := onHost(t, outside)
	up := strings.Repeat("../", 40)
	places := [][]string{
		{"dev", "proc", "sys", "run", "tmp", "etc", "home", "root", ".e2b"},
		{"etc/passwd", "etc/group", "etc/shadow", "etc/resolv.conf", "etc/hosts", "etc/hostname", "etc/sudoers.d", "home/user", "run/e2b", "run/e2bctl", "dev/null", "dev/pts", "dev/shm", "tmp/x", "sys/devices"},
	}
	kinds := map[string]func(path string) error{
		"link to a file":         func(path string) error { return os.Symlink(secret, path) },
		"link up to a file":      func(path string) error { return os.Symlink(up+secret, path) },
		"link to a directory":    func(path string) error { return os.Symlink(outside, path) },
		"link up to a directory": func(path string) error { return os.Symlink(up+outside, path) },
		"link to nothing":        func(path string) error { return os.Symlink(filepath.Join(outside, "new"), path) },
		"link to itself":         func(path string) error { return os.Symlink(filepath.Base(path), path) },
		"link to a process":      func(path string) error { return os.Symlink("/proc/1/root"+outside, path) },
		"file":                   func(path string) error { return os.WriteFile(path, []byte("of the image\n"), 0) },
		"pipe":                   func(path string) error { return unix.Mkfifo(path, 0o666) },
		"full directory": func(path string) error {
			return errors.Join(os.Mkdir(path, 0o755), os.Mkdir(filepath.Join(path, "in"), 0), os.WriteFile(filepath.Join(path, "null"), nil, 0))
		},
		"closed directory": func(path string) error { return os.Mkdir(path, 0) },
	}
	if os.Geteuid() == 0 {
		kinds["device"] = func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))) }
		kinds["disk"] = func(path string) error { return unix.Mknod(path, unix.S_IFBLK|0o666, int(unix.Mkdev(254, 0))) }
	}
	base := busyboxImage(t, r, nil)
	for kind, put := range kinds {
		t.Run(kind, func(t *testing.T) {
			for i, places := range places {
				layers := append(slices.Clone(base), imageLayer(t, r, false, func(root string) (err error) {
					for _, place := range places {
						path := filepath.Join(root, place)
						err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), put(path))
					}
					return err
				}))
				for _, processes := range []int{0, 500} { // with a warm sandbox, and without
					o := engine.SandboxOptions{ID: "hostile", Image: anImage, Layers: layers, Limits: engine.Limits{MaxProcesses: processes}}
					for range 2 { // from the image, and from the saved files of such a sandbox
						s, err := r.NewSandbox(t.Context(), o)
						if err != nil {
							t.Errorf("%d: %v", i, err)
							break
						}
						got := sh(t, s, "head -c 1 /dev/zero | wc -c; head -n 1 /proc/self/stat | wc -l; grep -c 4242 /etc/passwd; cat /etc/hostname; grep -c . /etc/hosts; cat /etc/resolv.conf | wc -l; "+
							"echo x > /tmp/new && echo x > /run/new && echo x > /dev/shm/x && echo x > /home/user/x && echo written; ls -A "+outside+" 2>/dev/null | wc -w")
						if want := "1\n1\n0\nhostile\n3\n1\nwritten\n0\n"; got.Output != want {
							t.Errorf("%d: got %+v, want the output %q", i, got, want)
						}
						o.Files = saveTo(t, s)
						if err := s.Close(); err != nil {
							t.Error(err)
						}
					}
				}
			}
		})
	}
	if diff := cmp.Diff(before, onHost(t, outside)); diff != "" {
		t.Errorf("something outside was changed (-before +after):\n%s", diff)
	}
}

// TestImageLayers checks the files of a sandbox of a hundred layers. Each layer replaces and
// removes files of the layers below.
func TestImageLayers(t *testing.T) {
	t.Parallel()
	r := newImageRoom(t)
	layers := busyboxImage(t, r, nil)
	for n := range 100 {
		layers = append(layers, imageLayer(t, r, false, func(root string) error {
			dir := filepath.Join(root, "srv")
			err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "last"), []byte(strconv.Itoa(n)), 0o644), os.WriteFile(filepath.Join(dir, fmt.Sprint(n)), nil, 0o644))
			if n > 0 && os.Geteuid() == 0 { // only root can make a whiteout outside of a sandbox
				err = errors.Join(err, unix.Mknod(filepath.Join(dir, strconv.Itoa(n-1)), unix.S_IFCHR, 0))
			}
			return err
		}))
	}
	want := "99 and 100"
	if os.Geteuid() == 0 {
		want = "99 and 1"
	}
	for _, processes := range []int{0, 500} {
		s := newSandbox(t, r, engine.SandboxOptions{Image: anImage, Layers: layers, Limits: engine.Limits{MaxProcesses: processes}})
		wantOutput(t, s, "root", "echo $(cat /srv/last) and $(ls /srv | grep -cv last)", want)
	}
}

// TestImageSaved checks that only the files above an image are saved of a sandbox: for a
// sandbox that begins with the image, and for a fork above the image and these files.
func TestImageSaved(t *testing.T) {
	t.Parallel()
	r := newImageRoom(t)
	layers := busyboxImage(t, r, func(root string) error {
		dir := filepath.Join(root, "srv")
		err := os.Mkdir(dir, 0o755)
		for _, name := range []string{"kept", "changed", "removed"} {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte("of the image\n"), 0o644))
		}
		return errors.Join(err, os.WriteFile(filepath.Join(dir, "big"), make([]byte, 8<<20), 0o644))
	})
	see := func(s *Sandbox) string {
		t.Helper()
		return sh(t, s, "ls -la /srv | awk '/^-/ { print $1, $3, $5, $9 } /^d/ { print $1, $3, $9 }'; cat /srv/kept /srv/changed /run/left ~/mine; cat /etc/passwd; find / -xdev | grep -v '^/proc\\|/run/e2b' | sort; find /srv -newer /bin/busybox").Output
	}
	first := newSandbox(t, r, engine.SandboxOptions{ID: "first", Image: anImage, Layers: layers})
	wantOutput(t, first, "root", "cd /srv && echo mine > changed && rm removed && mkdir -p new/dir && echo x > new/dir/file && echo x > /run/left && echo mine > ~/mine && rm /bin/false && echo app:x:100:100::/srv:/bin/sh >> /etc/passwd", "")
	want := see(first)
	files := saveTo(t, first)
	if n := len(readSavedFile(t, files)); n > 1<<20 {
		t.Errorf("got %d bytes of saved files, want none of the image", n)
	}
	fork := layerOf(t, first)
	second := newSandbox(t, r, engine.SandboxOptions{ID: "first", Image: anImage, Layers: layers, Files: files})
	if diff := cmp.Diff(want, see(second)); diff != "" {
		t.Errorf("with the saved files (-before +after):\n%s", diff)
	}
	forked := newSandbox(t, r, engine.SandboxOptions{ID: "first", Image: anImage, Layers: append(slices.Clone(layers), fork)})
	if diff := cmp.Diff(want, see(forked)); diff != "" {
		t.Errorf("a fork (-before +after):\n%s", diff)
	}
	wantOutput(t, forked, "root", "echo again > /srv/changed", "")
	again := newSandbox(t, r, engine.SandboxOptions{ID: "first", Image: anImage, Layers: append(slices.Clone(layers), fork, layerOf(t, forked))})
	wantOutput(t, again, "root", "cat /srv/changed /srv/kept; ls /srv; ls /bin/false 2>&1 | wc -l", "again\nof the image\nbig\nchanged\nkept\nnew\n1")
}

// TestImageUsers checks that programs of an image change to its users, and report with a
// single id that they cannot.
func TestImageUsers(t *testing.T) {
	t.Parallel()
	r := newImageRoom(t)
	layers := busyboxImage(t, r, func(root string) error {
		err := errors.Join(os.Mkdir(filepath.Join(root, "etc"), 0o755), os.Mkdir(filepath.Join(root, "srv"), 0o755),
			os.WriteFile(filepath.Join(root, "etc", "passwd"), []byte("root:x:0:0:root:/root:/bin/sh\napp:x:500:600::/srv:/bin/sh"), 0o644),
			os.WriteFile(filepath.Join(root, "etc", "group"), []byte("root:x:0:\nstaff:x:600:\n"), 0o644),
			os.WriteFile(filepath.Join(root, "etc", "shadow"), []byte("root:*:1:0:99999:7:::\napp::1:0:99999:7:::\n"), 0o604))
		return errors.Join(err, imagetest.Busybox(t, root, "su"), os.Chmod(filepath.Join(root, "bin", "busybox"), 0o755|os.ModeSetuid))
	})
	s := newSandbox(t, r, engine.SandboxOptions{Image: anImage, Layers: layers})
	wantOutput(t, s, "root", "grep -c . /etc/passwd /etc/group /etc/shadow; stat -c %a /etc/shadow; sed -n s/root:.:1:.*/root/p /etc/shadow", "/etc/passwd:3\n/etc/group:3\n/etc/shadow:3\n604\nroot")
	if !r.ranged() {
		wantOutput(t, s, "user", "id -un; head -n 1 /etc/passwd | cut -d : -f 1-4", "user\nuser:x:0:0")
		if got := sh(t, s, "chown 500 /tmp/x 2>&1 || touch /tmp/x && chown 500 /tmp/x"); got.Status == 0 {
			t.Errorf("a second id: got %+v, want an error", got)
		}
		return
	}
	wantOutput(t, s, "root", "touch /srv/file && chown app:staff /srv/file && stat -c '%U:%G %u:%g' /srv/file && chown 65535 /srv/file", "app:staff 500:600")
	wantOutput(t, s, "root", "su app -c 'id -u; id -g; cd; pwd'", "500\n600\n/srv")
	wantOutput(t, s, "user", "id -u; su app -c 'id -u; id -g'", "1000\n500\n600") // su needs the rights of its owner
	if got := sh(t, s, "chown 65536 /srv/file"); got.Status == 0 {
		t.Errorf("an id beyond those of a sandbox: got %+v, want an error", got)
	}
}

// TestImageLimits checks that the disk of a sandbox of an image is bounded like any
// other's.
func TestImageLimits(t *testing.T) {
	t.Parallel()
	r := newImageRoom(t)
	s := newSandbox(t, r, engine.SandboxOptions{Image: anImage, Layers: busyboxImage(t, r, nil), Limits: engine.Limits{DiskBytes: 16 << 20}})
	for _, dir := range []string{"/", "/tmp", "/run", "/dev/shm", "/home/user"} {
		got := sh(t, s, "cd "+dir+" && head -c 33554432 /dev/zero > big; s=$?; rm big; exit $s")
		if got.Status == 0 || !strings.Contains(got.Output, "I/O error") && !strings.Contains(got.Output, "No space left") {
			t.Errorf("32 MiB in %s: got %+v, want no space for them", dir, got)
		}
	}
}

// TestImageOutside checks that a sandbox of an image has volumes, an egress path and an
// authority like any other, with and without a warm sandbox.
func TestImageOutside(t *testing.T) {
	t.Parallel()
	r := newImageRoom(t)
	layers := busyboxImage(t, r, func(root string) error {
		certificates := filepath.Join(root, "etc", "ssl", "certs")
		return errors.Join(os.MkdirAll(certificates, 0o755), os.WriteFile(filepath.Join(certificates, "ca-certificates.crt"), []byte("of the image\n"), 0o644))
	})
	volume := newVolume(t)
	egress := origin(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello from", r.Host) }))
	for name, processes := range map[string]int{"warm": 0, "cold": 500} {
		o := engine.SandboxOptions{ID: name, Image: anImage, Layers: layers, Limits: engine.Limits{MaxProcesses: processes}, Volumes: []engine.Volume{{Dir: volume, Path: "/data/in"}}, Egress: egress}
		s := newSandbox(t, r, o)
		wantOutput(t, s, "user", "echo "+name+" > /data/in/"+name+" && cat /data/in/"+name, name)
		if r.Report().Egress == engine.EgressTransparent {
			wantOutput(t, s, "user", "wget -q -O - http://203.0.113.1/", "hello from 203.0.113.1")
		}
		freeze(t, s)
		thaw(t, s)
		wantOutput(t, s, "root", "cat /etc/ssl/certs/ca-certificates.crt", "of the image")
		o.ID, o.Authority = "trusting", []byte("of the authority\n")
		wantOutput(t, newSandbox(t, r, o), "user", "cat /etc/ssl/certs/ca-certificates.crt; cat /run/e2bctl/authority.pem; touch /run/e2bctl/x 2> /dev/null || echo no", "of the image\nof the authority\nof the authority\nno")
	}
}

func TestImageRefused(t *testing.T) {
	t.Parallel()
	full := newImageRoom(t)
	layers := busyboxImage(t, full, nil)
	for _, level := range []engine.Isolation{engine.Restricted, engine.None} {
		_, err := newRoomOn(t, level).NewSandbox(t.Context(), engine.SandboxOptions{ID: "weak", Image: anImage, Layers: layers})
		if !errors.Is(err, &engine.LackError{Feature: engine.Images}) || !strings.Contains(err.Error(), string(level)) {
			t.Errorf("at the level %s: got error %v, want %v", level, err, &engine.LackError{Feature: engine.Images})
		}
	}
	other := layer.Manifest{Layout: full.layout(), Trees: []string{"", "/usr"}}
	mixed := imageLayer(t, full, false, func(root string) error { return os.Mkdir(filepath.Join(root, "..", "1"), 0o755) })
	must.Do(t, errors.Join(os.Remove(layer.Name(mixed)), other.Write(mixed)))
	for want, o := range map[string]engine.SandboxOptions{
		"has no layers":                         {},
		"not of an image":                       {Layers: []string{layers[0], mixed}},
		"not on the layers that it was made on": {Layers: []string{mixed}},
		"/nowhere/layer":                        {Layers: []string{"/nowhere/layer"}},
	} {
		o.ID, o.Image = "refused", anImage
		s, err := full.NewSandbox(t.Context(), o)
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
}
