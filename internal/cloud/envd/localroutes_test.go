//go:build linux

package envd

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/calltest"
	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/gen/process"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// TestPlaceAndPack checks the ways of files into a sandbox and out of it, and which requests are refused.
func TestPlaceAndPack(t *testing.T) {
	t.Parallel()
	d := serve(t)
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, name := range []string{"one", "two"} {
		must.Do(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: 4, Uid: os.Getuid(), Gid: os.Getgid()}))
		_, err := io.WriteString(w, "text")
		must.Do(t, err)
	}
	must.Do(t, w.Close())
	target := "target=" + d.home + "/new/"
	for _, tt := range []struct {
		query, want string
		status      int
	}{
		{"source=one&target=new/&user=me", "the target is not absolute", 422},
		{"source=one&" + target, "the user is missing", 422},
		{"source=one&user=you&" + target, "unknown user you", 422},
		{"source=one&user=me&owner=you&" + target, "unknown user you", 422},
		{"source=one&user=me&mode=8&" + target, "the mode '8' is not octal", 422},
		{"source=three&user=me&" + target, "three", 422},
		{"source=one&user=me&mode=751&" + target, "{}\n", 200},
		{"source=two&user=me&owner=me&" + target + "dir/copy", "{}\n", 200},
	} {
		if res, body := d.do(t, "POST", "/local/place?"+tt.query, archive.String()); res.StatusCode != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%s: got %d %s, want %d with %q", tt.query, res.StatusCode, body, tt.status, tt.want)
		}
	}
	for name, mode := range map[string]os.FileMode{"one": 0o751, "dir/copy": 0o600} {
		if info, err := os.Stat(d.home + "/new/" + name); err != nil || info.Mode() != mode || content(t, d.home+"/new/"+name) != "text" {
			t.Errorf("%s: got %v and error %v, want mode %v", name, info, err, mode)
		}
	}
	res, body := d.do(t, "GET", "/local/pack?source="+d.home+"/new/one", "")
	if kind := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || kind != "application/x-tar" {
		t.Errorf("got %d %s, want an archive", res.StatusCode, kind)
	}
	if h, err := tar.NewReader(strings.NewReader(body)).Next(); err != nil || h.Name != "one" || h.Size != 4 {
		t.Errorf("got %+v and error %v, want the file", h, err)
	}
	if res, body := d.do(t, "GET", "/local/pack?source=/none", ""); res.StatusCode != 422 || !strings.Contains(body, "is not there") {
		t.Errorf("what is not there: got %d %s", res.StatusCode, body)
	}
	for _, tt := range []struct {
		query, want string
		status      int
	}{
		{"path=dir", "the path is not absolute", 422},
		{"path=/dir&user=you", "unknown user you", 422},
		{"path=" + d.home + "/new/one/below", "is no directory", 422},
		{"path=" + d.home + "/made//below/", `{"changed":true}`, 200},
		{"path=" + d.home + "/made/below&user=me", `{"changed":false}`, 200},
	} {
		if res, body := d.do(t, "POST", "/local/directory?"+tt.query, ""); res.StatusCode != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%s: got %d %s, want %d with %q", tt.query, res.StatusCode, body, tt.status, tt.want)
		}
	}
}

// TestOwnersOfPlacedFiles checks whose the copies, and new directories above them, are.
func TestOwnersOfPlacedFiles(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		return // the rest gives files away
	}
	d := serve(t, func(o *Options) {
		o.AnyUser = true
		o.Users = append(o.Users, User{Name: "other", UID: 1234, GID: 5678, Home: "/", Credential: &syscall.Credential{Uid: 1234, Gid: 5678}})
	})
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	must.Do(t, errors.Join(w.WriteHeader(&tar.Header{Name: "a", Mode: 0o600, Uid: 7, Gid: 8}), w.Close()))
	for query, want := range map[string]string{"user=other": "1234:5678 7:8", "user=me&owner=other": "0:0 1234:5678", "user=11:12&owner=13:14": "11:12 13:14"} {
		dir := filepath.Join(d.home, query)
		if res, body := d.do(t, "POST", "/local/place?source=a&target="+strings.ReplaceAll(dir, "&", "%26")+"/&"+query, archive.String()); res.StatusCode != http.StatusOK {
			t.Fatalf("%s: got %d %s", query, res.StatusCode, body)
		}
		if got := owner(t, dir) + " " + owner(t, dir+"/a"); got != want {
			t.Errorf("%s: the directory and the file are %s's, want %s", query, got, want)
		}
	}
	if res, body := d.do(t, "POST", "/local/directory?user=other&path="+d.home+"/made", ""); res.StatusCode != http.StatusOK || owner(t, d.home+"/made") != "1234:5678" {
		t.Errorf("got %d %s, and %s", res.StatusCode, body, owner(t, d.home+"/made"))
	}
}

// owner returns the ids of a file's user and group.
func owner(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Lstat(path)
	must.Do(t, err)
	stat := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%d:%d", stat.Uid, stat.Gid)
}

// TestUsage checks every field of the answer of /metrics, and how requests of the local cloud change the
// limits.
func TestUsage(t *testing.T) {
	t.Parallel()
	known := true
	memory := &child.Memory{Limit: 512 << 20}
	d := serve(t, func(o *Options) {
		o.MemoryBytes, o.CPUs, o.Memory = 512<<20, 2, memory
		o.MemoryUse = func() (used, cache uint64, ok bool) { return 300<<20 + 5, 7, known }
	})
	ask := func() (got usage) {
		t.Helper()
		res, body := d.do(t, "GET", "/metrics", "")
		must.Do(t, json.Unmarshal([]byte(body), &got))
		if cached := res.Header.Get("Cache-Control"); cached != "no-store" {
			t.Errorf("Cache-Control: got %q", cached)
		}
		return got
	}
	d.server.metrics.sampled = time.Now().Add(-time.Hour)
	d.server.metrics.used = -time.Hour
	if got := ask(); got.MemUsed != 300<<20+5 || got.MemUsedMiB != 300 || got.MemCache != 7 {
		t.Errorf("got the memory of %+v", got)
	} else if got.CPUUsed <= 0 || got.DiskUsed == 0 {
		t.Errorf("got %+v, want processors and a disk that are in use", got)
	}
	known = false
	if got := ask(); got.MemUsed == 0 || got.MemUsed == 300<<20+5 || got.MemUsed>>20 != got.MemUsedMiB {
		t.Errorf("without a known use: got %+v, want that of the processes", got)
	}
	for query, status := range map[string]int{
		"memory=1&cpus=0": 400, "memory=0&cpus=1": 400, "memory=1": 400, "cpus=1": 400, "": 400, "memory=x&cpus=1": 400,
		"memory=1&cpus=65536": 400, "memory=-1&cpus=1": 400,
	} {
		if res, body := d.do(t, "POST", "/local/resources?"+query, ""); res.StatusCode != status || !strings.Contains(body, "must be positive numbers") {
			t.Errorf("%s: got %d %s, want %d", query, res.StatusCode, body, status)
		}
	}
	if got := ask(); got.MemTotal != 512<<20 || got.CPUCount != 2 || memory.Limit != 512<<20 {
		t.Errorf("after refused requests: got %+v and a limit of %d", got, memory.Limit)
	}
	if res, body := d.do(t, "POST", "/local/resources?memory=1073741825&cpus=65535", ""); res.StatusCode != http.StatusOK || body != "{}\n" {
		t.Errorf("got %d %s", res.StatusCode, body)
	}
	if got := ask(); got.MemTotal != 1<<30+1 || got.MemTotalMiB != 1<<10 || got.CPUCount != 65535 || memory.Limit != 1<<30+1 {
		t.Errorf("after the change: got %+v and a limit of %d", got, memory.Limit)
	}
	whole := newMetrics(&Options{})
	var info unix.Sysinfo_t
	must.Do(t, unix.Sysinfo(&info))
	if _, _, known := whole.memoryUse(); known || whole.memory != uint64(info.Totalram)*uint64(info.Unit) || whole.cpus != uint32(runtime.NumCPU()) {
		t.Errorf("without limits: got %+v, want those of the machine", whole)
	}
}

// TestUnmeasured checks that a sample is an error if a part of it cannot be measured.
func TestUnmeasured(t *testing.T) {
	t.Parallel()
	m := newMetrics(&Options{})
	for call, number := range map[string]uint32{"the disk": unix.SYS_STATFS, "opening /proc": unix.SYS_OPENAT, "reading /proc": unix.SYS_GETDENTS64} {
		failed, err := calltest.FailNth(t, number, 1, unix.EIO, func() error {
			got, err := m.sample()
			if got != (usage{}) {
				t.Errorf("%s: got %+v, want nothing", call, got)
			}
			return err
		})
		if !failed || !errors.Is(err, unix.EIO) || !strings.Contains(err.Error(), "envd: measure") {
			t.Errorf("%s failed, %v: got error %v", call, failed, err)
		}
	}
}

// TestProcessorTime checks what is read of a stat file, whose names of processes may have any character.
func TestProcessorTime(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "stat")
	const rest = " S 1 1 1 0 -1 4194304 1 2 3 4 "
	for text, want := range map[string]time.Duration{
		"1 (sh)" + rest + "10 20 30 40 20 0 1":     time.Second,
		"1 (a b) 9 9)" + rest + "1 0 0 0 20 0 1":   10 * time.Millisecond,
		"1 (sh)" + rest + "0 0 0 7":                70 * time.Millisecond,
		"1 (sh)" + rest + "1 1 1":                  0,
		"1 (sh)" + rest + "1 1 x 1 20 0 1":         0,
		"":                                         0,
		"1 (sh)" + rest + "1 2 -1 3 20 0 1 1 9999": 50 * time.Millisecond,
	} {
		put(t, path, text)
		if got := processorTime(path); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
	if got := processorTime(path + " gone"); got != 0 {
		t.Errorf("of a process that has ended: got %v, want 0", got)
	}
	used, resident, err := processTotals()
	if own := processorTime("/proc/self/stat"); err != nil || used < own/2 || resident < privateMemory("/proc/self/statm")/2 {
		t.Errorf("all processes: got %v, %d bytes and error %v, want at least those of this process", used, resident, err)
	}
}

// TestBusy checks which clients and kernels keep a sandbox busy.
func TestBusy(t *testing.T) {
	t.Parallel()
	kernels := false
	d := serve(t, func(o *Options) { o.KernelsBusy = func() bool { return kernels } })
	want := func(what string, want bool) {
		t.Helper()
		if _, body := d.do(t, "GET", "/local/busy", ""); body != fmt.Sprintf(`{"busy":%v}`+"\n", want) {
			t.Errorf("%s: got %s, want %v", what, body, want)
		}
	}
	want("nothing runs", false)
	kernels = true
	want("code runs in a kernel", true)
	kernels = false
	terminal := shell("sleep 60")
	terminal.Pty = &process.PTY{Size: &process.PTY_Size{Cols: 80, Rows: 24}}
	inTerminal, _ := d.begin(t, connect.NewRequest(terminal))
	defer inTerminal.Close()
	want("a terminal is open", false)
	s, pid := d.begin(t, connect.NewRequest(shell("sleep 60")))
	want("a client follows a process", true)
	must.Do(t, s.Close())
	running, err := d.server.processes.find(byPid(pid))
	must.Do(t, err)
	patience.Until(t, "the client has gone", func() bool { return len(running.output.current()) == 0 })
	want("nobody follows the process", false)
}

// TestNamesOfIDs checks that names of ids are those of the present file, and which of its lines count.
func TestNamesOfIDs(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "passwd")
	n := &idNames{file: path}
	want := func(what string, want map[uint32]string) {
		t.Helper()
		for id, name := range want {
			if got := n.name(id); got != name {
				t.Errorf("%s: %d is %q, want %q", what, id, got, name)
			}
		}
	}
	want("no file", map[uint32]string{5: "5", 4294967295: "4294967295"})
	put(t, path, "a:x:5:1::/:\nb:x:5:1::/:\nshort:x\nthree:x:6\nbad:x:y:1\nlarge:x:4294967296:1\nlast:x:4294967295:1:")
	want("a file", map[uint32]string{5: "a", 6: "three", 0: "0", 4294967295: "last"})
	put(t, path, "b:x:5:1::/:\n")
	want("a shorter file", map[uint32]string{5: "b", 6: "6"})
	put(t, path+"2", "c:x:5:1::/:\n")
	must.Do(t, os.Rename(path+"2", path))
	want("another file", map[uint32]string{5: "c"})
	must.Do(t, os.WriteFile(path, []byte("d:x:5:1::/:\n"), 0o600))
	must.Do(t, os.Chtimes(path, time.Time{}, time.Unix(1, 0)))
	want("the same size at another time", map[uint32]string{5: "d"})
	must.Do(t, os.Remove(path))
	want("a file that is gone", map[uint32]string{5: "5"})
	put(t, path, "d:x:5:1::/:\n")
	want("a file again", map[uint32]string{5: "d"})
	must.Do(t, os.Remove(path))
	must.Do(t, unix.Mkfifo(path, 0o600))
	want("a pipe", map[uint32]string{5: "5"})
	must.Do(t, os.Remove(path))
	var many strings.Builder
	for id := range 4100 {
		fmt.Fprintf(&many, "u%d:x:%d:\n", id, id)
	}
	put(t, path, many.String())
	want("very many names", map[uint32]string{0: "u0", 4095: "u4095", 4096: "4096"})
	list := []User{{Name: "one", UID: 1, GID: 2}, {Name: "two", UID: 3, GID: 4}, {Name: "three", UID: 3, GID: 4}}
	u := &users{list: list, fallback: &list[2], passwd: idNames{file: path}, group: idNames{file: path + " gone"}}
	for id, want := range map[uint32][2]string{1: {"one", "1"}, 2: {"u2", "one"}, 3: {"three", "3"}, 4: {"u4", "three"}, 9: {"u9", "9"}} {
		if got := [2]string{u.owner(id), u.ownerGroup(id)}; got != want {
			t.Errorf("the owner and group %d are %q, want %q", id, got, want)
		}
	}
}
