//go:build linux

package layer_test

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/layer"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pinned"
)

// TestUntarRefused checks that the error names an entry that cannot be unpacked, and that
// no file is made outside.
func TestUntarRefused(t *testing.T) {
	t.Parallel()
	loop := []entry{symlink("a", "b"), symlink("b", "a"), file("a/x", "")}
	deep := strings.Repeat("d/", 300)
	for name, tt := range map[string]struct {
		text []byte
		want string
	}{
		"out of the image":              {archive(t, file("../a", "")), "leads out of the image"},
		"out of it in the middle":       {archive(t, file("a/../../b", "")), "leads out of the image"},
		"a hard link out of it":         {archive(t, hardlink("a", "../../../etc/passwd")), "leads out of the image"},
		"a hard link to nothing":        {archive(t, hardlink("a", "/etc/passwd")), "no such file"},
		"a hard link to a directory":    {archive(t, dir("d", 0o755), hardlink("a", "d")), "operation not permitted"},
		"a hard link to the root":       {archive(t, hardlink("a", "/")), "link to the root"},
		"a hard link through a link":    {archive(t, symlink("l", "/etc"), hardlink("a", "l/passwd")), "no such file"},
		"a hard link to what it hides":  {archive(t, dir("d", 0o755), file("d/x", ""), hardlink("d", "d/x")), "no such file"},
		"a circle of links":             {archive(t, loop...), "too many levels of symbolic links"},
		"below a file":                  {archive(t, file("a", ""), file("a/b", "")), "not a directory"},
		"a long name":                   {archive(t, file(strings.Repeat("x", 256), "")), "file name too long"},
		"a long path":                   {archive(t, file(strings.Repeat("x/", 2100)+"x", "")), "file name too long"},
		"a long target":                 {archive(t, symlink("a", strings.Repeat("x", 5000))), "file name too long"},
		"a target of nothing":           {archive(t, symlink("a", "")), "no such file"},
		"many directories":              {archive(t, file(deep+"x", "")), "more than 256 directories deep"},
		"many directories behind links": {archive(t, dir(strings.Repeat("d/", 200), 0o755), symlink(strings.Repeat("d/", 200)+"l", strings.Repeat("e/", 200)), file(strings.Repeat("d/", 200)+"l/x", "")), "more than 256 directories deep"},
		"a root that is a link":         {archive(t, symlink("/", "/etc")), "the root is a directory"},
		"a removal of nothing":          {archive(t, file(".wh.", "")), "nothing that has a name"},
		"a removal of itself":           {archive(t, file("d/.wh..", "")), "nothing that has a name"},
		"a removal of what is above":    {archive(t, file("d/.wh...", "")), "nothing that has a name"},
		"an attribute of no program":    {archive(t, file("a", "").with("SCHILY.xattr.security.capability", "nonsense")), "security.capability"},
		"no tar":                        {bytes.Repeat([]byte("x"), 2000), "invalid tar header"},
		"a header cut off":              {archive(t, file("a", "1"))[:300], "unexpected EOF"},
		"a file cut off":                {archive(t, file("a", strings.Repeat("x", 5000)))[:2000], "unexpected EOF"},
		"a huge size":                   {hugeFile(t, false), "more than 64 GiB"},
		"a huge sparse size":            {hugeFile(t, true), "more than 64 GiB"},
		"another type":                  {archive(t, of('Z', "a")), "not supported"},
	} {
		in := closed(t)
		outside := filepath.Join(in, "outside")
		must.Do(t, os.Mkdir(filepath.Join(in, "1"), 0o700))
		err := layer.Untar(bytes.NewReader(tt.text), layer.TarOptions{To: open(t, filepath.Join(in, "1")), IDs: ids()})
		if !strings.Contains(fmt.Sprint(err), tt.want) || tt.want != "" && !errors.Is(err, layer.ErrImage) {
			t.Errorf("%s: got %v, want %s", name, err, tt.want)
		}
		if _, err := os.Lstat(outside); err == nil {
			t.Errorf("%s: it made a file outside", name)
		}
	}
}

// hugeFile returns an archive with a file whose stated size is larger than its data.
func hugeFile(t *testing.T, sparse bool) []byte {
	t.Helper()
	text := archive(t, of(tar.TypeReg, "f"))
	header := text[:512]
	copy(header[257:], "ustar  \x00")
	size := header[124:136]
	if sparse { // the format of old GNU tars: no extents, and the size at the end
		header[156] = tar.TypeGNUSparse
		copy(header[386:], "77777777777\x00") // one extent at the end
		copy(header[398:], "00000000000\x00") // with a length of 0
		size = header[483:495]                // the real size
		header[482] = 0
	}
	clear(size)
	size[0] = 0x80
	binary.BigEndian.PutUint64(size[4:], 1<<40)
	if !sparse {
		return checksummed(text)
	}
	copy(header[386:398], size)
	return checksummed(text)
}

func checksummed(text []byte) []byte {
	copy(text[148:156], "        ")
	sum := 0
	for _, b := range text[:512] {
		sum += int(b)
	}
	copy(text[148:], fmt.Sprintf("%06o\x00 ", sum))
	return text
}

// TestUntarAttributes checks that files have the owners, times and attributes of the
// archive, as far as a sandbox can have them.
func TestUntarAttributes(t *testing.T) {
	t.Parallel()
	if ids() == 1 {
		t.Skip("this user can give files to nobody")
	}
	capability := "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" // cap_net_bind_service
	in := closed(t)
	attributed := file("attributed", "").with("SCHILY.xattr.user.kept", "1")
	attributed.h.PAXRecords["SCHILY.xattr.user.overlay.opaque"] = "y"
	attributed.h.PAXRecords["SCHILY.xattr.trusted.overlay.opaque"] = "y"
	attributed.h.PAXRecords["SCHILY.xattr.security.selinux"] = "x"
	marked := dir("marked", 0o755).with("SCHILY.xattr.user.overlay.opaque", "y")
	dirs, err := stack(t, in, archive(t,
		file("own", "").owned(65535, 65535, 0o6755), file("foreign", "").owned(65536, 65536, 0o6755), file("group", "").owned(1, 1<<20, 0o6755),
		dir("foreigndir", 0o755).owned(1<<20, 3, 0o2755), symlink("link", "x").owned(5, 6, 0o777), attributed, marked,
		file("program", "x").owned(1, 1, 0o755).with("SCHILY.xattr.security.capability", capability),
		dir("d", 0o755), file("d/late", ""), of(tar.TypeFifo, "fifo").owned(7, 8, 0o604),
	))
	must.Do(t, err)
	want := []string{
		". 40755 0:0 0", "attributed 100644 0:0 \"\"", "d 40755 0:0", "d/late 100644 0:0 \"\"", "fifo 10604 7:8", "foreign 100755 65534:65534 \"\"", "foreigndir 42755 65534:3", "group 104755 1:65534 \"\"",
		"link 120777 5:6 -> x", "marked 40755 0:0", "own 106755 65535:65535 \"\"", "program 100755 1:1 \"x\"",
	}
	for i := range want[1:] {
		want[i+1] += fmt.Sprintf(" %d", stamp.Unix())
	}
	if diff := cmp.Diff(want, list(t, dirs[0].Name())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, want := range map[string]string{"attributed": "user.kept", "marked": "", "program": "security.capability"} {
		list := make([]byte, 1000)
		n, err := unix.Llistxattr(filepath.Join(dirs[0].Name(), name), list)
		if got := strings.TrimRight(string(list[:max(n, 0)]), "\x00"); err != nil || got != want {
			t.Errorf("%s: got attributes %q, %v, want %q", name, got, err, want)
		}
	}
}

// TestUntarSparse checks that zeros take no space, and are still read.
func TestUntarSparse(t *testing.T) {
	t.Parallel()
	in := closed(t)
	text := strings.Repeat("\x00", 3<<20) + "x" + strings.Repeat("\x00", 3<<20)
	dirs, err := stack(t, in, archive(t, file("sparse", text), file("zeros", text[:2<<20]), file("little", "\x00")))
	must.Do(t, err)
	for name, want := range map[string]string{"sparse": text, "zeros": text[:2<<20], "little": "\x00"} {
		at := filepath.Join(dirs[0].Name(), name)
		got, err := os.ReadFile(at)
		if err != nil || string(got) != want {
			t.Errorf("%s: got %d bytes, %v, want %d", name, len(got), err, len(want))
		}
		var stat unix.Stat_t
		if err := unix.Stat(at, &stat); err != nil || stat.Blocks*512 > 256<<10 {
			t.Errorf("%s: it takes %d bytes, %v, want a hole", name, stat.Blocks*512, err)
		}
	}
}

// TestUntarManyEntries checks that any number of empty entries is unpacked.
func TestUntarManyEntries(t *testing.T) {
	t.Parallel()
	var entries []entry
	for i := range 65_535 {
		entries = append(entries, file(fmt.Sprintf("%d/%d", i%1000, i), ""))
	}
	dirs, err := stack(t, closed(t), archive(t, entries...))
	must.Do(t, err)
	n := 0
	err = filepath.WalkDir(dirs[0].Name(), func(_ string, d fs.DirEntry, err error) error {
		if !d.IsDir() {
			n++
		}
		return err
	})
	if err != nil || n != len(entries) {
		t.Errorf("got %d files, %v, want %d", n, err, len(entries))
	}
}

// TestUntarLikeTar checks that Untar makes the same files as tar from an archive that tar
// can unpack.
func TestUntarLikeTar(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("tar"); err != nil {
		t.Skip(err)
	}
	long := strings.Repeat("long/", 30) + strings.Repeat("x", 200)
	text := archive(t,
		dir("./", 0o755), dir("bin", 0o755), file("bin/sh", "#!").owned(0, 0, 0o4755), hardlink("bin/ash", "bin/sh"), symlink("sbin", "bin"), dir("etc", 0o700), file("etc/a", strings.Repeat("a", 1<<20)),
		file(long, "1"), dir(path.Dir(long), 0o711), hardlink("zlong", long), file("ä\xff", "2"), of(tar.TypeFifo, "fifo"), dir("tmp", 0o1777), file("tmp/x", "").owned(1000, 1000, 0o2640), symlink("dangling", "/nowhere/../x"),
	)
	in := closed(t)
	dirs, err := stack(t, in, text)
	must.Do(t, err)
	to := filepath.Join(in, "tar")
	must.Do(t, os.Mkdir(to, 0o700))
	cmd := exec.Command("tar", "-xpf", "-", "-C", to)
	cmd.Stdin = bytes.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	implicit := func(lines []string) []string { // these have the current time
		return slices.DeleteFunc(lines, func(l string) bool {
			return strings.HasPrefix(l, "long") && !strings.Contains(l, "xxx") && !strings.Contains(l, "40711")
		})
	}
	if diff := cmp.Diff(implicit(list(t, to)), implicit(list(t, dirs[0].Name()))); diff != "" {
		t.Errorf("(-tar +here):\n%s", diff)
	}
	sameInode(t, dirs[0].Name(), "bin/sh", "bin/ash")
	sameInode(t, dirs[0].Name(), long, "zlong")
}

func sameInode(t *testing.T, root, a, b string) {
	t.Helper()
	x, err := os.Stat(filepath.Join(root, a))
	must.Do(t, err)
	y, err := os.Stat(filepath.Join(root, b))
	if err != nil || !os.SameFile(x, y) {
		t.Errorf("%s and %s are two files, %v", a, b, err)
	}
}

// TestUntarOverlay checks that the kernel's overlay of layers agrees with the model of
// these tests.
func TestUntarOverlay(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("this user cannot mount")
	}
	in := closed(t)
	for seed := range uint64(20) {
		at := filepath.Join(in, fmt.Sprint(seed))
		must.Do(t, os.Mkdir(at, 0o700))
		dirs, err := stack(t, at, randomLayers(t, seed)...)
		must.Do(t, err)
		var names []string
		for _, d := range dirs {
			names = append(names, d.Name())
		}
		to := filepath.Join(at, "overlay")
		must.Do(t, os.Mkdir(to, 0o700))
		if len(names) == 1 {
			names = append(names, to)
		}
		if err := unix.Mount("overlay", to, "overlay", unix.MS_RDONLY, "userxattr,lowerdir="+strings.Join(names, ":")); err != nil {
			pinned.Skip(t, "no overlay of directories in %s: %v", at, err)
		}
		got := brief(list(t, to))
		if err := unix.Unmount(to, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(brief(shown(t, at, dirs)), got); diff != "" {
			t.Errorf("seed %d (-merged +overlay):\n%s", seed, diff)
		}
	}
}

// TestUntarRandom checks that random layers show the files that a model computes for each
// layer above those below it.
func TestUntarRandom(t *testing.T) {
	t.Parallel()
	in := closed(t)
	for seed := range uint64(150) {
		layers, want := randomLayersAndModel(t, seed)
		at := filepath.Join(in, fmt.Sprint(seed))
		must.Do(t, os.Mkdir(at, 0o700))
		dirs, err := stack(t, at, layers...)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		got := brief(shown(t, at, dirs))
		slices.Sort(got)
		if diff := cmp.Diff(want.lines(), got); diff != "" {
			t.Fatalf("seed %d (-model +got):\n%s", seed, diff)
		}
	}
}

func randomLayers(t *testing.T, seed uint64) [][]byte {
	layers, _ := randomLayersAndModel(t, seed)
	return layers
}

// model is the content of an image: descriptions of the files by path.
type model map[string]string

func (m model) lines() (lines []string) {
	for name, what := range m {
		lines = append(lines, name+" "+what)
	}
	slices.Sort(lines)
	return lines
}

func (m model) isDir(name string) bool { return strings.HasPrefix(m[name], "4") }

// remove removes a path with all files below it.
func (m model) remove(name string) {
	for other := range m {
		if other == name || strings.HasPrefix(other, name+"/") {
			delete(m, other)
		}
	}
}

// parents makes the directories of a path, and reports whether that is possible.
func (m model) parents(name string) bool {
	at := path.Dir(name)
	if at == "." {
		return true
	}
	if !m.parents(at) {
		return false
	}
	if _, found := m[at]; !found {
		m[at] = "40755"
	}
	return m.isDir(at)
}

// randomLayersAndModel makes layers in the order in which layers are written: first the
// removals, then the new files, both above all layers below.
func randomLayersAndModel(t *testing.T, seed uint64) (layers [][]byte, m model) {
	r := rand.New(rand.NewPCG(seed, 1))
	m = model{}
	random := func() string {
		parts := make([]string, 1+r.IntN(3))
		for i := range parts {
			parts[i] = string("abc"[r.IntN(3)])
		}
		return strings.Join(parts, "/")
	}
	for range 1 + r.IntN(5) {
		var entries []entry
		var removed []string
		for range r.IntN(4) {
			name := random()
			made := func(other string) bool { return other == name || strings.HasPrefix(other, name+"/") } // a removed path is name or below it
			if !m.clone().parents(name) || slices.ContainsFunc(removed, made) {
				continue
			}
			removed = append(removed, name)
			m.parents(name)
			if r.IntN(3) == 0 && m.isDir(name) {
				what := m[name]
				m.remove(name)
				m[name] = what
				entries = append(entries, file(name+"/.wh..wh..opq", ""))
				continue
			}
			m.remove(name)
			entries = append(entries, file(path.Join(path.Dir(name), ".wh."+path.Base(name)), ""))
		}
		for range r.IntN(8) {
			name := random()
			if !m.clone().parents(name) {
				continue
			}
			m.parents(name)
			switch mode := int64(0o700 + r.IntN(8)*9); r.IntN(4) {
			case 0:
				if !m.isDir(name) {
					m.remove(name)
				}
				m[name] = fmt.Sprintf("4%04o", mode)
				entries = append(entries, dir(name, mode))
			case 1:
				m.remove(name)
				m[name] = "120777 -> x"
				entries = append(entries, symlink(name, "x"))
			case 2:
				target := random()
				if what, found := m[target]; found && strings.HasPrefix(what, "100") && !strings.HasPrefix(target, name+"/") && m.clone().parents(target) {
					if target != name {
						m.remove(name)
						m[name] = what
					}
					entries = append(entries, hardlink(name, target))
					continue
				}
				fallthrough
			default:
				text := fmt.Sprint(r.IntN(1000))
				m.remove(name)
				m[name] = fmt.Sprintf("10%04o %q", mode, text)
				entries = append(entries, file(name, text).owned(0, 0, mode))
			}
		}
		layers = append(layers, archive(t, entries...))
	}
	return layers, m
}

func (m model) clone() model {
	c := model{}
	for name, what := range m {
		c[name] = what
	}
	return c
}

// FuzzUntar checks that no archive makes or changes a file outside of its directory, and
// that the directory contains only files, directories, links, pipes and whiteouts.
func FuzzUntar(f *testing.F) {
	f.Add(archive(f, file("a", "1"), symlink("l", "../../outside"), file("l/x", "2")), archive(f, file(".wh.a", ""), hardlink("b", "l")))
	f.Add(archive(f, dir("d", 0), symlink("d/l", "/"), hardlink("h", "d/l"), of(tar.TypeChar, "c")), archive(f, file("d/.wh..wh..opq", ""), file("d/l/x", "")))
	f.Add(archive(f, file("../outside", "1")), archive(f, file("a", strings.Repeat("\x00", 1000))))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		if len(first) > 1<<20 || len(second) > 1<<20 {
			return
		}
		in := t.TempDir()
		if os.Geteuid() != 0 {
			in = closed(t)
		}
		outside := filepath.Join(in, "outside")
		must.Do(t, os.WriteFile(outside, []byte("outside"), 0o600))
		var below []*os.File
		for i, text := range [][]byte{first, second} {
			at := filepath.Join(in, fmt.Sprint(i))
			must.Do(t, os.Mkdir(at, 0o700))
			to := open(t, at)
			if err := layer.Untar(bytes.NewReader(text), layer.TarOptions{To: to, Below: below, IDs: 1}); err != nil {
				break
			}
			below = []*os.File{to}
			check(t, at)
		}
		entries, err := os.ReadDir(in)
		must.Do(t, err)
		for _, e := range entries {
			if e.Name() != "0" && e.Name() != "1" && e.Name() != "outside" {
				t.Errorf("it made %s outside", e.Name())
			}
		}
		if text, err := os.ReadFile(outside); err != nil || string(text) != "outside" {
			t.Errorf("it changed what is outside: %q, %v", text, err)
		}
	})
}

func check(t *testing.T, root string) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, _ fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrPermission) {
			return nil
		}
		var stat unix.Stat_t
		if unix.Lstat(name, &stat) != nil { // its path is too long
			return nil //nolint:nilerr // it cannot be described
		}
		switch kind := stat.Mode & unix.S_IFMT; {
		case kind == unix.S_IFREG, kind == unix.S_IFDIR, kind == unix.S_IFLNK, kind == unix.S_IFIFO:
		case kind == unix.S_IFCHR && stat.Rdev == 0:
		default:
			t.Errorf("%s is of kind %o", name, kind)
		}
		if int(stat.Uid) != os.Geteuid() {
			t.Errorf("%s is of %d", name, stat.Uid)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
