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
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/patience"
)

// slowUpload is an upload whose body has yet to be sent.
type slowUpload struct{ *net.TCPConn }

func (d *daemon) beginUpload(t *testing.T, path string, size int64) slowUpload {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := fmt.Fprintf(conn, "POST /files?path=%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n",
		url.QueryEscape(path), size); err != nil {
		t.Fatal(err)
	}
	return slowUpload{conn.(*net.TCPConn)}
}

func (u slowUpload) send(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(u, text); err != nil {
		t.Fatal(err)
	}
}

func (u slowUpload) answer(t *testing.T) int {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(u), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Error(err)
	}
	return res.StatusCode
}

// TestSupersededUpload completes an upload while an older one of the same new file
// is in progress: however the older one ends, the complete one stays.
func TestSupersededUpload(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, path string
		cut        bool
	}{
		{"older one cut", "file", true},
		{"older one completed", "file", false},
		{"older one cut, through a link", "link", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := serve(t)
			if err := os.Symlink("file", d.home+"/link"); err != nil {
				t.Fatal(err)
			}
			older := d.beginUpload(t, "file", 3*block)
			older.send(t, strings.Repeat("o", 2*block))
			patience.Until(t, "the older upload's file", func() bool {
				_, err := os.Stat(d.home + "/file")
				return err == nil
			})
			newer := strings.Repeat("n", block+100)
			if res, answer := d.do(t, "POST", "/files?path="+test.path, newer, "Content-Type", "application/octet-stream"); res.StatusCode != 200 {
				t.Fatalf("the newer upload: %d %s, want 200", res.StatusCode, answer)
			}
			if test.cut {
				if err := older.CloseWrite(); err != nil {
					t.Fatal(err)
				}
			} else {
				older.send(t, strings.Repeat("o", block))
			}
			older.answer(t)
			if got := content(t, d.home+"/file"); got != newer {
				t.Errorf("the file holds %d bytes, %d of them the older upload's, want %d of the newer one's", len(got), strings.Count(got, "o"), len(newer))
			}
			if list, err := os.ReadDir(d.home); err != nil || len(list) != 2 {
				t.Errorf("left %v, %v, want 2 files and no error", list, err)
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
