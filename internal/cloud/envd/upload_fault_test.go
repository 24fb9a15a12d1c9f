//go:build linux

package envd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// slowUpload is an upload whose body has yet to be sent.
type slowUpload struct{ *net.TCPConn }

func (d *daemon) beginUpload(t *testing.T, path string, size int64) slowUpload {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
	must.Do(t, err)
	t.Cleanup(func() { conn.Close() })
	if _, err := fmt.Fprintf(conn, "POST /files?path=%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n",
		url.QueryEscape(path), size); err != nil {
		t.Fatal(err)
	}
	return slowUpload{conn.(*net.TCPConn)}
}

func (u slowUpload) send(t *testing.T, text string) {
	t.Helper()
	_, err := io.WriteString(u, text)
	must.Do(t, err)
}

func (u slowUpload) answer(t *testing.T) int {
	t.Helper()
	must.Do(t, u.SetReadDeadline(patience.Deadline()))
	res, err := http.ReadResponse(bufio.NewReader(u), nil)
	must.Do(t, err)
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Error(err)
	}
	return res.StatusCode
}

// TestUploadInProgress looks at a directory, as a snapshot does, while an upload of a new
// file is in progress. Nothing of the upload is there, whether the file's name is free or
// that of a link that leads nowhere. Cut off, the upload leaves nothing; completed, the
// file.
func TestUploadInProgress(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"file", "link"} {
		for _, cut := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, cut %v", path, cut), func(t *testing.T) {
				t.Parallel()
				d := serve(t, withScratch(t))
				must.Do(t, os.Symlink("file", d.home+"/link"))
				u := d.beginUpload(t, path, 3*block)
				u.send(t, strings.Repeat("x", 2*block))
				patience.Until(t, "two blocks of the upload", func() bool { return staged(t, d) >= 2*block })
				if list := names(t, d.home); !slices.Equal(list, []string{"link"}) {
					t.Errorf("while it goes on: %v, want only the link", list)
				}
				if cut {
					must.Do(t, u.CloseWrite())
				} else {
					u.send(t, strings.Repeat("x", block))
				}
				u.answer(t)
				want := []string{"file", "link"}
				if cut {
					want = want[1:]
				} else if got := content(t, d.home+"/file"); got != strings.Repeat("x", 3*block) {
					t.Errorf("the file has %d bytes, want %d", len(got), 3*block)
				}
				if list := names(t, d.home); !slices.Equal(list, want) {
					t.Errorf("at last: %v, want %v", list, want)
				}
			})
		}
	}
}

// withScratch serves with a scratch directory that no other test uses.
func withScratch(t *testing.T) func(*Options) {
	dir := t.TempDir()
	return func(o *Options) { o.Scratch = dir }
}

// staged returns the size of the files without a name that this process has open in the
// scratch directory of d.
func staged(t *testing.T, d *daemon) (size int64) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	must.Do(t, err)
	for _, fd := range list {
		path := "/proc/self/fd/" + fd.Name()
		if to, err := os.Readlink(path); err != nil || !strings.HasPrefix(to, d.server.scratch+"/") {
			continue
		}
		if info, err := os.Stat(path); err == nil {
			size += info.Size()
		}
	}
	return size
}

func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must.Do(t, err)
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// TestStagedElsewhere uploads new files where files of the scratch directory cannot be
// linked, and where no file can be without a name.
func TestStagedElsewhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("this test needs a filesystem of its own: mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	d := serve(t)
	text := strings.Repeat("x", block+1)
	for _, text := range []string{"", "small", text} {
		path := fmt.Sprintf("%s/%d", dir, len(text))
		if res, answer := d.do(t, "POST", "/files?path="+url.QueryEscape(path), text, "Content-Type", "application/octet-stream"); res.StatusCode != 200 {
			t.Fatalf("%d bytes: %d %s, want 200", len(text), res.StatusCode, answer)
		}
		if got := content(t, path); got != text {
			t.Errorf("the file has %d bytes, want %d", len(got), len(text))
		}
	}
	if list := names(t, dir); len(list) != 3 {
		t.Errorf("left %v, want 3 files", list)
	}

	// A file that cannot be linked there is staged anew beside its name.
	c := &received{head: []byte("moved"), size: 5}
	must.Do(t, c.stage(d.server.scratch))
	user, err := d.server.users.lookup("")
	must.Do(t, err)
	_, err = d.server.create(dir+"/moved", c, user, nil)
	if err = errors.Join(err, c.close()); err != nil {
		t.Error(err)
	}
	if got := content(t, dir+"/moved"); got != "moved" {
		t.Errorf("the file holds %q, want %q", got, "moved")
	}

	named := &stagedFile{}
	f, err := os.Create(dir + "/.upload-x")
	must.Do(t, err)
	named.File, named.name = f, f.Name()
	if err := named.link(dir + "/moved"); !errors.Is(err, os.ErrExist) {
		t.Errorf("linked over a file: %v, want os.ErrExist", err)
	}
	if err := errors.Join(named.link(dir+"/linked"), named.Close()); err != nil {
		t.Error(err)
	}
	if list := names(t, dir); len(list) != 5 || slices.Contains(list, ".upload-x") {
		t.Errorf("left %v, want 5 files", list)
	}
}

// TestNoScratch uploads where a program has removed the scratch directory.
func TestNoScratch(t *testing.T) {
	t.Parallel()
	d := serve(t, func(o *Options) { o.Scratch = "/nonexistent" })
	for _, text := range []string{"new", strings.Repeat("x", block+1), strings.Repeat("y", block+1)} {
		if res, answer := d.do(t, "POST", "/files?path=file", text, "Content-Type", "application/octet-stream"); res.StatusCode != 200 {
			t.Fatalf("%d bytes: %d %s, want 200", len(text), res.StatusCode, answer)
		}
		if got := content(t, d.home+"/file"); got != text {
			t.Errorf("the file has %d bytes, want %d", len(got), len(text))
		}
	}
}

// TestLastUploadRemains completes an upload while an older one of the same new file is
// in progress: the one that is complete last remains, and one that is cut off does not
// count.
func TestLastUploadRemains(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, path string
		cut        bool
	}{
		{"older one cut", "file", true},
		{"older one completed", "file", false},
		{"older one cut, through a link", "link", true},
		{"older one completed, through a link", "link", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := serve(t, withScratch(t))
			must.Do(t, os.Symlink("file", d.home+"/link"))
			older := d.beginUpload(t, "file", 3*block)
			older.send(t, strings.Repeat("o", 2*block))
			patience.Until(t, "two blocks of the older upload", func() bool { return staged(t, d) >= 2*block })
			want := strings.Repeat("n", block+100)
			if res, answer := d.do(t, "POST", "/files?path="+test.path, want, "Content-Type", "application/octet-stream"); res.StatusCode != 200 {
				t.Fatalf("the newer upload: %d %s, want 200", res.StatusCode, answer)
			}
			if test.cut {
				must.Do(t, older.CloseWrite())
			} else {
				older.send(t, strings.Repeat("o", block))
				want = strings.Repeat("o", 3*block)
			}
			older.answer(t)
			if got := content(t, d.home+"/file"); got != want {
				t.Errorf("the file holds %d bytes, %d of them the older upload's, want %d and %d", len(got), strings.Count(got, "o"), len(want), strings.Count(want, "o"))
			}
			if list := names(t, d.home); !slices.Equal(list, []string{"file", "link"}) {
				t.Errorf("left %v, want 2 files", list)
			}
		})
	}
}

// TestTenWriters writes one file ten times at once, each time with a different
// size: in the end, one of them is there as a whole.
func TestTenWriters(t *testing.T) {
	t.Parallel()
	d := serve(t)
	for _, existing := range []bool{false, true} {
		for round := range 5 {
			path := fmt.Sprintf("%s/%v-%d", d.home, existing, round)
			if existing {
				put(t, path, "old")
			}
			var writers sync.WaitGroup
			for i := range 10 {
				writers.Go(func() {
					text := strings.Repeat(string(rune('a'+i)), 1000+i*block/3)
					if res, answer := d.do(t, "POST", "/files?path="+url.QueryEscape(path), text, "Content-Type", "application/octet-stream"); res.StatusCode != 200 {
						t.Errorf("%d: got %d %s, want 200", i, res.StatusCode, answer)
					}
				})
			}
			writers.Wait()
			got := content(t, path)
			i := int(got[0] - 'a')
			if want := strings.Repeat(got[:1], 1000+i*block/3); got != want {
				t.Errorf("the file holds %d bytes, %d of them of writer %d, who wrote %d", len(got), strings.Count(got, got[:1]), i, len(want))
			}
		}
	}
}

// TestNoRoom announces an upload that cannot fit: the answer comes before the
// body, and no disk space is used meanwhile.
func TestNoRoom(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("this test needs a small filesystem of its own: mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	d := serve(t, func(o *Options) { o.Scratch = dir })
	put(t, dir+"/old", "old")
	for _, name := range []string{"new", "old", "deep/er/new"} {
		if status := d.beginUpload(t, dir+"/"+name, 4<<30).answer(t); status != http.StatusInsufficientStorage {
			t.Errorf("%s: %d, want 507", name, status)
		}
	}
	if got := content(t, dir+"/old"); got != "old" {
		t.Errorf("the old file holds %q, want %q", got, "old")
	}
	if _, err := os.Stat(dir + "/new"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a new file: %v, want os.ErrNotExist", err)
	}
	// An upload that fits is accepted.
	if res, answer := d.do(t, "POST", "/files?path="+url.QueryEscape(dir+"/fits"), strings.Repeat("x", 3<<20), "Content-Type", "application/octet-stream"); res.StatusCode != 200 {
		t.Errorf("got %d %s, want 200", res.StatusCode, answer)
	}
}

// TestNoRoomInHoles overwrites a sparse file with content for which the disk has no room:
// the old content stays.
func TestNoRoomInHoles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("this test needs a small filesystem of its own: mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	d := serve(t)
	path := dir + "/holes"
	for _, old := range []int64{8 << 20, 6 << 20, 5 << 20} { // longer than the upload, as long, and shorter
		put(t, path, "old")
		must.Do(t, os.Truncate(path, old))
		if res, answer := d.do(t, "POST", "/files?path="+url.QueryEscape(path), strings.Repeat("x", 6<<20), "Content-Type", "application/octet-stream"); res.StatusCode != http.StatusInsufficientStorage {
			t.Errorf("into %d bytes: %d %s, want 507", old, res.StatusCode, answer)
		}
		got := content(t, path)
		if int64(len(got)) != old || !strings.HasPrefix(got, "old\x00") {
			t.Errorf("the file has %d bytes and begins with %q, want %d and %q", len(got), got[:4], old, "old\x00")
		}
	}
}

// TestNameThatIsAlwaysTaken checks that an upload gives up if its name is never free and never leads
// to a file either. This also happens if other uploads always use the name first.
func TestNameThatIsAlwaysTaken(t *testing.T) {
	t.Parallel()
	d := serve(t)
	must.Do(t, os.Symlink("nowhere", d.home+"/link"))
	c := &received{head: []byte("x"), size: 1}
	defer func() { must.Do(t, c.close()) }()
	must.Do(t, c.stage(d.home))
	// With the slash, the link leads nowhere, and yet its name is taken.
	_, err := d.server.settle(d.home+"/link/", c, &d.server.users.list[0], nil)
	if refused, ok := errors.AsType[*uploadError](err); !ok || refused.status != http.StatusConflict {
		t.Errorf("got error %v, want one with status %d", err, http.StatusConflict)
	}
	if list := names(t, d.home); !slices.Equal(list, []string{"link"}) {
		t.Errorf("left %v, want the link", list)
	}
}
