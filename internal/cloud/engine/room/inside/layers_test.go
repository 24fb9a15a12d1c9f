//go:build linux

package inside

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/layer"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/saved"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/must"
)

// layersCase is a way to make a layer.
type layersCase struct {
	spec  wire.LayersSpec
	write func(path string) error // writes the file that is passed
	name  wire.FileName
	want  map[string]string // some files of the layer's directory, and their texts; "-" means none
	trees []string
	err   error
}

// layersCases returns ways to make a layer, some of them refused.
func layersCases() map[string]layersCase {
	tarOf := func(names ...string) func(string) error {
		return func(path string) error {
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			for _, name := range names {
				h := &tar.Header{Name: name, Mode: 0o755, Typeflag: tar.TypeDir}
				if !strings.HasSuffix(name, "/") {
					h = &tar.Header{Name: name, Mode: 0o644, Size: 3}
				}
				if err := w.WriteHeader(h); err != nil {
					return err
				}
				if h.Size > 0 {
					_, _ = w.Write([]byte("tar"))
				}
			}
			return errors.Join(w.Close(), os.WriteFile(path, b.Bytes(), 0o644))
		}
	}
	savedOf := func(layout string, names ...string) func(string) error {
		return func(path string) error {
			to, err := os.Create(path)
			if err != nil {
				return err
			}
			defer to.Close()
			var sections []saved.Section
			for _, name := range names {
				from, err := os.Open(filepath.Join(filepath.Dir(path), "from"))
				if err != nil {
					return err
				}
				sections = append(sections, saved.Section{Name: name, Dir: from, Overlay: true})
			}
			return saved.Write(to, layout, sections)
		}
	}
	ofTar := wire.TarSpec{To: "made", IDs: 1000, Below: []string{"one", "two"}}
	hosts := []string{"etc/", "etc/hosts/", "etc/hosts/in", "a"}
	unpacked := layer.Trees + "/0/"
	return map[string]layersCase{
		"a tar":                 {wire.LayersSpec{Tar: &ofTar}, tarOf(hosts...), wire.FileTar, map[string]string{"made/a": "tar", "made/etc/hosts": "-", "made/etc/hosts.saved1/in": "tar"}, nil, nil},
		"a tar without a root":  {wire.LayersSpec{Tar: &wire.TarSpec{To: "one", IDs: 1000}}, tarOf("a"), wire.FileTar, nil, nil, fs.ErrExist},
		"a tar on nothing":      {wire.LayersSpec{Tar: &wire.TarSpec{To: "made", IDs: 1000, Below: []string{"none"}}}, tarOf("a"), wire.FileTar, nil, nil, fs.ErrNotExist},
		"a tar as another file": {wire.LayersSpec{Tar: &ofTar}, tarOf("a"), wire.FileSaved, nil, nil, wire.ErrProtocol},
		"a merge": {wire.LayersSpec{Merge: []wire.MergeSpec{{From: []string{"two", "one"}, To: "made"}, {From: []string{"one"}, To: "other"}}}, nil, "",
			map[string]string{"made/a": "two", "made/b": "one", "other/a": "one"}, nil, nil},
		"a merge of nothing":   {wire.LayersSpec{Merge: []wire.MergeSpec{{From: []string{"none"}, To: "made"}}}, nil, "", nil, nil, fs.ErrNotExist},
		"a merge to what is":   {wire.LayersSpec{Merge: []wire.MergeSpec{{From: []string{"two"}, To: "one"}}}, nil, "", nil, nil, fs.ErrExist},
		"saved files":          {wire.LayersSpec{Layout: "l"}, savedOf("l", "", "/usr"), wire.FileSaved, map[string]string{unpacked + "own": "saved", unpacked + "etc/hosts": "-", unpacked + "etc/hosts.saved1/in": "saved", layer.Trees + "/1/own": "saved"}, []string{"", "/usr"}, nil},
		"without a root":       {wire.LayersSpec{Layout: "l"}, savedOf("l", "/usr", ""), wire.FileSaved, nil, nil, saved.ErrDamaged},
		"without anything":     {wire.LayersSpec{Layout: "l"}, savedOf("l"), wire.FileSaved, nil, nil, saved.ErrDamaged},
		"another layout":       {wire.LayersSpec{Layout: "l"}, savedOf("m", ""), wire.FileSaved, nil, nil, saved.ErrLayout},
		"no saved files":       {wire.LayersSpec{Layout: "l"}, nil, "", nil, nil, wire.ErrProtocol},
		"a file nobody wanted": {wire.LayersSpec{Merge: []wire.MergeSpec{{From: []string{"two"}, To: "made"}}}, tarOf("a"), wire.FileTar, nil, nil, wire.ErrProtocol},
		"no directory":         {wire.LayersSpec{Dir: "/none"}, nil, "", nil, nil, fs.ErrNotExist},
	}
}

// makeLayer makes the directory of a layer, and runs the maker on a thread of its own. It returns the
// directory, and the trees that the maker reports. If number is not 0, the n-th of its calls fails, and
// text is as failNth returns it.
func makeLayer(t *testing.T, c layersCase, number uint32, n int) (dir, text string, trees []string, err error) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range map[string]string{"one/a": "one", "one/b": "one", "two/a": "two", "from/own": "saved", "from/etc/hosts/in": "saved"} {
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(dir+"/"+name), 0o755), os.WriteFile(dir+"/"+name, []byte(text), 0o644)))
	}
	var files wire.Files
	if c.name != "" {
		must.Do(t, c.write(dir+"/passed"))
		reopen(t, dir+"/passed", &files, c.name)
	}
	spec := c.spec
	if spec.Dir == "" {
		spec.Dir = dir
	}
	server, control, errOfPair := bridgeEnds()
	must.Do(t, errOfPair)
	defer server.Close()
	apart(t, func() error {
		run := func() error { return runLayers(control, wire.Encode(spec), &files) }
		if number == 0 {
			err = run()
			return nil
		}
		var watched error
		text, watched = failNth(number, n, 1, func() error { err = run(); return nil })
		return watched
	})
	control.Close()
	files.Close()
	if err == nil {
		m, _, failed := server.Expect(wire.KindReady, 0)
		trees, err = m.Trees, failed
	}
	return dir, text, trees, err
}

// layersOpen returns the directories of layers in a directory that this process has open. The file that
// was passed may stay open, because the maker ends.
func layersOpen(t *testing.T, dir string) (paths []string) {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	must.Do(t, err)
	for _, link := range links {
		if path, err := os.Readlink(link); err == nil && strings.HasPrefix(path, dir+"/") && path != dir+"/passed" && path != dir+"/from" {
			paths = append(paths, path)
		}
	}
	return paths
}

// TestLayersAreMade checks the files of layers, and which requests the maker refuses.
func TestLayersAreMade(t *testing.T) {
	t.Parallel()
	for name, c := range layersCases() {
		dir, _, trees, err := makeLayer(t, c, 0, 0)
		if left := layersOpen(t, dir); len(left) > 0 {
			t.Errorf("%s: it leaves %v open", name, left)
		}
		if diff := cmp.Diff(c.trees, trees); !errors.Is(err, c.err) || diff != "" {
			t.Errorf("%s: got error %v, want %v (-want +got):\n%s", name, err, c.err, diff)
		}
		for path, want := range c.want {
			text, err := os.ReadFile(filepath.Join(dir, path))
			if got := string(text); (want == "-") != errors.Is(err, fs.ErrNotExist) || want != "-" && got != want {
				t.Errorf("%s: %s has the text %q and error %v, want %q", name, path, got, err, want)
			}
		}
	}
	if err := runLayers(nil, json.RawMessage("["), nil); err == nil {
		t.Error("a malformed description is no error")
	}
}

// TestEachCallOfALayerFails makes each system call of the maker of a layer fail. The maker then fails,
// too, because sandboxes would share what is missing.
func TestEachCallOfALayerFails(t *testing.T) {
	t.Parallel()
	for name, c := range layersCases() {
		if c.err != nil {
			continue
		}
		for call, number := range map[string]uint32{
			"mkdirat": unix.SYS_MKDIRAT, "openat": unix.SYS_OPENAT, "openat2": unix.SYS_OPENAT2, "open_tree": unix.SYS_OPEN_TREE, "fchdir": unix.SYS_FCHDIR, "renameat2": unix.SYS_RENAMEAT2,
			"read": unix.SYS_READ, "fchown": unix.SYS_FCHOWN, "fchmod": unix.SYS_FCHMOD, "getdents64": unix.SYS_GETDENTS64,
		} {
			for n := 1; ; n++ {
				_, text, _, err := makeLayer(t, c, number, n)
				if text == "" {
					break
				}
				if !errors.Is(err, unix.EIO) {
					t.Errorf("%s: the call %d of %s, with %q, failed: got error %v, want its error", name, n, call, fmt.Sprintf("%.20s", text), err)
				}
			}
		}
	}
}
