//go:build linux

package envd

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestDownloadOfALargeFile checks that a large file is compressed only for a client that ranks gzip above
// identity, and that it otherwise has its length.
func TestDownloadOfALargeFile(t *testing.T) {
	t.Parallel()
	d := serve(t)
	for name, size := range map[string]int{"small": maxCompressed, "large": maxCompressed + 1} {
		put(t, d.home+"/"+name, strings.Repeat("a", size))
	}
	for _, test := range []struct {
		file, accepts string
		gzip          bool
	}{
		{"small", "gzip", true},
		{"large", "gzip", false},
		{"large", "gzip, deflate, br, zstd", false},
		{"large", "*;q=0, gzip", true},
		{"large", "gzip, identity;q=0.5", true},
		{"large", "gzip;q=0.5, identity", false},
	} {
		res, body := d.do(t, "GET", "/files?path="+test.file, "", "Accept-Encoding", test.accepts)
		if got := res.Header.Get("Content-Encoding") == "gzip"; got != test.gzip {
			t.Errorf("%s, %q: compressed is %v, want %v", test.file, test.accepts, got, test.gzip)
		}
		if test.gzip {
			body = unzip(t, body)
		} else if res.ContentLength != int64(len(body)) {
			t.Errorf("%s, %q: a length of %d, want %d", test.file, test.accepts, res.ContentLength, len(body))
		}
		want := maxCompressed
		if test.file == "large" {
			want++
		}
		if body != strings.Repeat("a", want) {
			t.Errorf("%s, %q: got %d bytes, want %d", test.file, test.accepts, len(body), want)
		}
	}
}

// TestCodingOfADownload checks that each header that speaks of the bytes of the file keeps it from being compressed,
// and up to which size a file is compressed.
func TestCodingOfADownload(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		header, value, accepts string
		size                   int64
		want                   string
	}{
		{"Range", "bytes=0-1", "gzip", 1, identity},
		{"If-Modified-Since", "x", "gzip", 1, identity},
		{"If-None-Match", "x", "gzip", 1, identity},
		{"If-Range", "x", "gzip", 1, identity},
		{"If-Match", "x", "gzip", 1, gzipCoding},
		{"If-Unmodified-Since", "x", "gzip", 1, gzipCoding},
		{"Range", "bytes=0-1", "gzip, *;q=0", 1, ""},
		{"If-Modified-Since", "x", "gzip, identity;q=0", 1, ""},
		{"If-None-Match", "x", "gzip, identity;q=0", 1, ""},
		{"If-Range", "x", "gzip, identity;q=0", 1, ""},
		{"If-Range", "x", "gzip, *;q=0, identity", 1, identity},
		{"Accept", "*/*", "gzip", maxCompressed, gzipCoding},
		{"Accept", "*/*", "gzip", maxCompressed + 1, identity},
		{"Accept", "*/*", "gzip, identity;q=0", maxCompressed + 1, gzipCoding},
		{"Accept", "*/*", "br, identity;q=0", maxCompressed + 1, ""},
		{"Accept", "*/*", "br, identity;q=0", 0, ""},
	} {
		got, err := downloadCoding(http.Header{tt.header: {tt.value}, "Accept-Encoding": {tt.accepts}}, tt.size)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s: %s, for %q and %d bytes: got %q and error %v, want %q", tt.header, tt.value, tt.accepts, tt.size, got, err, tt.want)
		}
		if err != nil {
			must.Is(t, err, errNotAcceptable)
		}
	}
}

// TestTypeOfACompressedDownload checks that the type of a compressed file is that of its name, and not of its bytes.
func TestTypeOfACompressedDownload(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"a.html": "text/html; charset=utf-8", "a.png": "image/png", "a": "application/octet-stream"} {
		path := filepath.Join(t.TempDir(), name)
		put(t, path, "plain text")
		f, err := os.Open(path)
		must.Do(t, err)
		w := httptest.NewRecorder()
		sendCompressed(w, f)
		must.Do(t, f.Close())
		if kind, coding := w.Header().Get("Content-Type"), w.Header().Get("Content-Encoding"); kind != want || coding != "gzip" {
			t.Errorf("%s: got the type %q and the coding %q, want %q and gzip", name, kind, coding, want)
		}
		if got := unzip(t, w.Body.String()); got != "plain text" {
			t.Errorf("%s: got %q", name, got)
		}
	}
}
