//go:build linux

package layer

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestMerge checks the files, whiteouts and marks of two layers that become one, above other layers and
// without any.
func TestMerge(t *testing.T) {
	t.Parallel()
	upper, lower := t.TempDir(), t.TempDir()
	for _, name := range []string{
		upper + "/e/x", upper + "/d/u", upper + "/f/of", upper + "/over/file", upper + "/shown",
		lower + "/a", lower + "/shown", lower + "/e/y", lower + "/d/hidden", lower + "/over", lower + "/under",
	} {
		must.Do(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must.Do(t, os.WriteFile(name, []byte(name), 0o600))
	}
	for _, name := range []string{"a", "d/w", "f/gone"} {
		must.Do(t, unix.Mknod(filepath.Join(upper, name), unix.S_IFCHR, 0))
	}
	for i := range 20 { // some are listed after the whiteout, whatever the order
		must.Do(t, os.WriteFile(filepath.Join(upper, "f", fmt.Sprint(i)), nil, 0o600))
	}
	d := openTest(t, filepath.Join(upper, "d"))
	must.Do(t, setOpaque(d))
	want := map[string]string{
		".": "directory", "d": "directory", "d/u": upper + "/d/u", "e": "directory", "e/x": upper + "/e/x", "e/y": lower + "/e/y", "f": "directory",
		"f/of": upper + "/f/of", "over": "directory", "over/file": upper + "/over/file", "shown": upper + "/shown", "under": lower + "/under",
	}
	for i := range 20 {
		want[fmt.Sprint("f/", i)] = ""
	}
	if os.Geteuid() == 0 { // a device is no whiteout
		must.Do(t, unix.Mknod(filepath.Join(upper, "device"), unix.S_IFCHR, int(unix.Mkdev(1, 3))))
		want["device"] = "device"
	}
	for _, below := range []bool{false, true} {
		if below {
			want["a"], want["f/gone"] = "whiteout", "whiteout"
			want["."], want["f"] = "directory with whiteouts", "directory with whiteouts"
			want["d"], want["over"] = "opaque directory", "opaque directory"
		}
		to := t.TempDir()
		must.Do(t, Merge(openTest(t, to), []*os.File{openTest(t, upper), openTest(t, lower)}, below))
		if diff := cmp.Diff(want, described(t, to)); diff != "" {
			t.Errorf("with layers below: %v (-want +got):\n%s", below, diff)
		}
	}
}

// described returns the kind of each directory and whiteout in dir, and the content of each file.
func described(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	must.Do(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		switch {
		case info.IsDir():
			all[name], err = directory(path)
			return err
		case info.Mode()&fs.ModeCharDevice != 0:
			all[name] = "whiteout"
			if info.Sys().(*syscall.Stat_t).Rdev != 0 {
				all[name] = "device"
			}
			return nil
		}
		content, err := os.ReadFile(path)
		all[name] = string(content)
		return err
	}))
	return all
}

// directory returns the kind of a directory.
func directory(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	opaque, err := isOpaque(f)
	if opaque {
		return "opaque directory", err
	}
	if _, marked := unix.Lgetxattr(path, originAttr, nil); marked == nil {
		return "directory with whiteouts", err
	}
	return "directory", err
}
