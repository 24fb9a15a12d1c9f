//go:build linux

package envd

import (
	"strings"
	"testing"
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
