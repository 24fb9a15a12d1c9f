//go:build linux

package envd

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// exchange is a request on the wire, and the answer of envd 0.6.13.
type exchange struct {
	name, request string
	status        string // every status line, interim ones too
	kind          string // Content-Type
	body          string // of a streamed answer, its frames
}

const (
	okJSON    = "application/json"
	errorJSON = "application/json; charset=utf-8"
	plainText = "text/plain; charset=utf-8"
	streamed  = "application/connect+json"
	octets    = "application/octet-stream"
)

// get returns the bytes of a request without a body.
func get(target string, header ...string) string {
	return "GET " + target + " HTTP/1.1\r\nHost: envd\r\nConnection: close\r\n" + strings.Join(append(header, ""), "\r\n") + "\r\n"
}

// post returns the bytes of a request with a body.
func post(target, contentType, body string, header ...string) string {
	header = append(header, "Content-Type: "+contentType, fmt.Sprintf("Content-Length: %d", len(body)))
	return "POST" + strings.TrimPrefix(get(target, header...), "GET") + body
}

// file is a form with one file in it, of boundary b.
func file(field, text string) string {
	return "--b\r\nContent-Disposition: form-data; name=\"" + field + "\"; filename=\"name\"\r\n\r\n" + text + "\r\n--b--\r\n"
}

// check sends every request on a connection of its own and compares the answers.
func (d *daemon) check(t *testing.T, exchanges []exchange) {
	t.Helper()
	for _, want := range exchanges {
		got := d.exchange(t, want)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(exchange{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", want.name, diff)
		}
	}
}

func (d *daemon) exchange(t *testing.T, of exchange) exchange {
	t.Helper()
	conn, err := dialPatiently(t.Context(), "tcp", strings.TrimPrefix(d.url, "http://"))
	must.Do(t, err)
	defer conn.Close()
	if _, err := io.WriteString(conn, of.request); err != nil {
		t.Fatal(err)
	}
	got := exchange{name: of.name, request: of.request}
	for in := bufio.NewReader(conn); ; {
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("%s: %v", of.name, err)
		}
		got.status = strings.TrimSpace(got.status + " " + fmt.Sprint(res.StatusCode))
		if res.StatusCode == http.StatusContinue {
			continue
		}
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatalf("%s: %v", of.name, err)
		}
		got.kind, got.body = res.Header.Get("Content-Type"), readable(t, res, string(body))
		return got
	}
}

var pids = regexp.MustCompile(`"pid":\d+`)

// readable returns a body without the parts that differ in each answer.
func readable(t *testing.T, res *http.Response, body string) string {
	t.Helper()
	if coding := res.Header.Get("Content-Encoding"); coding != "" {
		body = coding + " " + unzip(t, body)
	}
	if res.Header.Get("Content-Type") != streamed {
		return body
	}
	var list []string
	for _, frame := range frames(t, body) {
		list = append(list, fmt.Sprintf("%d %s", frame[0], compact(t, []byte(frame[5:]))))
	}
	return pids.ReplaceAllString(strings.Join(list, " "), `"pid":1`)
}

// names returns the names of the files in the home.
func (d *daemon) names(t *testing.T) string {
	t.Helper()
	list, err := os.ReadDir(d.home)
	must.Do(t, err)
	var names []string
	for _, entry := range list {
		names = append(names, entry.Name())
	}
	return strings.Join(names, " ")
}

// TestWireOfUploads: a body that is not a form, or contradicts itself, is refused, and
// then nothing is written.
func TestWireOfUploads(t *testing.T) {
	t.Parallel()
	d := serve(t)
	const form = "multipart/form-data; boundary=b"
	const notClosed = `{"code":500,"message":"error reading form: multipart: NextPart: EOF"}` + "\n"
	twice := func(name string) string {
		return fmt.Sprintf("Invalid format for parameter %s: multiple values for single value parameter '%s'\n", name, name)
	}
	stored := func(name string) string {
		return fmt.Sprintf(`[{"name":"%s","path":"%s/%s","type":"file"}]`, name, d.home, name)
	}
	d.check(t, []exchange{
		{"empty form", post("/files?path=no", form, ""), "500", errorJSON, notClosed},
		{"garbage", post("/files?path=no", form, "\x00garbage\r\n"), "500", errorJSON, notClosed},
		{"another boundary", post("/files?path=no", "multipart/form-data; boundary=c", file("file", "text")), "500", errorJSON, notClosed},
		{"no boundary", post("/files?path=no", "multipart/form-data", file("file", "text")), "500", errorJSON,
			`{"code":500,"message":"error parsing multipart form: no multipart boundary param in Content-Type"}` + "\n"},
		{"path twice", post("/files?path=no&path=no", octets, "text"), "400", plainText, twice("path")},
		{"user twice", post("/files?path=no&username=me&username=me", octets, "text"), "400", plainText, twice("username")},
		{"path twice, to read", get("/files?path=a&path=b"), "400", plainText, twice("path")},
		{"nothing in the form", post("/files?path=no", form, "--b--\r\n"), "200", plainText, "[]"},
		{"another field", post("/files?path=no", form, file("other", "text")), "200", plainText, "[]"},
		{"expectation that is not known", post("/files?path=no", octets, "", "Expect: 200-ok"), "417", "", ""},
		{"refused before the body", post("/files?path=no&username=you", octets, "", "Expect: 100-continue"), "401", errorJSON,
			`{"code":401,"message":"error looking up user 'you': user: unknown user you"}` + "\n"},
	})
	if got := d.names(t); got != "" {
		t.Errorf("got files %q from requests that were refused, want none", got)
	}
	d.check(t, []exchange{
		{"a form", post("/files?path=form", form, file("file", "text")), "200", plainText, stored("form")},
		{"asked first", post("/files?path=asked", octets, "text", "Expect: 100-continue"), "100 200", plainText, stored("asked")},
		{"metadata without a key", post("/files?path=bare", octets, "text", "X-Metadata-: value"), "200", plainText, stored("bare")},
		{"gzip with a quality", post("/files?path=zip", octets, zip(t, "text"), "Content-Encoding: gzip;q=1"), "200", plainText, stored("zip")},
		{"the null device", post("/files?path=/dev/null", octets, "text"), "200", plainText, `[{"name":"null","path":"/dev/null","type":"file"}]`},
	})
	if got, want := d.names(t), "asked bare form zip"; got != want {
		t.Errorf("got files %q, want %q", got, want)
	}
}

// TestWireOfDownloads: the null device is an empty file, and a quality that is not a
// number is ignored.
func TestWireOfDownloads(t *testing.T) {
	t.Parallel()
	d := serve(t, func(o *Options) { o.Envs = map[string]string{"A": "1"} })
	put(t, d.home+"/a.txt", "text")
	d.check(t, []exchange{
		{"the null device", get("/files?path=/dev/null"), "200", plainText, ""},
		{"the null device, zipped", get("/files?path=/dev/null", "Accept-Encoding: gzip"), "200", octets, "gzip "},
		{"another device", get("/files?path=/dev/zero"), "400", errorJSON, `{"code":400,"message":"path '/dev/zero' is not a regular file"}` + "\n"},
		{"quality that is no number", get("/files?path=a.txt", "Accept-Encoding: gzip;q=abc"), "200", plainText, "gzip text"},
		{"quality 0", get("/files?path=a.txt", "Accept-Encoding: gzip;q=0"), "200", plainText, "text"},
		{"variables", get("/envs"), "200", okJSON, `{"A":"1"}` + "\n"},
		{"an error", get("/files?path=none"), "404", errorJSON, fmt.Sprintf(`{"code":404,"message":"path '%s/none' does not exist"}`, d.home) + "\n"},
	})
	if res, _ := d.do(t, "GET", "/metrics", ""); res.Header.Get("Content-Type") != okJSON {
		t.Errorf("metrics: got Content-Type %q, want %q", res.Header.Get("Content-Type"), okJSON)
	}
}

// TestWireOfCalls: replies are compressed when asked for, a message that was cut off is
// the client's mistake, and an empty command is one that is not found.
func TestWireOfCalls(t *testing.T) {
	t.Parallel()
	d := serve(t)
	const start, list = "/process.Process/Start", "/process.Process/List"
	whole := envelope(`{"process":{"cmd":"true"}}`)
	cut := func(got int) string {
		return fmt.Sprintf(`2 {"error":{"code":"invalid_argument","message":"protocol error: promised 26 bytes in enveloped message, got %d bytes: unexpected EOF"}}`, got)
	}
	const half = `2 {"error":{"code":"invalid_argument","message":"protocol error: incomplete envelope: unexpected EOF"}}`
	const empty = `0 {"event":{"start":{"pid":1}}} 0 {"event":{"data":{"stderr":"c2g6IHRoZSBjb21tYW5kIGlzIGVtcHR5Cg=="}}} ` +
		`0 {"event":{"end":{"exitCode":127,"exited":true,"status":"exit status 127","error":"exit status 127"}}} 2 {}`
	d.check(t, []exchange{
		{"gzip asked for", post(list, okJSON, "{}", "Accept-Encoding: gzip"), "200", okJSON, "gzip {}"},
		{"identity asked for", post(list, okJSON, "{}", "Accept-Encoding: identity"), "200", okJSON, "{}"},
		{"nothing asked for", post(list, okJSON, "{}"), "200", okJSON, "{}"},
		{"an error is not compressed", post("/process.Process/SendSignal", okJSON, `{"process":{"pid":999999999},"signal":9}`, "Accept-Encoding: gzip"), "404", okJSON,
			`{"code":"not_found","message":"process with pid 999999999 not found"}`},
		{"with a character set", post(list, errorJSON, "{}"), "200", errorJSON, "{}"},
		{"half a length", post(start, streamed, whole[:3]), "200", streamed, half},
		{"no message", post(start, streamed, whole[:5]), "200", streamed, cut(0)},
		{"half a message", post(start, streamed, whole[:12]), "200", streamed, cut(7)},
		{"half a length, watching", post("/filesystem.Filesystem/WatchDir", streamed, whole[:4]), "200", streamed, half},
		{"half a message, streaming", post("/process.Process/StreamInput", streamed, whole[:12]), "200", streamed, cut(7)},
		{"an empty command", post(start, streamed, envelope(`{"process":{"cmd":""}}`)), "200", streamed, empty},
		{"no command", post(start, streamed, envelope(`{}`)), "200", streamed, empty},
	})
}
