package control

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// kind is the type of a field in a request.
type kind string

const (
	text    kind = "a string"
	boolean kind = "a boolean"
	number  kind = "a 32-bit integer"
	object  kind = "an object"
	array   kind = "an array"
)

// samples maps each JSON type to a value of this type.
var samples = map[kind]string{text: `"x"`, boolean: `true`, number: `1`, object: `{"x":"x"}`, array: `["x"]`}

// TestFieldTypes checks that each field of each request is refused by name if its value has
// another type, and that null counts as absent.
func TestFieldTypes(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.mustCreate(t, `{"templateID":"base"}`)
	paused := s.mustCreate(t, `{"templateID":"base"}`)
	s.must(t, "POST", "/sandboxes/"+paused+"/pause", ``, 204)
	type request struct {
		method, path string
		valid        string // other required fields
		fields       map[string]kind
		nullStatus   int
	}
	create := map[string]kind{
		"timeout": number, "secure": boolean, "allow_internet_access": boolean, "autoPause": boolean, "autoPauseMemory": boolean,
		"autoResume": object, "autoResume.enabled": boolean, "envVars": object, "metadata": object, "network": object,
		"network.allowOut": array, "network.denyOut": array, "network.allowPublicTraffic": boolean,
		"network.maskRequestHost": text, "network.httpsPorts": array,
	}
	update := map[string]kind{"allowOut": array, "denyOut": array, "allow_internet_access": boolean}
	for _, q := range []request{
		{"POST", "/sandboxes", `"templateID":"base"`, create, 201},
		{"POST", "/v2/sandboxes", `"templateID":"base"`, create, 201},
		{"POST", "/v2/sandboxes", ``, map[string]kind{"templateID": text}, 400},
		{"POST", "/sandboxes/" + id + "/connect", ``, map[string]kind{"timeout": number}, 400},
		{"POST", "/sandboxes/" + id + "/connect", `"timeout":1`, map[string]kind{"memory": boolean}, 200},
		{"POST", "/v2/sandboxes/" + id + "/connect", ``, map[string]kind{"timeout": number, "memory": boolean}, 200},
		{"POST", "/sandboxes/" + id + "/resume", ``, map[string]kind{"timeout": number, "memory": boolean, "autoPause": boolean}, 409},
		{"POST", "/sandboxes/" + paused + "/pause", ``, map[string]kind{"memory": boolean, "requireHealthyGuest": boolean}, 409},
		{"POST", "/sandboxes/" + id + "/timeout", ``, map[string]kind{"timeout": number}, 400},
		{"POST", "/sandboxes/" + id + "/refreshes", ``, map[string]kind{"duration": number}, 204},
		{"PUT", "/sandboxes/" + id + "/network", ``, update, 204},
		{"POST", "/api-keys", ``, map[string]kind{"name": text}, 400},
	} {
		for field, is := range q.fields {
			for not, value := range samples {
				if not != is {
					want := fmt.Sprintf("validation error: %s must be %s, not ", field, is)
					s.refused(t, q.method, q.path, body(q.valid, field, value), want)
				}
			}
			if is == number {
				for _, value := range []string{"1.5", "1e30", "2147483648", "-2147483649"} {
					s.refused(t, q.method, q.path, body(q.valid, field, value), "validation error: "+field+" must be a 32-bit integer, not number "+value)
				}
				s.refused(t, q.method, q.path, body(q.valid, field, "-1"), "validation error: "+field+" must ")
			}
			if resp, text := s.do(t, q.method, q.path, body(q.valid, field, "null")); resp.StatusCode != q.nullStatus {
				t.Errorf("%s %s, %s null: got %d %s, want %d", q.method, q.path, field, resp.StatusCode, text, q.nullStatus)
			}
		}
		unknown, _ := s.do(t, q.method, q.path, body(q.valid, "unknown.field", `1`))
		if unknown.StatusCode != q.nullStatus {
			t.Errorf("%s %s with an unknown field: got %d, want %d", q.method, q.path, unknown.StatusCode, q.nullStatus)
		}
		entries := s.log.Entries()
		if last := entries[len(entries)-1]; !slices.Contains(last.Ignored, "unknown") {
			t.Errorf("%s %s: ignored %v, want the unknown field named", q.method, q.path, last.Ignored)
		}
	}
}

// TestUnknownNames checks that unknown names are logged wherever they are: in an object, in each
// element of a list, or in each value of a map. Fields of embedded structs are known, and the names
// of the embedded structs themselves are not.
func TestUnknownNames(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.mustCreate(t, `{"templateID":"base"}`)
	start := "/v2/templates/base/builds/x"
	for _, tt := range []struct {
		method, path, body string
		want               []string
	}{
		{"PUT", "/sandboxes/" + id + "/network", `{"dns_servers":["1.1.1.1"],"egressProxy":{"address":"a.test:1","username":null,"password":null,"tls":null}}`, []string{"dns_servers"}},
		{"PUT", "/sandboxes/" + id + "/network", `{"rules":{"a.b":[{"x":1,"transform":{"y":1,"headers":{"z":"1"}}}],"c.d":[{"x":1}]}}`, []string{"rules.transform.y", "rules.x"}},
		{"POST", "/sandboxes", `{"templateID":"base","network":{"dns_servers":[],"rules":{"a.b":[{"x":1}]}},"egressRequest":{}}`, []string{"egressRequest", "network.dns_servers", "network.rules.x"}},
		{"POST", "/sandboxes", `{"templateID":"base","autoResume":{"enabled":false,"x":1},"metadata":{"x":"1"},"envVars":{"x":"1"},"mcp":{"x":{"y":1}},"iam":{}}`, []string{"autoResume.x"}},
		{"POST", "/sandboxes", `{"templateID":"base","volumeMounts":[{"name":"a","path":"/b","x":1},{"x":2},null],"":1}`, []string{"", "volumeMounts.x"}},
		{"POST", start, `{"fromImage":"a","fromImageRegistry":{"type":"registry","x":1},"steps":[{"type":"RUN","forceUpload":null,"resolveSymlinks":true,"gzip":false,"x":1}],"stages":[{"steps":[{"x":1}],"x":1}]}`,
			[]string{"fromImageRegistry.x", "stages.steps.x", "stages.x", "steps.x"}},
	} {
		_, answer := s.do(t, tt.method, tt.path, tt.body)
		entries := s.log.Entries()
		if last := entries[len(entries)-1]; !slices.Equal(last.Ignored, tt.want) {
			t.Errorf("%s %s %s: ignored %q, want %q (it answered %s)", tt.method, tt.path, tt.body, last.Ignored, tt.want, answer)
		}
	}
}

// body returns a request with valid fields and one more field. A dot in the field's name stands for
// nesting.
func body(valid, field, value string) string {
	if outer, inner, nested := strings.Cut(field, "."); nested {
		field, value = outer, fmt.Sprintf("{%q:%s}", inner, value)
	}
	if valid != "" {
		valid += ","
	}
	return fmt.Sprintf("{%s%q:%s}", valid, field, value)
}

func (s *service) refused(t *testing.T, method, path, body, want string) {
	t.Helper()
	resp, text := s.do(t, method, path, body)
	if resp.StatusCode != 400 || !strings.HasPrefix(text, `{"code":400,"message":"`+strings.ReplaceAll(want, `"`, `\"`)) {
		t.Errorf("%s %s %.100s: got %d %s, want 400 and %q", method, path, body, resp.StatusCode, text, want)
	}
}

// TestBodies checks that every request with a body refuses a body that is not a JSON object.
func TestBodies(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.mustCreate(t, `{"templateID":"base"}`)
	for _, q := range []struct{ method, path string }{
		{"POST", "/sandboxes"},
		{"POST", "/v2/sandboxes"},
		{"POST", "/sandboxes/" + id + "/connect"},
		{"POST", "/v2/sandboxes/" + id + "/connect"},
		{"POST", "/sandboxes/" + id + "/resume"},
		{"POST", "/sandboxes/" + id + "/pause"},
		{"POST", "/sandboxes/" + id + "/timeout"},
		{"POST", "/sandboxes/" + id + "/refreshes"},
		{"PUT", "/sandboxes/" + id + "/network"},
		{"POST", "/api-keys"},
		{"PATCH", "/api-keys/x"},
	} {
		for body, want := range map[string]string{
			`{`:                                "the body is not JSON",
			`{"timeout":1`:                     "the body is not JSON",
			`{} {}`:                            "the body is not JSON",
			`{"a":1,}`:                         "the body is not JSON",
			`{'a':1}`:                          "the body is not JSON",
			`timeout=1`:                        "the body is not JSON",
			"\x00":                             "the body is not JSON",
			"\xff\xfe{}":                       "the body is not JSON",
			strings.Repeat(`[`, 20000):         "the body is not JSON",
			`{"a":` + strings.Repeat(`[`, 1e5): "the body is not JSON",
			`[]`:                               "validation error: the body must be an object, not array",
			`"x"`:                              "validation error: the body must be an object, not string",
			`1`:                                "validation error: the body must be an object, not number",
			`true`:                             "validation error: the body must be an object, not bool",
		} {
			s.refused(t, q.method, q.path, body, want)
		}
		s.cutOff(t, q.method, q.path)
	}
	if got := len(s.fakes.IDs()); got != 1 || s.fakes.Fake(id).Paused() {
		t.Errorf("%d sandboxes, paused: %v, want the one, running", got, s.fakes.Fake(id).Paused())
	}
}

// cutOff sends the beginning of a body, ends its sending half, and checks the answer.
func (s *service) cutOff(t *testing.T, method, path string) {
	t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	must.Do(t, err)
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: a\r\nX-API-KEY: %s\r\nContent-Length: 100\r\n\r\n{\"templateID\":\"base\"}", method, path, testKey); err != nil {
		t.Fatal(err)
	}
	must.Do(t, conn.(*net.TCPConn).CloseWrite())
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must.Do(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 400 || !strings.Contains(string(text), "the body could not be read: unexpected EOF") {
		t.Errorf("%s %s cut off: got %d %s, %v, want 400", method, path, resp.StatusCode, text, err)
	}
}

// FuzzBodies checks that any body has an answer, and that the answer is documented or an error that
// clients can read.
func FuzzBodies(f *testing.F) {
	f.Add(0, `{"templateID":"base","autoPause":true,"autoResume":{"enabled":true}}`)
	f.Add(1, `{"memory":false,"requireHealthyGuest":true}`)
	f.Add(2, `{"timeout":1,"memory":false}`)
	f.Add(3, `{"allowOut":["*"],"denyOut":["0.0.0.0/0"]}`)
	f.Fuzz(func(t *testing.T, which int, body string) {
		s := start(t)
		id := s.mustCreate(t, `{"templateID":"base"}`)
		q := [...][2]string{
			{"POST", "/v2/sandboxes"},
			{"POST", "/sandboxes/" + id + "/pause"},
			{"POST", "/v2/sandboxes/" + id + "/connect"},
			{"PUT", "/sandboxes/" + id + "/network"},
		}[(which%4+4)%4]
		resp, text := s.do(t, q[0], q[1], body)
		if resp.StatusCode < 400 {
			return
		}
		var e apiError
		if err := json.Unmarshal([]byte(text), &e); err != nil || e.Code != resp.StatusCode || e.Message == "" {
			t.Errorf("%s %s %q: %d %s, %v, want an error body", q[0], q[1], body, resp.StatusCode, text, err)
		}
		if resp.StatusCode >= 500 {
			t.Errorf("%s %s %q: %d %s, want no failure", q[0], q[1], body, resp.StatusCode, text)
		}
	})
}

// TestIgnoredParameters checks that query parameters that a call does not know are in the request
// log, without their values. Known parameters, and parameters of a refused request, are not logged.
func TestIgnoredParameters(t *testing.T) {
	t.Parallel()
	linuxOnly(t)
	s := start(t)
	id := s.mustCreate(t, `{"templateID":"base"}`)
	for _, tt := range []struct {
		method, path, body string
		want               []string
	}{
		{"GET", "/v2/sandboxes?limit=1&state=running&order=asc&metadata=&nextToken=&startedAfter=&template=", "", nil},
		{"GET", "/v2/sandboxes?limit=1&sort=x&a=1&a=2", "", []string{"?a", "?sort"}},
		{"GET", "/sandboxes?metadata=&limit=1", "", []string{"?limit"}},
		{"GET", "/sandboxes/" + id + "?secret=s3cret", "", []string{"?secret"}},
		{"GET", "/sandboxes/" + id + "/logs?start=1&limit=1", "", nil},
		{"GET", "/v2/sandboxes/" + id + "/logs?cursor=&limit=1&direction=forward&level=info&search=x&start=1", "", []string{"?start"}},
		{"GET", "/templates?teamID=", "", nil},
		{"GET", "/snapshots?sandboxID=&name=&limit=1&nextToken=", "", nil},
		{"POST", "/sandboxes/" + id + "/timeout?force=true", `{"timeout":60,"x":1}`, []string{"x", "?force"}},
		{"GET", "/v2/sandboxes?limit=none&sort=x", "", nil},
	} {
		_, answer := s.do(t, tt.method, tt.path, tt.body)
		entries := s.log.Entries()
		if last := entries[len(entries)-1]; !slices.Equal(last.Ignored, tt.want) {
			t.Errorf("%s %s: ignored %q, want %q (it answered %s)", tt.method, tt.path, last.Ignored, tt.want, answer)
		}
	}
	volume, token := s.createVolume(t, "data")
	for call, want := range map[string][]string{"dir?path=/": nil, "dir?path=/&recursive=true": {"?recursive"}} {
		name, query, _ := strings.Cut(call, "?")
		values, err := url.ParseQuery(query)
		must.Do(t, err)
		_, answer := s.content(t, token, "GET", volume, name, values, nil)
		entries := s.log.Entries()
		if last := entries[len(entries)-1]; !slices.Equal(last.Ignored, want) {
			t.Errorf("content of a volume, %s: ignored %q, want %q (it answered %s)", call, last.Ignored, want, answer)
		}
	}
}
