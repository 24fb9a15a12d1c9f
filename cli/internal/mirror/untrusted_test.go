package mirror

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/archive"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
)

// isRefusal reports whether err has the text, and is the target if there is one. Without a text and
// a target, it reports whether there is no error.
func isRefusal(err error, text string, target error) bool {
	switch {
	case text == "" && target == nil:
		return err == nil
	case err == nil || target != nil && !errors.Is(err, target):
		return false
	}
	return strings.Contains(err.Error(), text)
}

// TestReadTree checks the list of files that a sandbox sends, which may contain anything.
func TestReadTree(t *testing.T) {
	t.Parallel()
	const dir, file = "d 755 4096 1.5 ", "f 644 3 1.000000007 "
	long := strings.Repeat("x", maxField-1) // with the NUL, the longest field
	at := func(nanos int64) time.Time { return time.Unix(1, nanos) }
	f, d := entry{size: 3, perm: 0o644, modTime: at(7)}, entry{kind: fs.ModeDir, perm: 0o755, size: 4096, modTime: at(5e8)}
	link := func(target string) entry {
		return entry{kind: fs.ModeSymlink, perm: 0o777, size: 1, modTime: at(0), target: target}
	}
	listed := func(fields ...string) string { return strings.Join(fields, "\x00") + "\x00" }
	for name, tt := range map[string]struct {
		list    string
		trusted bool // links may lead anywhere
		want    tree
		skipped []string
		err     string // text of the error
		is      error
	}{
		"empty":                 {want: tree{}},
		"files and directories": {list: listed(dir, "a", file, "a/b", file, "c"), want: tree{"a": d, "a/b": f, "c": f}},
		"links": {
			list: listed("l 777 1 1 c", "inside", "l 777 1 1 ../c", "out", "l 777 1 1 /c", "absolute"),
			want: tree{"inside": link("c"), "out": {kind: unsendable}, "absolute": {kind: unsendable}}, skipped: []string{"out", "absolute"},
		},
		"links that may lead out":  {list: listed("l 777 1 1 ../c", "out"), trusted: true, want: tree{"out": link("../c")}},
		"a link with spaces":       {list: listed("l 777 1 1 a b ", "l"), want: tree{"l": link("a b ")}},
		"a pipe":                   {list: listed("p 644 0 1 ", "p"), want: tree{"p": {kind: unsendable}}, skipped: []string{"p"}},
		"ignored":                  {list: listed(dir, "a", file, "a/x.log", file, "c.log"), want: tree{"a": {kind: fs.ModeDir, perm: 0o755, size: 4096, modTime: at(5e8), keeps: true}}},
		"as many as are allowed":   {list: listed(file, "a", file, "b", file, "c"), want: tree{"a": f, "b": f, "c": f}},
		"one too many":             {list: listed(file, "a", file, "b", file, "c", file, "d"), is: sandbox.ErrTooLarge},
		"set-user-ID":              {list: listed("f 4755 3 1 ", "a"), want: tree{"a": {size: 3, perm: 0o755, modTime: at(0)}}},
		"the longest name":         {list: listed(file, long), want: tree{long: f}},
		"a longer name":            {list: listed(file, long+"x"), err: "a name of more than"},
		"out of the directory":     {list: listed(file, "../a"), err: "cannot be"},
		"an absolute name":         {list: listed(file, "/a"), err: "cannot be"},
		"a name that is not clean": {list: listed(file, "./a"), err: "cannot be"},
		"no name":                  {list: listed(file, ""), err: "cannot be"},
		"in no directory":          {list: listed(file, "a/b"), err: "in no directory"},
		"below a file":             {list: listed(file, "a", file, "a/b"), err: "in no directory"},
		"cut off in the name":      {list: listed(file, "a") + file + "\x00b", err: "cut off"},
		"cut off before the name":  {list: listed(file, "a", file), err: "cut off"},
		"cut off in the facts":     {list: listed(file, "a") + "f", err: "cut off"},
		"fields are missing":       {list: listed("f 644 3", "a"), err: "cannot be"},
		"no mode":                  {list: listed("f 9 3 1 ", "a"), err: "cannot be"},
		"no size":                  {list: listed("f 644 x 1 ", "a"), err: "cannot be"},
		"no time":                  {list: listed("f 644 3 x ", "a"), err: "cannot be"},
		"no fraction of a time":    {list: listed("f 644 3 1.x ", "a"), err: "cannot be"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var skipped []string
			got, err := readTree(strings.NewReader(tt.list), []*rules{newRules([]string{"*.log"})}, 3, !tt.trusted, func(name, _ string) { skipped = append(skipped, name) })
			if !isRefusal(err, tt.err, tt.is) {
				t.Fatalf("got error %v, want %q %v", err, tt.err, tt.is)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(entry{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !slices.Equal(skipped, tt.skipped) {
				t.Errorf("skipped %q, want %q", skipped, tt.skipped)
			}
		})
	}
}

// TestReceive checks that an archive from a sandbox replaces only the entries of the plan, each as a
// whole, that the bounds hold, and that no staging directory stays.
func TestReceive(t *testing.T) {
	t.Parallel()
	stamp := time.Unix(1_000_000_000, 0)
	closed := entry{kind: fs.ModeDir, perm: 0o500, modTime: stamp}
	file := func(name, text string) *tar.Header {
		return &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o640, ModTime: stamp, Size: int64(len(text)), Linkname: text}
	}
	for name, tt := range map[string]struct {
		sent   []*tar.Header // the text of a file is in Linkname
		cut    bool          // the archive is cut off
		fails  bool          // the stream fails after the archive
		want   string        // text of the file "d/f"; "": old
		denied string        // text of the error
		is     error
	}{
		"all":                            {sent: []*tar.Header{file("d/f", "new")}, want: "new"},
		"removed meanwhile":              {},
		"not in the plan":                {sent: []*tar.Header{file("d/f", "new"), file("other", "evil")}, want: "new"},
		"a directory in place of a file": {sent: []*tar.Header{{Typeflag: tar.TypeDir, Name: "d/f/", Mode: 0o755}}, denied: "sent a directory"},
		"too many":                       {sent: []*tar.Header{file("d/f", "new"), file("a", ""), file("b", ""), file("c", "")}, is: archive.ErrTooLarge},
		"too large":                      {sent: []*tar.Header{file("d/f", "12345678901")}, is: archive.ErrTooLarge},
		"cut off":                        {sent: []*tar.Header{file("d/f", "new")}, cut: true, denied: "unexpected EOF"},
		"fails after its end":            {sent: []*tar.Header{file("d/f", "new")}, fails: true, is: io.ErrClosedPipe},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			must.Do(t, os.MkdirAll(filepath.Join(dir, "d"), 0o700))
			must.Do(t, os.WriteFile(filepath.Join(dir, "d", "f"), []byte("old"), 0o600))
			must.Do(t, os.WriteFile(filepath.Join(dir, "other"), []byte("own"), 0o600))
			root, err := os.OpenRoot(dir)
			must.Do(t, err)
			defer root.Close()
			var stream bytes.Buffer
			w := tar.NewWriter(&stream)
			for _, header := range tt.sent {
				text := header.Linkname
				header.Linkname = ""
				must.Do(t, w.WriteHeader(header))
				_, err := fmt.Fprint(w, text)
				must.Do(t, err)
			}
			must.Do(t, w.Close())
			if tt.cut {
				stream.Truncate(513)
			}
			sent := io.Reader(&stream)
			if tt.fails {
				sent = io.MultiReader(sent, iotest.ErrReader(io.ErrClosedPipe))
			}
			m := &Mirror{MaxBytes: 10, MaxFiles: 4, Skipped: func(name, why string) { t.Errorf("skipped %s: %s", name, why) }}
			err = m.receive(t.Context(), root, &plan{send: []string{"d", "d/f"}}, tree{"d": closed, "d/f": {size: 3, perm: 0o640, modTime: stamp}}, sent)
			if !isRefusal(err, tt.denied, tt.is) {
				t.Errorf("got error %v, want %q %v", err, tt.denied, tt.is)
			}
			if info, statErr := root.Lstat("d"); err == nil && (statErr != nil || info.Mode().Perm() != 0o500 || !info.ModTime().Equal(stamp)) {
				t.Errorf("the directory is %v, with error %v, want the mode and the time of the source", info, statErr)
			}
			must.Do(t, root.Chmod("d", 0o700)) // so that it can be removed
			want := map[string]string{"other": "own", "d/f": "old"}
			if tt.want != "" {
				want["d/f"] = tt.want
			}
			got := map[string]string{}
			must.Do(t, fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					text, err := root.ReadFile(name)
					got[name] = string(text)
					return err
				}
				if strings.HasPrefix(d.Name(), stagingPrefix) {
					t.Errorf("left over: %s", name)
				}
				return err
			}))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}

// TestScanFails checks that a directory that cannot be read is an error, and not empty: with Delete,
// the other side would become empty.
func TestScanFails(t *testing.T) {
	t.Parallel()
	root, err := os.OpenRoot(t.TempDir())
	must.Do(t, err)
	must.Do(t, root.Close())
	_, _, err = (&Mirror{}).scan(t.Context(), root)
	must.Is(t, err, os.ErrClosed)
}
