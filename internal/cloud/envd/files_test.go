//go:build linux

package envd

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/e2bctl/e2bctl/internal/gen/filesystem"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

func put(t *testing.T, path, text string) {
	t.Helper()
	must.Do(t, os.WriteFile(path, []byte(text), 0o644))
}

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must.Do(t, err)
	return string(text)
}

func zip(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.WriteString(w, text)
	must.Do(t, err)
	must.Do(t, w.Close())
	return b.String()
}

func unzip(t *testing.T, body string) string {
	t.Helper()
	r, err := gzip.NewReader(strings.NewReader(body))
	must.Do(t, err)
	text, err := io.ReadAll(r)
	must.Do(t, err)
	return string(text)
}

func TestDownload(t *testing.T) {
	t.Parallel()
	d := serve(t)
	put(t, d.home+"/a.txt", "0123456789")
	put(t, d.home+"/empty", "")
	must.Do(t, unix.Mkfifo(d.home+"/pipe", 0o600))
	notFound := fmt.Sprintf(`{"code":404,"message":"path '%s/none' does not exist"}`+"\n", d.home)
	for name, test := range map[string]struct {
		target string
		header []string
		status int
		body   string
		want   map[string]string
	}{
		"identity": {"/files?path=a.txt", nil, 200, "0123456789", map[string]string{
			"Vary": "Accept-Encoding", "Content-Disposition": "inline; filename=a.txt", "Content-Type": "text/plain; charset=utf-8",
			"Accept-Ranges": "bytes", "Content-Length": "10", "Content-Encoding": "",
		}},
		"empty":          {"/files?path=~/empty", nil, 200, "", map[string]string{"Content-Length": "0", "Accept-Ranges": "bytes"}},
		"range":          {"/files?path=a.txt", []string{"Range", "bytes=2-4", "Accept-Encoding", "gzip"}, 206, "234", map[string]string{"Content-Range": "bytes 2-4/10"}},
		"bad range":      {"/files?path=a.txt", []string{"Range", "bytes=99-"}, 416, "invalid range: failed to overlap\n", nil},
		"not modified":   {"/files?path=a.txt", []string{"If-Modified-Since", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)}, 304, "", nil},
		"range, refused": {"/files?path=a.txt", []string{"Range", "bytes=2-4", "Accept-Encoding", "gzip, identity;q=0"}, 406, `{"code":406,"message":"error parsing Accept-Encoding: no acceptable encoding found, supported: [gzip]"}` + "\n", nil},
		"missing":        {"/files?path=none", nil, 404, notFound, nil},
		"directory":      {"/files", nil, 400, fmt.Sprintf(`{"code":400,"message":"path '%s' is a directory"}`+"\n", d.home), nil},
		"pipe":           {"/files?path=pipe", nil, 400, fmt.Sprintf(`{"code":400,"message":"path '%s/pipe' is not a regular file"}`+"\n", d.home), nil},
		"stranger":       {"/files?path=a.txt&username=x", nil, 401, `{"code":401,"message":"error looking up user 'x': user: unknown user x"}` + "\n", nil},
		"stranger's":     {"/files?path=~x/a.txt", nil, 400, `{"code":400,"message":"cannot expand user-specific home dir"}` + "\n", nil},
		"bad expiration": {"/files?path=a.txt&signature_expiration=soon", nil, 400, "Invalid format for parameter signature_expiration: not an integer\n", map[string]string{"Content-Type": "text/plain; charset=utf-8"}},
		"nothing agreed": {"/files?path=a.txt", []string{"Accept-Encoding", "br, *;q=0"}, 406, `{"code":406,"message":"error parsing Accept-Encoding: no acceptable encoding found, supported: [gzip]"}` + "\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res, body := d.do(t, "GET", test.target, "", test.header...)
			if res.StatusCode != test.status || body != test.body {
				t.Errorf("%d %q, want %d %q", res.StatusCode, body, test.status, test.body)
			}
			for key, want := range test.want {
				if got := res.Header.Get(key); got != want {
					t.Errorf("%s: %q, want %q", key, got, want)
				}
			}
		})
	}
	res, body := d.do(t, "GET", "/files?path=a.txt", "", "Accept-Encoding", "gzip, deflate")
	if res.Header.Get("Content-Encoding") != "gzip" || res.Header.Get("Last-Modified") != "" || unzip(t, body) != "0123456789" {
		t.Errorf(`gzip: %v %q, want header "Content-Encoding" = %q, no header "Last-Modified") and unzip(t, body %q`, res.Header, body, "gzip", "0123456789")
	}
	if _, body := d.do(t, "GET", "/files?path=/proc/self/status", ""); !strings.HasPrefix(body, "Name:") {
		t.Errorf("a file of the kernel: %.80q, want %q at its start", body, "Name:")
	}
}

func TestSignedDownload(t *testing.T) {
	t.Parallel()
	d := serve(t, func(o *Options) { o.Token = "secret" })
	put(t, d.home+"/a", "text")
	future, past := fmt.Sprint(time.Now().Unix()+60), fmt.Sprint(time.Now().Unix()-60)
	signed := func(operation, expiration string) string {
		query := url.Values{"path": {"a"}, "signature": {signature("a", operation, "", "secret", expiration)}}
		if expiration != "" {
			query.Set("signature_expiration", expiration)
		}
		return "/files?" + query.Encode()
	}
	for name, test := range map[string]struct {
		target, token string
		status        int
		message       string
	}{
		"token":                  {"/files?path=a", "secret", 200, ""},
		"wrong token":            {signed("read", ""), "wrong", 401, "access token present in header but does not match"},
		"nothing":                {"/files?path=a", "", 401, "missing signature query parameter"},
		"signature":              {signed("read", ""), "", 200, ""},
		"padded":                 {signed("read", "") + "%3D", "", 200, ""},
		"of the other operation": {signed("write", ""), "", 401, "invalid signature"},
		"valid":                  {signed("read", future), "", 200, ""},
		"expired":                {signed("read", past), "", 401, "signature is already expired"},
		"expires too late":       {signed("read", "99999999999999999999"), "", 400, "not an integer"},
		"changed expiration":     {strings.Replace(signed("read", past), past, future, 1), "", 401, "invalid signature"},
	} {
		var header []string
		if test.token != "" {
			header = []string{"X-Access-Token", test.token}
		}
		res, body := d.do(t, "GET", test.target, "", header...)
		if res.StatusCode != test.status || !strings.Contains(body, test.message) {
			t.Errorf("%s: %d %s, want %d %q", name, res.StatusCode, body, test.status, test.message)
		}
	}
}

func TestAcceptEncoding(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		"":                                "identity",
		"gzip":                            "gzip",
		"gzip, deflate, br":               "gzip",
		"identity, gzip":                  "identity",
		"identity;q=0.5, gzip":            "gzip",
		"gzip;q=0.5, identity;q=0.8":      "identity",
		"br":                              "identity",
		"*":                               "identity",
		"*, identity;q=0":                 "gzip",
		"identity;q=0":                    "",
		"*;q=0":                           "",
		"*;q=0, gzip":                     "gzip",
		"*;q=0, identity":                 "identity",
		"gzip;level=0":                    "gzip",
		"gzip;level=0;q=0, identity;q=0":  "",
		"GZIP;Q=1.0":                      "gzip",
		"gzip;q=oops":                     "gzip",
		"gzip;q=0, *, identity;q=0":       "",
		"gzip;q=NaN, identity;q=0":        "gzip",
		"gzip;q=-1, identity;q=0":         "gzip",
		"gzip;q=1e309, identity;q=0.9":    "gzip",
		"x-unknown;q=1.0, identity;q=0.1": "identity",
	} {
		got, err := parseAcceptEncoding(header).coding()
		if got != want || (want == "") != (err != nil) {
			t.Errorf("coding of %q: %q, %v, want %q", header, got, err, want)
		}
	}
}

func FuzzAcceptEncoding(f *testing.F) {
	for _, header := range []string{"gzip;q=0.5,*;q=0", ";;;,,,=", "identity;q=1e309"} {
		f.Add(header)
	}
	f.Fuzz(func(t *testing.T, header string) {
		got, err := parseAcceptEncoding(header).coding()
		if err == nil && got != identity && got != gzipCoding {
			t.Errorf("coding of %q: %q", header, got)
		}
	})
}

type part struct{ field, disposition, text string }

func form(t *testing.T, parts ...part) (contentType, body string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, p := range parts {
		dst, err := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="` + p.field + `"` + p.disposition}})
		must.Do(t, err)
		if _, err := io.WriteString(dst, p.text); err != nil {
			t.Fatal(err)
		}
	}
	must.Do(t, w.Close())
	return w.FormDataContentType(), b.String()
}

func TestUploadForm(t *testing.T) {
	t.Parallel()
	d := serve(t)
	contentType, body := form(t,
		part{"file", `; filename="deep/er/a.txt"`, "one"},
		part{"note", "", "ignored"},
		part{"file", `; filename="` + d.home + `/b.txt"`, "two"},
	)
	res, answer := d.do(t, "POST", "/files", body, "Content-Type", contentType)
	want := fmt.Sprintf(`[{"name":"a.txt","path":"%s/deep/er/a.txt","type":"file"},{"name":"b.txt","path":"%s/b.txt","type":"file"}]`, d.home, d.home)
	if res.StatusCode != 200 || answer != want || res.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("%d %s %s, want %s", res.StatusCode, res.Header.Get("Content-Type"), answer, want)
	}
	if got := content(t, d.home+"/deep/er/a.txt") + content(t, d.home+"/b.txt"); got != "onetwo" {
		t.Errorf("wrote %q, want %q", got, "onetwo")
	}

	contentType, body = form(t, part{"file", `; filename="x"`, "first"}, part{"file", `; filename="y"`, "second"})
	res, answer = d.do(t, "POST", "/files?path=same", body, "Content-Type", contentType)
	if res.StatusCode != 400 || !strings.Contains(answer, "you cannot upload multiple files to the same path") || content(t, d.home+"/same") != "first" {
		t.Errorf(`got %d %s, want status 400, %q in it and the file %q`, res.StatusCode, answer, "you cannot upload multiple files to the same path", "first")
	}
	contentType, body = form(t, part{"other", `; filename="x"`, "first"})
	if res, answer := d.do(t, "POST", "/files", body, "Content-Type", contentType); res.StatusCode != 200 || answer != "[]" {
		t.Errorf("no file parts: %d %s, want status 200 and answer %q", res.StatusCode, answer, "[]")
	}
	contentType, body = form(t, part{"file", "", "x"})
	if res, answer := d.do(t, "POST", "/files", body, "Content-Type", contentType); res.StatusCode != 400 {
		t.Errorf("no file name: %d %s, want 400", res.StatusCode, answer)
	}
	contentType, body = form(t, part{"file", `; filename="cut"`, "x"})
	if res, answer := d.do(t, "POST", "/files", body[:len(body)-10], "Content-Type", contentType); res.StatusCode < 400 {
		t.Errorf("cut form: %d %s, want at least 400", res.StatusCode, answer)
	}
}

// FuzzWholeFileName: a name that a client sends is returned unchanged,
// including directories.
func FuzzWholeFileName(f *testing.F) {
	for _, name := range []string{"a/b", "/abs", `quo"te\`, "\u20ac", "..", "a;b=c"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		disposition := mime.FormatMediaType("form-data", map[string]string{"name": "file", "filename": name})
		p := &multipart.Part{Header: textproto.MIMEHeader{"Content-Disposition": {disposition}}}
		if got := wholeFileName(p); got != name {
			t.Errorf("%s: %q, want %q", disposition, got, name)
		}
	})
}

func TestUploadRaw(t *testing.T) {
	t.Parallel()
	d := serve(t)
	const raw = "application/octet-stream"
	put(t, d.home+"/file", "x")
	for name, test := range map[string]struct {
		target, body string
		header       []string
		status       int
		answer       string
	}{
		"plain":         {"/files?path=a", "text", []string{"Content-Type", raw}, 200, `"path":"` + d.home + `/a"`},
		"gzip":          {"/files?path=b", zip(t, "zipped"), []string{"Content-Type", raw, "Content-Encoding", "gzip"}, 200, ""},
		"identity":      {"/files?path=c", "text", []string{"Content-Type", raw, "Content-Encoding", "identity"}, 200, ""},
		"brotli":        {"/files?path=d", "text", []string{"Content-Type", raw, "Content-Encoding", "br"}, 400, "unsupported Content-Encoding: br, supported: [gzip]"},
		"not gzip":      {"/files?path=d", "text", []string{"Content-Type", raw, "Content-Encoding", "gzip"}, 400, "error decompressing"},
		"no path":       {"/files", "text", []string{"Content-Type", raw}, 400, "path query parameter is required"},
		"no type":       {"/files?path=d", "text", nil, 400, "unsupported content type: , expected multipart/form-data or application/octet-stream"},
		"bad type":      {"/files?path=d", "text", []string{"Content-Type", raw + "; a"}, 400, "unsupported content type: application/octet-stream; a, expected"},
		"bad form":      {"/files?path=d", "text", []string{"Content-Type", "multipart/form-data; boundary"}, 400, "unsupported content type: multipart/form-data; boundary, expected"},
		"no boundary":   {"/files?path=d", "text", []string{"Content-Type", "multipart/form-data"}, 500, "boundary"},
		"directory":     {"/files?path=/", "text", []string{"Content-Type", raw}, 400, "path is a directory: /"},
		"below a file":  {"/files?path=file/x", "text", []string{"Content-Type", raw}, 500, "error ensuring directories: path is a file: " + d.home + "/file"},
		"device":        {"/files?path=/dev/null", "text", []string{"Content-Type", raw}, 200, `"path":"/dev/null"`},
		"full device":   {"/files?path=/dev/full", "text", []string{"Content-Type", raw}, 507, "not enough disk space"},
		"bad metadata":  {"/files?path=d", "text", []string{"Content-Type", raw, "X-Metadata-A", "caf\xc3\xa9"}, 400, "invalid metadata"},
		"much metadata": {"/files?path=d", "text", []string{"Content-Type", raw, "X-Metadata-A", strings.Repeat("x", 4096)}, 400, "invalid metadata"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res, answer := d.do(t, "POST", test.target, test.body, test.header...)
			if res.StatusCode != test.status || !strings.Contains(answer, test.answer) {
				t.Errorf("%d %s, want %d with %q", res.StatusCode, answer, test.status, test.answer)
			}
		})
	}
	t.Cleanup(func() {
		for name, want := range map[string]string{"a": "text", "b": "zipped", "c": "text"} {
			if got := content(t, d.home+"/"+name); got != want {
				t.Errorf("%s holds %q, want %q", name, got, want)
			}
		}
		if _, err := os.Stat(d.home + "/d"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a refused upload left a file: %v, want os.ErrNotExist", err)
		}
	})
}

// TestOverwrite: an overwritten file keeps its identity.
func TestOverwrite(t *testing.T) {
	t.Parallel()
	d := serve(t)
	for name, size := range map[string]int{"shorter": 3, "longer": 1000, "a block": block, "large": 3*block + 7} {
		dir := filepath.Join(d.home, name)
		must.Do(t, os.Mkdir(dir, 0o755))
		put(t, dir+"/file", strings.Repeat("old", 10))
		must.Do(t, errors.Join(os.Chmod(dir+"/file", 0o750), os.Link(dir+"/file", dir+"/link"), os.Symlink("file", dir+"/symlink")))
		text := strings.Repeat("n", size)
		if res, answer := d.do(t, "POST", "/files?path="+url.QueryEscape(dir+"/symlink"), text, "Content-Type", "application/octet-stream"); res.StatusCode != 200 {
			t.Errorf("%s: got %d %s, want 200", name, res.StatusCode, answer)
		}
		for _, file := range []string{"file", "link", "symlink"} {
			if content(t, dir+"/"+file) != text {
				t.Errorf(`%s: %s does not hold the upload, which is %q`, name, file, text)
			}
		}
		if info, err := os.Stat(dir + "/file"); err != nil || info.Mode() != 0o750 {
			t.Errorf("%s: mode %v, %v, want 0o750 and no error", name, info.Mode(), err)
		}
		if list, err := os.ReadDir(dir); err != nil || len(list) != 3 {
			t.Errorf("%s: left %v, %v, want 3 files and no error", name, list, err)
		}
	}
}

// TestCutUpload closes the connection in the middle of a body.
func TestCutUpload(t *testing.T) {
	t.Parallel()
	d := serve(t)
	put(t, d.home+"/old", "old")
	address := strings.TrimPrefix(d.url, "http://")
	for _, size := range []int{10, 2 * block} {
		for _, name := range []string{"old", "new"} {
			conn, err := net.Dial("tcp", address)
			must.Do(t, err)
			fmt.Fprintf(conn, "POST /files?path=%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n%s",
				name, size+1, strings.Repeat("n", size))
			must.Do(t, errors.Join(conn.SetReadDeadline(patience.Deadline()), conn.(*net.TCPConn).CloseWrite()))
			answer, err := io.ReadAll(conn) // the server closes it when it no longer waits
			if err != nil || !bytes.Contains(answer, []byte("400 Bad Request")) {
				t.Errorf("%d bytes to %s: %s, %v, want %q in it and no error", size, name, answer, err, []byte("400 Bad Request"))
			}
			conn.Close()
		}
		if got := content(t, d.home+"/old"); got != "old" {
			t.Errorf("after %d bytes the old file holds %d", size, len(got))
		}
		if list, err := os.ReadDir(d.home); err != nil || len(list) != 1 {
			t.Errorf("after %d bytes there is %v, %v, want one file and no error", size, list, err)
		}
	}
}

func TestMetadata(t *testing.T) {
	t.Parallel()
	d := serve(t)
	stat := func() map[string]string {
		res, err := d.files().Stat(t.Context(), connect.NewRequest(&filesystem.StatRequest{Path: "a"}))
		must.Do(t, err)
		return res.Msg.GetEntry().GetMetadata()
	}
	upload := func(header ...string) []written {
		var files []written
		_, answer := d.do(t, "POST", "/files?path=a", "x", append([]string{"Content-Type", "application/octet-stream"}, header...)...)
		if err := json.Unmarshal([]byte(answer), &files); err != nil {
			t.Fatalf("%s: %v", answer, err)
		}
		return files
	}
	put(t, d.home+"/a", "")
	if err := unix.Setxattr(d.home+"/a", metadataPrefix+"old", []byte("x"), 0); errors.Is(err, unix.ENOTSUP) {
		t.Skip("the filesystem of the temporary directory takes no extended attributes")
	}
	files := upload("X-Metadata-Author", "me", "X-Metadata-Kind", "test")
	want := map[string]string{"author": "me", "kind": "test"}
	if diff := cmp.Diff(want, files[0].Metadata) + cmp.Diff(want, stat()); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	upload("X-Metadata-Kind", "other")
	if diff := cmp.Diff(map[string]string{"kind": "other"}, stat()); diff != "" {
		t.Errorf("replaced metadata (-want +got):\n%s", diff)
	}
	upload()
	if got := stat(); len(got) != 0 {
		t.Errorf("cleared metadata: %v, want none", got)
	}
}

func TestCompose(t *testing.T) {
	t.Parallel()
	d := serve(t)
	put(t, d.home+"/1", "one ")
	put(t, d.home+"/2", "two")
	for _, test := range []struct {
		body   string
		status int
		answer string
	}{
		{`{`, 400, "error decoding"},
		{`{"destination":"x"}`, 400, "source_paths"},
		{`{"source_paths":["1"]}`, 400, "destination"},
		{`{"source_paths":["1","1"],"destination":"./1"}`, 400, "equals destination"},
		{`{"source_paths":["~"],"destination":"x"}`, 400, "not a regular file"},
		{`{"source_paths":["none"],"destination":"x"}`, 404, "source file not found: " + d.home + "/none"},
		{`{"source_paths":["1"],"destination":"x","username":"you"}`, 401, "unknown user"},
		{`{"source_paths":["1","2","1"],"destination":"sub/x"}`, 200, `{"name":"x","path":"` + d.home + `/sub/x","type":"file"}`},
	} {
		res, answer := d.do(t, "POST", "/files/compose", test.body)
		if res.StatusCode != test.status || !strings.Contains(answer, test.answer) {
			t.Errorf("%s: %d %s, want %d with %q", test.body, res.StatusCode, answer, test.status, test.answer)
		}
	}
	if got := content(t, d.home+"/sub/x"); got != "one twoone " {
		t.Errorf("composed %q, want %q", got, "one twoone ")
	}
	if info, err := os.Stat(d.home + "/sub/x"); err != nil || info.Mode() != 0o644 {
		t.Errorf("composed with mode %v and error %v, want 0644", info.Mode(), err)
	}
	if list, err := os.ReadDir(d.home); err != nil || len(list) != 1 {
		t.Errorf("left %v, %v, want one file and no error", list, err)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	d := serve(t, func(o *Options) { o.MemoryBytes, o.CPUs = 512<<20, 2 })
	_, body := d.do(t, "GET", "/metrics", "")
	var got usage
	must.Do(t, json.Unmarshal([]byte(body), &got))
	if got.CPUCount != 2 || got.MemTotal != 512<<20 || got.MemTotalMiB != 512 {
		t.Errorf("got %s, want 2 CPUs and 512 MiB", body)
	}
	if got.MemUsed == 0 || got.DiskTotal == 0 || got.DiskUsed > got.DiskTotal {
		t.Errorf("got %s, want memory and a disk that are in use", body)
	}
	if age := time.Now().Unix() - got.Timestamp; age > 60 {
		t.Errorf("got %s, which is %d s old", body, age)
	}
}

func TestCPUPercent(t *testing.T) {
	t.Parallel()
	began := time.Now()
	m := &metrics{cpus: 2, sampled: began}
	for _, test := range []struct {
		at, used time.Duration
		want     float64
	}{{10 * time.Second, 5 * time.Second, 25}, {20 * time.Second, 25 * time.Second, 100}, {30 * time.Second, 24 * time.Second, 0}, {31 * time.Second, 24*time.Second + 1234*time.Microsecond, 0.06}, {31 * time.Second, 25 * time.Second, 0}, {32 * time.Second, 25 * time.Second, 0}} {
		if got := m.percentLocked(began.Add(test.at), test.used); got != test.want {
			t.Errorf("after %v with %v used: %v, want %v", test.at, test.used, got, test.want)
		}
	}
}

// TestDiskFull uploads more than fits, over an existing file and as a new one.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("this test needs a small filesystem of its own: mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	d := serve(t)
	for name, size := range map[string]int{"large": 2 << 20, "small": block} {
		put(t, dir+"/old", "old")
		put(t, dir+"/filler", strings.Repeat("x", 900<<10))
		for _, file := range []string{"old", "new"} {
			res, answer := d.do(t, "POST", "/files?path="+url.QueryEscape(dir+"/"+file), strings.Repeat("n", size), "Content-Type", "application/octet-stream")
			want := fmt.Sprintf(`{"code":507,"message":"attempted to write %d bytes: not enough disk space available"}`+"\n", size)
			if res.StatusCode != http.StatusInsufficientStorage || answer != want {
				t.Errorf("%s to %s: %d %s, want %s", name, file, res.StatusCode, answer, want)
			}
		}
		if got := content(t, dir+"/old"); got != "old" {
			t.Errorf("%s: the old file holds %d bytes", name, len(got))
		}
		if list, err := os.ReadDir(dir); err != nil || len(list) != 2 {
			t.Errorf("%s: left %v, %v, want 2 files and no error", name, list, err)
		}
	}
}
