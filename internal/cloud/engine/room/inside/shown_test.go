//go:build linux

package inside

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/cgroup"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/wire"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// fieldsOf returns the numbers of a /proc/meminfo in kB that are not zero.
func fieldsOf(text []byte) map[string]int {
	fields := map[string]int{}
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, ":")
		if n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(rest, " kB\n"))); err != nil || n != 0 {
			fields[name] = n
		}
	}
	return fields
}

// TestMemoryText checks the numbers of /proc/meminfo, which add up whatever was measured, and its
// length, which depends on the total alone.
func TestMemoryText(t *testing.T) {
	t.Parallel()
	const kB = 1 << 10
	for name, tt := range map[string]struct {
		total uint64
		use   cgroup.Memory
		want  map[string]int
	}{
		"unused": {100 * kB, cgroup.Memory{}, map[string]int{"MemTotal": 100, "MemFree": 100, "MemAvailable": 100}},
		"used": {100 * kB, cgroup.Memory{Anonymous: 20 * kB, Kept: 10 * kB, Cache: 30 * kB}, map[string]int{
			"MemTotal": 100, "MemFree": 40, "MemAvailable": 70, "Cached": 40, "Active": 30, "Inactive": 30, "AnonPages": 20, "Shmem": 10,
		}},
		"more cache than is left": {100 * kB, cgroup.Memory{Anonymous: 90 * kB, Cache: 30 * kB}, map[string]int{
			"MemTotal": 100, "MemAvailable": 10, "Cached": 10, "Active": 90, "Inactive": 10, "AnonPages": 90,
		}},
		"more than all": {100 * kB, cgroup.Memory{Anonymous: 900 * kB, Kept: 800 * kB, Cache: 30 * kB}, map[string]int{
			"MemTotal": 100, "Cached": 100, "Active": 100, "AnonPages": 100, "Shmem": 100,
		}},
	} {
		text := memoryText(tt.total, tt.use)
		if diff := cmp.Diff(tt.want, fieldsOf(text)); diff != "" || len(text) != len(memoryText(tt.total, cgroup.Memory{})) {
			t.Errorf("%s: got %d bytes (-want +got):\n%s", name, len(text), diff)
		}
	}
	for total, longer := range map[uint64]int{99_999_999 * kB: 0, 100_000_000 * kB: 1} {
		if got := len(memoryText(total, cgroup.Memory{})) - len(memoryText(0, cgroup.Memory{})); got%19 != 0 || got/19 != longer {
			t.Errorf("a total of %d: the text is %d bytes longer than that of 0, want %d a line", total, got, longer)
		}
	}
}

// newShown returns the files of a /proc/meminfo and of a /proc with these files.
func newShown(t *testing.T, proc map[string]string, group string) (*meminfo, string) {
	t.Helper()
	dir := t.TempDir()
	must.Do(t, os.Mkdir(filepath.Join(dir, "proc"), 0o755))
	for name, text := range proc {
		must.Do(t, errors.Join(os.MkdirAll(filepath.Join(dir, "proc", filepath.Dir(name)), 0o755), os.WriteFile(filepath.Join(dir, "proc", name), []byte(text), 0o644)))
	}
	var files wire.Files
	path := filepath.Join(dir, "meminfo")
	text, err := os.Create(path)
	must.Do(t, err)
	files.Add(wire.FileMeminfo, text)
	at, err := os.Open(filepath.Join(dir, "proc"))
	must.Do(t, err)
	files.Add(wire.FileProc, at)
	if group != "" {
		must.Do(t, os.WriteFile(filepath.Join(dir, "memory.stat"), []byte(group), 0o644))
		stat, err := os.Open(filepath.Join(dir, "memory.stat"))
		must.Do(t, err)
		files.Add(wire.FileMemoryUse, stat)
	}
	m, err := newMeminfo(1<<40, &files)
	must.Do(t, errors.Join(err, files.End()))
	return m, path
}

// TestMeminfo checks where the numbers of /proc/meminfo come from, and that nothing of a longer text is
// left.
func TestMeminfo(t *testing.T) {
	t.Parallel()
	page := os.Getpagesize() >> 10
	processes := map[string]string{"1/statm": "100 50 20 1 0 2 0\n", "22/statm": "100 5 7 0", "3/statm": "100 9", "4/stat": "", "self/statm": "100 50 20", "version": "x"}
	for group, want := range map[string]int{"": 30 * page, "anon 2048000\nfile 4096\nshmem 0\n": 2000, "nothing\n": 30 * page} {
		m, path := newShown(t, processes, group)
		m.write()
		text, err := os.ReadFile(path)
		must.Do(t, err)
		got := fieldsOf(text)
		if got["AnonPages"] != want || got["MemTotal"] != 1<<30 {
			t.Errorf("%q: got %v, want %d kB of programs", group, got, want)
		}
		if kept := got["Shmem"]; (kept == 0) != (want == 2000) { // of the file system of the file
			t.Errorf("%q: the files have %d kB", group, kept)
		}
		m.resize(1 << 30)
		text, err = os.ReadFile(path)
		must.Do(t, err)
		if got := fieldsOf(text); got["MemTotal"] != 1<<20 || len(text) != len(memoryText(1<<30, cgroup.Memory{})) {
			t.Errorf("%q: after a smaller total: got %d bytes %q", group, len(text), text)
		}
		m.close()
		for _, f := range []*os.File{m.file, m.proc, m.group} {
			if err := f.Close(); f != nil && !errors.Is(err, os.ErrClosed) {
				t.Errorf("%q: %s stays open", group, f.Name())
			}
		}
	}
	for _, names := range [][]wire.FileName{nil, {wire.FileMeminfo}, {wire.FileProc}} {
		var files wire.Files
		for _, name := range names {
			f, err := os.Open(os.DevNull)
			must.Do(t, err)
			files.Add(name, f)
		}
		if _, err := newMeminfo(1, &files); !errors.Is(err, wire.ErrProtocol) {
			t.Errorf("of the files %v: got error %v, want %v", names, err, wire.ErrProtocol)
		}
		files.Close()
	}
}

// TestMeminfosAreKept checks that a text is written when somebody opens the file, that a resize is
// written at once, and that nothing is left of a sandbox that has ended.
func TestMeminfosAreKept(t *testing.T) { //nolint:paralleltest // the signal is that of the whole process
	k := &meminfos{}
	stop := k.listen()
	defer stop()
	m, path := newShown(t, nil, "anon 1024\nfile 0\nshmem 0\n")
	other, _ := newShown(t, nil, "anon 2048\nfile 0\nshmem 0\n")
	k.keep(1, m)
	k.keep(2, other)
	patience.Until(t, "the text is that of the group", func() bool {
		text, err := os.ReadFile(path)
		must.Do(t, err)
		return fieldsOf(text)["AnonPages"] == 1
	})
	k.resize(1, 1<<20)
	k.resize(3, 1<<20) // there is none
	if text, err := os.ReadFile(path); err != nil || fieldsOf(text)["MemTotal"] != 1<<10 {
		t.Errorf("after a resize: got %q and error %v", text, err)
	}
	other.mu.Lock()
	if other.total != 1<<40 {
		t.Errorf("another sandbox has a total of %d", other.total)
	}
	other.mu.Unlock()
	for range 2 { // the second time nothing happens
		k.drop(1)
		k.drop(2)
	}
	for _, m := range []*meminfo{m, other} {
		patience.Until(t, "its files are closed", func() bool {
			_, errOfProc := m.proc.Stat()
			_, errOfGroup := m.group.Stat()
			return errors.Is(errOfProc, os.ErrClosed) && errors.Is(errOfGroup, os.ErrClosed)
		})
	}
	if len(k.kept) != 0 {
		t.Errorf("%d files are kept", len(k.kept))
	}
}

// TestShownProcessors checks the lists of processors.
func TestShownProcessors(t *testing.T) { //nolint:paralleltest // it changes its directory
	inStage(t, map[string]string{"sys/devices/system/": ""})
	must.Do(t, writeSys([]int{0, 3}))
	got := shown(t, "root/sys/devices/system/cpu")
	possible, err := os.ReadFile("/sys/devices/system/cpu/possible")
	want := map[string]string{"cpu0": "dr-xr-xr-x", "cpu3": "dr-xr-xr-x", "online": "-r--r--r-- 0,3", "present": "-r--r--r-- 0,3"}
	if err == nil {
		want["possible"] = "-r--r--r-- " + strings.TrimSpace(string(possible))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if notes := runOn(nil); notes != nil {
		t.Errorf("got the notes %v for all processors", notes)
	}
	layers := []wire.Layer{{Trees: []string{"", "/usr"}}, {Trees: []string{""}}, {Trees: []string{"/opt", "/usr", ""}}}
	for path, want := range map[string][]string{"": {"layers/2/2", "layers/1/0", "layers/0/0"}, "/usr": {"layers/2/1", "layers/0/1"}, "/none": nil} {
		if diff := cmp.Diff(want, inLayers(layers, path)); diff != "" {
			t.Errorf("the layers of %q (-want +got):\n%s", path, diff)
		}
	}
}
