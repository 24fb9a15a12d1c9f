//go:build linux

package layer_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/layer"
	"github.com/e2bctl/e2bctl/internal/must"
)

func TestMain(m *testing.M) {
	unix.Umask(0) // as in the process that unpacks
	goleak.VerifyTestMain(m)
}

var stamp = time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)

// The following make entries of archives. Fields that are not given have ordinary values.
func file(name, text string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}, text}
}
func dir(name string, mode int64) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: mode}, ""}
}
func symlink(name, target string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target, Mode: 0o777}, ""}
}
func hardlink(name, target string) entry {
	return entry{tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: target, Mode: 0o644}, ""}
}
func of(kind byte, name string) entry {
	return entry{tar.Header{Name: name, Typeflag: kind, Mode: 0o600}, ""}
}
func (e entry) owned(uid, gid int, mode int64) entry {
	e.h.Uid, e.h.Gid, e.h.Mode = uid, gid, mode
	return e
}
func (e entry) with(name, value string) entry {
	e.h.PAXRecords = map[string]string{name: value}
	return e
}

type entry struct {
	h    tar.Header
	text string
}

func archive(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		e.h.Size = int64(len(e.text))
		if e.h.ModTime.IsZero() && e.h.Typeflag != tar.TypeXGlobalHeader {
			e.h.ModTime = stamp
		}
		must.Do(t, w.WriteHeader(&e.h))
		_, err := io.WriteString(w, e.text)
		must.Do(t, err)
	}
	must.Do(t, w.Close())
	return b.Bytes()
}

// ids is the number of ids to which this process can give files.
func ids() int {
	if os.Geteuid() == 0 {
		return 1 << 16
	}
	return 1
}

// closed makes a directory whose content may lock out its owner.
func closed(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() {
		if out, err := exec.Command("chmod", "-R", "u+rwx", dir).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	return dir
}

func open(t testing.TB, name string) *os.File {
	t.Helper()
	f, err := os.Open(name)
	must.Do(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// stack unpacks archives above each other, and returns the directories, highest first.
func stack(t testing.TB, in string, archives ...[]byte) (dirs []*os.File, err error) {
	t.Helper()
	for i, a := range archives {
		at := filepath.Join(in, fmt.Sprint(i))
		must.Do(t, os.Mkdir(at, 0o700))
		to := open(t, at)
		if err := layer.Untar(bytes.NewReader(a), layer.TarOptions{To: to, Below: dirs, IDs: ids()}); err != nil {
			return nil, err
		}
		dirs = slices.Insert(dirs, 0, to)
	}
	return dirs, nil
}

// shown lists the files of layers as sandboxes see them.
func shown(t testing.TB, in string, dirs []*os.File) []string {
	t.Helper()
	all := filepath.Join(in, "all")
	must.Do(t, os.Mkdir(all, 0o700))
	must.Do(t, layer.Merge(open(t, all), dirs, false))
	return list(t, all)
}

// list describes each file by its type, mode, owner and content. With one id there is no
// owner.
func list(t testing.TB, root string) (lines []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var stat unix.Stat_t
		if err := unix.Lstat(name, &stat); err != nil {
			return err
		}
		at, _ := filepath.Rel(root, name)
		line := fmt.Sprintf("%s %o", at, stat.Mode)
		if ids() > 1 {
			line += fmt.Sprintf(" %d:%d", stat.Uid, stat.Gid)
		}
		switch stat.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %q", text)
		case unix.S_IFLNK:
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			line += " -> " + target
		}
		lines = append(lines, fmt.Sprintf("%s %d", line, stat.Mtim.Sec))
		return nil
	})
	must.Do(t, err)
	return lines
}

// brief returns the lines of list without the root, owner and time.
func brief(lines []string) (names []string) {
	for _, line := range lines {
		f := strings.Fields(line)
		if ids() > 1 {
			f = slices.Delete(f, 2, 3)
		}
		if f = f[:len(f)-1]; f[0] != "." {
			names = append(names, strings.Join(f, " "))
		}
	}
	return names
}

func TestUntar(t *testing.T) {
	t.Parallel()
	whiteout := func(name string) entry { return file(name, "") }
	for name, tt := range map[string]struct {
		layers [][]entry
		want   []string
	}{
		"a removed file":                          {[][]entry{{file("a", "1"), file("b", "2")}, {whiteout(".wh.a")}}, []string{`b 100644 "2"`}},
		"through an absolute link":                {[][]entry{{dir("d", 0o755), symlink("a/l", "/d"), file("a/l/x", "1")}}, []string{"a 40755", "a/l 120777 -> /d", "d 40755", `d/x 100644 "1"`}},
		"a removed directory":                     {[][]entry{{file("d/e/f", "1")}, {whiteout("d/.wh.e")}}, []string{"d 40755"}},
		"removed what is not there":               {[][]entry{{file("a", "1")}, {whiteout(".wh.b"), whiteout("d/.wh.e")}}, []string{`a 100644 "1"`, "d 40755"}},
		"removed in the lowest layer":             {[][]entry{{whiteout(".wh.b"), file("a", "1")}}, []string{`a 100644 "1"`}},
		"removed twice":                           {[][]entry{{file("a", "1")}, {whiteout(".wh.a"), whiteout(".wh.a")}}, nil},
		"removed as a hard link":                  {[][]entry{{file("a", "1"), file("b", "1")}, {whiteout(".wh.a"), hardlink(".wh.b", ".wh.a")}}, nil},
		"removed as a directory":                  {[][]entry{{file("a", "1")}, {dir(".wh.a", 0o755)}}, nil},
		"removed and made":                        {[][]entry{{file("a/b", "1")}, {whiteout(".wh.a"), file("a/c", "2")}}, []string{"a 40755", `a/c 100644 "2"`}},
		"made and removed":                        {[][]entry{{file("a/b", "1")}, {file("a/c", "2"), whiteout(".wh.a")}}, []string{"a 40755", `a/c 100644 "2"`}},
		"removed and made as a file":              {[][]entry{{file("a/b", "1")}, {whiteout(".wh.a"), file("a", "2")}}, []string{`a 100644 "2"`}},
		"made as a file and removed":              {[][]entry{{file("a/b", "1")}, {file("a", "2"), whiteout(".wh.a")}}, []string{`a 100644 "2"`}},
		"made again above a removal":              {[][]entry{{file("a/b", "1")}, {whiteout(".wh.a")}, {file("a/c", "2")}}, []string{"a 40755", `a/c 100644 "2"`}},
		"an opaque directory":                     {[][]entry{{dir("d", 0o700), file("d/a", "1")}, {file("d/b", "2"), whiteout("d/.wh..wh..opq"), file("d/c", "3")}}, []string{"d 40700", `d/b 100644 "2"`, `d/c 100644 "3"`}},
		"an opaque root":                          {[][]entry{{file("d/a", "1"), file("x", "1")}, {file("d/b", "2"), whiteout(".wh..wh..opq")}}, []string{"d 40755", `d/b 100644 "2"`}},
		"below an opaque root":                    {[][]entry{{dir("d", 0o700), file("d/a", "1"), file("x", "1")}, {whiteout(".wh..wh..opq"), file("d/b", "2")}}, []string{"d 40755", `d/b 100644 "2"`}},
		"what AUFS notes":                         {[][]entry{{file("a", "1"), whiteout(".wh..wh.aufs"), whiteout(".wh..wh.plnk/1"), dir(".wh..wh.orph", 0o700)}}, []string{`a 100644 "1"`}},
		"a directory that is not named":           {[][]entry{{dir("tmp", 0o1777).owned(5, 6, 0o1777)}, {file("tmp/x", "1")}}, []string{"tmp 41777", `tmp/x 100644 "1"`}},
		"one two layers below":                    {[][]entry{{dir("a", 0o750), dir("a/b", 0o2700)}, {file("other", "")}, {file("a/b/c", "1")}}, []string{"a 40750", "a/b 42700", `a/b/c 100644 "1"`, `other 100644 ""`}},
		"one that is not named, then is":          {[][]entry{{dir("a", 0o1777)}, {file("a/x", "1"), dir("a", 0o700)}}, []string{"a 40700", `a/x 100644 "1"`}},
		"a directory over a file":                 {[][]entry{{file("a", "1")}, {dir("a", 0o700), file("a/b", "2")}}, []string{"a 40700", `a/b 100644 "2"`}},
		"a file over a directory":                 {[][]entry{{file("a/b", "1")}, {file("a", "2")}}, []string{`a 100644 "2"`}},
		"a directory over a file over one":        {[][]entry{{file("a/b", "1")}, {file("a", "2")}, {file("a2", ""), dir("a", 0o755)}}, []string{"a 40755", `a2 100644 ""`}},
		"all three in one layer":                  {[][]entry{{file("a/b", "1")}, {dir("a", 0o755), file("a", "2"), dir("a", 0o755)}}, []string{"a 40755"}},
		"a directory with files becomes one":      {[][]entry{{file("a/b/c", "1"), file("a/b/d", "1"), file("a", "2")}}, []string{`a 100644 "2"`}},
		"a name twice":                            {[][]entry{{file("a", "first"), file("./a", "2"), symlink("l", "1"), symlink("/l", "2"), dir("d", 0o700), dir("d/", 0o755)}}, []string{`a 100644 "2"`, "d 40755", "l 120777 -> 2"}},
		"names that begin at the root":            {[][]entry{{file("/a", "1"), file("./b", "2"), file("//c/./d", "3"), file("x/../e", "4")}}, []string{`a 100644 "1"`, `b 100644 "2"`, "c 40755", `c/d 100644 "3"`, `e 100644 "4"`}},
		"upper and lower case":                    {[][]entry{{file("a", "1"), file("A", "2")}, {file(".wh.A", "")}}, []string{`a 100644 "1"`}},
		"names of any bytes":                      {[][]entry{{file("\xff\xfe", "1"), file("ä\n", "2"), file(strings.Repeat("x", 255), "")}}, []string{strings.Repeat("x", 255) + ` 100644 ""`, `ä 100644 "2"`, "\xff\xfe" + ` 100644 "1"`}},
		"a hard link":                             {[][]entry{{file("a", "1"), hardlink("d/b", "a"), hardlink("c", "/./d/b")}}, []string{`a 100644 "1"`, `c 100644 "1"`, "d 40755", `d/b 100644 "1"`}},
		"a hard link to itself":                   {[][]entry{{file("a", "1"), hardlink("a", "a")}}, []string{`a 100644 "1"`}},
		"a hard link to another layer":            {[][]entry{{file("d/a", "1").owned(1, 2, 0o600)}, {file("x", "")}, {hardlink("e/b", "d/a"), hardlink("c", "e/b")}}, []string{`c 100600 "1"`, "d 40755", `d/a 100600 "1"`, "e 40755", `e/b 100600 "1"`, `x 100644 ""`}},
		"a hard link to a symbolic one":           {[][]entry{{symlink("a", "/etc/shadow"), hardlink("b", "a")}}, []string{"a 120777 -> /etc/shadow", "b 120777 -> /etc/shadow"}},
		"a hard link over a file":                 {[][]entry{{file("a", "1"), file("b", "2"), hardlink("b", "a")}}, []string{`a 100644 "1"`, `b 100644 "1"`}},
		"a name below a symbolic link":            {[][]entry{{dir("usr/lib", 0o711), symlink("lib", "usr/lib")}, {file("lib/x", "1")}}, []string{"lib 120777 -> usr/lib", "usr 40755", "usr/lib 40711", `usr/lib/x 100644 "1"`}},
		"a name below one of the same layer":      {[][]entry{{symlink("lib", "/usr/lib"), file("lib/x", "1")}}, []string{"lib 120777 -> /usr/lib", "usr 40755", "usr/lib 40755", `usr/lib/x 100644 "1"`}},
		"a symbolic link that climbs":             {[][]entry{{symlink("d/l", "../../../../.."), file("d/l/x", "1")}}, []string{"d 40755", "d/l 120777 -> ../../../../..", `x 100644 "1"`}},
		"a symbolic link that is replaced":        {[][]entry{{symlink("lib", "usr/lib")}, {dir("lib", 0o755), file("lib/x", "1")}}, []string{"lib 40755", `lib/x 100644 "1"`}},
		"a file for a symbolic link":              {[][]entry{{symlink("a", "/tmp/outside")}, {file("a", "1")}}, []string{`a 100644 "1"`}},
		"a directory without write permission":    {[][]entry{{dir("d", 0o500).owned(0, 0, 0o500), file("d/a", "1")}, {file("d/b", "2")}}, []string{"d 40500", `d/a 100644 "1"`, `d/b 100644 "2"`}},
		"devices":                                 {[][]entry{{file("null", "1"), file("a", "1")}, {of(tar.TypeChar, "null"), of(tar.TypeBlock, "sda"), of(tar.TypeFifo, "pipe")}}, []string{`a 100644 "1"`, "pipe 10600"}},
		"a global header":                         {[][]entry{{{tar.Header{Name: "pax_global_header", Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "x"}}, ""}, file("a", "1")}}, []string{`a 100644 "1"`}},
		"special bits":                            {[][]entry{{file("s", "1").owned(0, 0, 0o4755), file("g", "1").owned(3, 7, 0o2711), dir("t", 0o1777)}}, []string{`g 102711 "1"`, `s 104755 "1"`, "t 41777"}},
		"modes of nothing":                        {[][]entry{{dir("d", 0), file("f", "").owned(0, 0, 0)}}, []string{"d 40000", `f 100000 ""`}},
		"the root":                                {[][]entry{{dir("./", 0o700), file("a", "")}, {file("b", "")}}, []string{`a 100644 ""`, `b 100644 ""`}},
		"a removal with a slash and of a slash":   {[][]entry{{file("a/b", "1")}, {whiteout("./a//.wh.b")}}, []string{"a 40755"}},
		"a removal below a symbolic link":         {[][]entry{{file("usr/lib/a", "1"), symlink("lib", "usr/lib")}, {whiteout("lib/.wh.a")}}, []string{"lib 120777 -> usr/lib", "usr 40755", "usr/lib 40755"}},
		"nothing at all":                          {[][]entry{{}}, nil},
		"an empty layer above":                    {[][]entry{{file("a", "1")}, {}}, []string{`a 100644 "1"`}},
		"a link to what another layer removed":    {[][]entry{{file("a", "1")}, {whiteout(".wh.a"), file("a", "2"), hardlink("b", "a")}}, []string{`a 100644 "2"`, `b 100644 "2"`}},
		"a whiteout device of an overlay":         {[][]entry{{file("a", "1")}, {of(tar.TypeChar, "a")}}, nil},
		"names with a prefix that mean something": {[][]entry{{file("a.wh.b", "1"), file(".whx", "2")}}, []string{`.whx 100644 "2"`, `a.wh.b 100644 "1"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var archives [][]byte
			for _, entries := range tt.layers {
				archives = append(archives, archive(t, entries...))
			}
			in := closed(t)
			dirs, err := stack(t, in, archives...)
			if err != nil {
				if ids() == 1 && errors.Is(err, unix.EACCES) {
					t.Skip("without rights over its own files, which the process that unpacks has: ", err)
				}
				t.Fatal(err)
			}
			if ids() == 1 && strings.Contains(name, "mode") {
				t.Skip("its user cannot look into them")
			}
			got := brief(shown(t, in, dirs))
			slices.Sort(got)
			slices.Sort(tt.want)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
