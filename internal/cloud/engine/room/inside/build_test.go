//go:build linux

package inside

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

// apart calls do on a thread that has mounts, a network, a directory and a umask of its own, and ends
// afterwards. do must not end the test.
func apart(t *testing.T, do func() error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and not unlocked, so that the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWNET)
		if err == nil {
			unix.Umask(0)
			err = do()
		}
		done <- err
	}()
	if err := <-done; errors.Is(err, unix.EPERM) && os.Getenv("CI") != "true" {
		t.Skip("this root may not mount")
	} else if err != nil {
		t.Error(err)
	}
}

// shows checks that a file has this text. If writable is false, nobody can write to it.
func shows(path, text string, writable bool) error {
	got, err := os.ReadFile(path)
	if err == nil && string(got) != text {
		err = fmt.Errorf("%s has the text %.200q, want %.200q", path, got, text)
	}
	f, refused := os.OpenFile(path, os.O_WRONLY, 0)
	if refused == nil {
		f.Close()
	}
	if writable && refused != nil || !writable && !errors.Is(refused, unix.EROFS) {
		err = errors.Join(err, fmt.Errorf("%s for writing: got error %w, want it writable: %v", path, refused, writable))
	}
	return err
}

// buildSpec returns the description of a file system that has each kind of part, and adds the files that
// are passed for it.
func buildSpec(t *testing.T, files *wire.Files) *wire.InitSpec {
	t.Helper()
	dir := t.TempDir()
	tree, volume, fixed := dir+"/tree", dir+"/volume", dir+"/fixed"
	for name, text := range map[string]string{tree + "/file": "text", tree + "/secret": "x", tree + "/in/secret": "x", volume + "/a": "of the volume", fixed + "/a": "fixed"} {
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)))
	}
	must.Do(t, errors.Join(os.Chmod(tree, 0o700), os.WriteFile(dir+"/list", []byte(tree+"/secret\x00"+tree+"/in/secret\x00/other\x00"), 0o600)))
	list, err := os.Open(dir + "/list")
	must.Do(t, err)
	files.Add(wire.FilePrivate, list)
	same, err := os.Open(fixed)
	must.Do(t, err)
	files.Add(wire.FileVolume.Numbered(1), same)
	return &wire.InitSpec{
		Runner: wire.Runner{Ranged: true}, Path: "/bin", Trees: []string{tree}, Mounted: []bool{false}, Private: true, Links: map[string]string{"/link": "etc"},
		Disk: 32 << 20, Memory: 1 << 30, Processors: []int{0}, Authority: []byte("certificate\n"),
		Volumes: []wire.Volume{{Dir: volume, Path: "/data/volume"}, {Dir: fixed, Path: "/data/fixed/", ReadOnly: true, Opened: true}},
	}
}

// TestBuild builds the file system of a sandbox, and checks each of its parts.
func TestBuild(t *testing.T) {
	t.Parallel()
	var files wire.Files
	spec := buildSpec(t, &files)
	tree := spec.Trees[0]
	dir := filepath.Dir(tree)
	cpuinfo, err := os.ReadFile("/proc/cpuinfo")
	must.Do(t, err)
	apart(t, func() error {
		b, err := build(namespaces{}, spec, &files)
		if err != nil {
			return err
		}
		defer b.files.Close()
		if here, err := os.Getwd(); err != nil || here != "/" || exists(dir+"/list") || len(b.notes)+len(b.lost) > 0 {
			t.Errorf("it is in %s, the machine's files are visible: %v, and the notes are %v (%v)", here, exists(dir+"/list"), b.notes, err)
		}
		problems := []error{
			shows(tree+"/file", "text", true), shows("/data/volume/a", "of the volume", true), shows("/data/fixed/a", "fixed", false),
			shows("/proc/meminfo", string(memoryText(1<<30, cgroup.Memory{})), false), shows("/proc/cpuinfo", string(onlyProcessors(cpuinfo, []int{0})), false),
			shows("/sys/devices/system/cpu/online", "0\n", true), shows(guest.AuthorityFile, "certificate\n", false), shows(guest.BundleFile, "certificate\n", false),
			lacks(tree+"/secret", tree+"/in/secret"), mounted("/data/volume", wire.VolumeAttributes), mounted("/data/fixed", wire.VolumeAttributes), covered(),
			sized(32<<20, b), terminals(),
		}
		info, err := os.Stat(tree)
		if err != nil || info.Mode().Perm() != 0o755 {
			problems = append(problems, fmt.Errorf("the tree has the mode %v, want that everybody may read it: %w", info.Mode(), err))
		}
		_, err = b.meminfo.WriteAt([]byte("MemTotal:   5"), 0)
		text, failed := os.ReadFile("/proc/meminfo")
		if !strings.HasPrefix(string(text), "MemTotal:   5") {
			problems = append(problems, fmt.Errorf("a new text is not shown: %.20q", text))
		}
		return errors.Join(append(problems, err, failed, b.meminfo.Close(), b.proc.Close())...)
	})
	if text, err := os.ReadFile(tree + "/secret"); err != nil || string(text) != "x" {
		t.Errorf("outside, a hidden file has the text %q, error %v", text, err)
	}
}

// lacks checks that there are no such files.
func lacks(paths ...string) error {
	for _, path := range paths {
		if exists(path) {
			return fmt.Errorf("%s is visible", path)
		}
	}
	return nil
}

// mounted checks that something with these attributes is mounted at a path.
func mounted(path string, attributes uint64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return err
	}
	const nosuid, nodev = 2, 4 // ST_NOSUID and ST_NODEV
	if got := fs.Flags & (nosuid | nodev); got != nosuid|nodev || attributes&(unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV) == 0 {
		return fmt.Errorf("%s is mounted with the flags %#x", path, fs.Flags)
	}
	return nil
}

// covered checks that files of /proc that belong to the machine are empty or read-only.
func covered() error {
	for _, name := range procHidden {
		path := "/proc/" + name
		info, err := os.Stat(path)
		if err != nil {
			continue // this kernel has none
		}
		if entries, err := os.ReadDir(path); info.IsDir() && (err != nil || len(entries) > 0) {
			return fmt.Errorf("%s shows %v (%w)", path, entries, err)
		}
		if !info.IsDir() && info.Mode()&os.ModeCharDevice == 0 {
			return fmt.Errorf("%s has the mode %v, want that of /dev/null", path, info.Mode())
		}
	}
	if err := os.WriteFile("/proc/sys/kernel/hostname", nil, 0); !errors.Is(err, unix.EROFS) {
		return fmt.Errorf("a file of /proc/sys is written with error %w, want %w", err, unix.EROFS)
	}
	return nil
}

// sized checks the size of the disk, and changes it.
func sized(size int64, b *built) error {
	for _, size := range []int64{size, 2 * size} {
		var inside unix.Statfs_t
		if err := errors.Join(resizeDisk(b.files, size), unix.Fstatfs(int(b.files.Fd()), &inside)); err != nil {
			return err
		}
		if got := int64(inside.Blocks) * inside.Bsize; got != size || int64(inside.Files) != size>>10 {
			return fmt.Errorf("the disk has %d bytes and %d inodes, want %d bytes", got, inside.Files, size)
		}
	}
	if err := resizeDisk(b.files, 4096); !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("a disk that is smaller than its use: got error %w", err)
	}
	return nil
}

// terminals checks that the devices are those of the machine, and the terminals the sandbox's own.
func terminals() error {
	for _, name := range guest.DeviceNames {
		if info, err := os.Stat("/dev/" + name); err != nil || info.Mode()&os.ModeCharDevice == 0 {
			return fmt.Errorf("/dev/%s is no device: %w", name, err)
		}
	}
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer master.Close()
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		return err
	}
	var stat unix.Stat_t
	if err := unix.Stat("/dev/pts/"+strconv.Itoa(number), &stat); err != nil || number != 0 || stat.Gid != 5 || stat.Mode&0o777 != 0o620 {
		return fmt.Errorf("the terminal %d belongs to group %d with the mode %o: %w", number, stat.Gid, stat.Mode, err)
	}
	return nil
}

// layeredSpec returns the description of a file system of two layers, and adds the files that are passed
// for it.
func layeredSpec(t *testing.T, image bool, files *wire.Files) *wire.InitSpec {
	t.Helper()
	dir := t.TempDir()
	tree := dir + "/tree"
	for name, text := range map[string]string{
		"tree/file": "of the tree", "tree/secret": "x", "low/0/etc/hosts": "old", "low/0/a": "low", "low/0/b": "low", "low/1/file": "of the layer", "high/0/b": "high", "low/2/kept": "lost",
	} {
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(dir+"/"+name), 0o755), os.WriteFile(dir+"/"+name, []byte(text), 0o644)))
	}
	spec := &wire.InitSpec{
		Runner: wire.Runner{Ranged: true}, Private: !image, Image: image, Disk: 32 << 20,
		Layers: []wire.Layer{{Dir: dir + "/low", Trees: []string{"", tree, "/lost"}}, {Dir: dir + "/high", Trees: []string{""}}},
	}
	if image {
		return spec
	}
	must.Do(t, os.WriteFile(dir+"/list", []byte(tree+"/secret\x00"), 0o600))
	list, err := os.Open(dir + "/list")
	must.Do(t, err)
	files.Add(wire.FilePrivate, list)
	spec.Trees, spec.Mounted = []string{tree}, []bool{false}
	return spec
}

// TestBuildOnLayers builds a file system of layers, and checks which of their files is visible.
func TestBuildOnLayers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, image := range []bool{false, true} {
		var files wire.Files
		spec := layeredSpec(t, image, &files)
		low := spec.Layers[0].Dir
		tree := filepath.Dir(low) + "/tree"
		apart(t, func() error {
			b, err := build(namespaces{}, spec, &files)
			if err != nil {
				return err
			}
			defer b.files.Close()
			lost, passwd := 1, exists("/etc/passwd")
			if image {
				lost = 2
			}
			if len(b.lost) != lost || len(b.notes) != lost || passwd != image {
				t.Errorf("image %v: got the lost trees %v, the notes %v, and accounts: %v", image, b.lost, b.notes, passwd)
			}
			var stat unix.Stat_t
			if err := unix.Stat(guest.UserHome, &stat); image && (err != nil || stat.Uid != protocol.UserID) {
				t.Errorf("the home of user belongs to %d, error %v", stat.Uid, err)
			}
			return errors.Join(shows("/a", "low", true), shows("/b", "high", true), shows(tree+"/file", "of the layer", true), shows("/lost/kept", "lost", true),
				shows("/etc/hosts", "", true), lacks(tree+"/secret"), terminals())
		})
		must.Do(t, errors.Join(shows(low+"/0/a", "low", true), shows(low+"/1/file", "of the layer", true)))
	}
	must.Do(t, os.Mkdir(dir+"/made", 0o755))
	apart(t, func() error {
		if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("tmpfs", dir+"/made", "tmpfs", 0, "")); err != nil {
			return err
		}
		made, err := openLayerDirectory(dir+"/made", nil)
		if err != nil {
			return err
		}
		return errors.Join(tryLayers(made, true), made.Close(), shows("root/kept", "changed", true))
	})
	if err := mountOverlay("none", make([]string, 1<<12), "", ""); err == nil || !strings.Contains(err.Error(), "4096 layers are more") {
		t.Errorf("more layers than fit: got error %v", err)
	}
}
