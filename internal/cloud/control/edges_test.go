package control

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/builds"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/must"
)

// repeated returns a JSON list with n elements.
func repeated(n int, element func(i int) string) string {
	all := make([]string, max(n, 0))
	for i := range all {
		all[i] = element(i)
	}
	return "[" + strings.Join(all, ",") + "]"
}

// TestBounds checks that each number in a request may have its lowest and highest allowed value,
// and no value outside them.
func TestBounds(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.mustCreate(t, `{"templateID":"base"}`)
	_, _ = s.createVolume(t, "v")
	for _, tt := range []boundedRequest{
		{"POST", "/v3/templates", func(n int) string { return fmt.Sprintf(`{"name":"cpus%d","cpuCount":%[1]d}`, n) }, 1, 32, 202},
		{"POST", "/v3/templates", func(n int) string { return fmt.Sprintf(`{"name":"memory%d","memoryMB":%[1]d}`, n) }, 128, unbounded, 202},
		{"POST", "/v3/templates", func(n int) string { return fmt.Sprintf(`{"name":"disk%d","minFreeDiskMb":%[1]d}`, n) }, 0, unbounded, 202},
		{"POST", "/sandboxes", creation(`"timeout":%d`), 1, 24 * 60 * 60, 201},
		{"POST", "/v2/sandboxes", creation(`"timeout":%d`), 1, 24 * 60 * 60, 201},
		{"POST", "/sandboxes/" + id + "/connect", func(n int) string { return fmt.Sprintf(`{"timeout":%d}`, n) }, 0, 24 * 60 * 60, 200},
		{"POST", "/sandboxes/" + id + "/refreshes", func(n int) string { return fmt.Sprintf(`{"duration":%d}`, n) }, 0, 3600, 204},
		{"POST", "/api-keys", func(n int) string { return fmt.Sprintf(`{"name":%q}`, strings.Repeat("ü", max(n, 0))) }, 1, 128, 201},
		{"POST", "/sandboxes", creation(`"network":{"httpsPorts":[%d]}`), 1, 65535, 201},
		{"POST", "/sandboxes", func(n int) string {
			return fmt.Sprintf(`{"templateID":"base","network":{"httpsPorts":%s}}`, repeated(n, func(i int) string { return strconv.Itoa(i + 1) }))
		}, 0, 1024, 201},
		{"POST", "/sandboxes", func(n int) string {
			return fmt.Sprintf(`{"templateID":"base","network":{"maskRequestHost":%q}}`, strings.Repeat("a", max(n, 0)))
		}, 0, 255, 201},
		{"POST", "/sandboxes", func(n int) string {
			return fmt.Sprintf(`{"templateID":"base","network":{"egressProxy":{"address":"a.test:1080","username":"u","password":%q}}}`, strings.Repeat("p", max(n, 0)))
		}, 0, 255, 201},
		{"POST", "/sandboxes", func(n int) string {
			return fmt.Sprintf(`{"templateID":"base","volumeMounts":%s}`, repeated(n, func(i int) string { return fmt.Sprintf(`{"name":"v","path":"/v%d"}`, i) }))
		}, 0, 32, 201},
		{"POST", "/sandboxes", func(n int) string {
			return fmt.Sprintf(`{"templateID":"base","mounts":%s}`, repeated(n, func(i int) string { return fmt.Sprintf(`{"dir":"/a","path":"/m%d"}`, i) }))
		}, 0, 32, 201},
		{"GET", "/v2/sandboxes?limit=%d", nil, 1, 100, 200},
		{"GET", "/v2/templates?limit=%d", nil, 1, 100, 200},
		{"GET", "/templates/base?limit=%d", nil, 1, 100, 200},
		{"GET", "/snapshots?limit=%d", nil, 1, 100, 200},
		{"GET", "/secrets?limit=%d", nil, 1, 100, 200},
		{"GET", "/templates/base/tags/groups?tagsLimit=%d", nil, 1, 100, 200},
		{"GET", "/templates/base/tags/groups?assignmentLimit=%d", nil, 1, 100, 200},
		{"GET", "/templates/base/tags/default/assignments?limit=%d", nil, 1, 100, 200},
		{"GET", "/v2/sandboxes/" + id + "/logs?limit=%d", nil, 1, 1000, 200},
		{"GET", "/sandboxes/" + id + "/logs?limit=%d", nil, 1, unbounded, 200},
		{"GET", "/sandboxes/" + id + "/logs?start=%d", nil, 0, unbounded, 200},
		{"GET", "/v2/sandboxes/" + id + "/logs?cursor=%d", nil, 0, unbounded, 200},
		{"GET", "/sandboxes/" + id + "/metrics?start=%d&end=1000", nil, 0, 1000, 200},
		{"GET", "/sandboxes/" + id + "/metrics?start=1000&end=%d", nil, 1000, unbounded, 200},
	} {
		for _, n := range []int{tt.from - 1, tt.from, tt.to, tt.to + 1} {
			tt.try(t, s, n)
		}
	}
	s.refused(t, "POST", "/sandboxes", creation(`"network":{"httpsPorts":[%d]}`)(49983), "validation error: network.httpsPorts must not have 49983")
}

// unbounded marks a number that has no bound besides the range of its type.
const unbounded = math.MaxInt32

// boundedRequest is a request with a number. It is accepted if the number is within two bounds.
type boundedRequest struct {
	method, path string // %d stands for the number, unless there is a body
	body         func(n int) string
	from, to     int
	status       int // status for a number within the bounds
}

// try sends the request with n, and kills the sandbox that it creates. It does nothing if there is
// no such request.
func (b boundedRequest) try(t *testing.T, s *service, n int) {
	t.Helper()
	path, body := b.path, ""
	if b.body == nil {
		path = fmt.Sprintf(b.path, n)
	} else {
		body = b.body(n)
	}
	if n == unbounded+1 || n < 0 && b.body != nil && !strings.Contains(body, "-1") {
		return
	}
	want := http.StatusBadRequest
	if n >= b.from && n <= b.to {
		want = b.status
	}
	resp, text := s.do(t, b.method, path, body)
	if resp.StatusCode != want {
		t.Errorf("%s %s %.100s: got %d %s, want %d", b.method, path, body, resp.StatusCode, text, want)
	}
	var made struct{ SandboxID string }
	if resp.StatusCode == http.StatusCreated && json.Unmarshal([]byte(text), &made) == nil && made.SandboxID != "" {
		if err := s.registry.Kill(made.SandboxID); err != nil {
			t.Error(err)
		}
	}
}

// creation returns a function that returns the body of a request to create a sandbox with field. %d
// in field stands for the number.
func creation(field string) func(n int) string {
	return func(n int) string { return fmt.Sprintf(`{"templateID":"base",`+field+`}`, n) }
}

// TestLengthBounds checks the maximum number of sandboxes in a request for metrics, and the maximum
// lengths of a search in logs and of an idempotency key.
func TestLengthBounds(t *testing.T) {
	t.Parallel()
	s := start(t)
	id := s.mustCreate(t, `{"templateID":"base"}`)
	for n, want := range map[int]int{0: 400, 1: 200, 100: 200, 101: 400} {
		ids := strings.TrimSuffix(strings.Repeat(id+",", n), ",")
		if resp, text := s.do(t, "GET", "/sandboxes/metrics?sandbox_ids="+ids, ""); resp.StatusCode != want {
			t.Errorf("metrics of %d: got %d %s, want %d", n, resp.StatusCode, text, want)
		}
	}
	for n, want := range map[int]int{0: 200, 256: 200, 257: 400} {
		if resp, text := s.do(t, "GET", "/v2/sandboxes/"+id+"/logs?search="+strings.Repeat("%C3%BC", n), ""); resp.StatusCode != want {
			t.Errorf("a search for %d characters: got %d %s, want %d", n, resp.StatusCode, text, want)
		}
	}
	for n, want := range map[int]int{1: 201, 254: 201, 255: 201, 256: 400} {
		if status, text := s.createWith(t, strings.Repeat("k", n), `{"templateID":"base"}`); status != want {
			t.Errorf("a key of %d characters: got %d %s, want %d", n, status, text, want)
		}
	}
}

// TestForkBounds checks the maximum number of children of a fork, which is below the number of
// sandboxes that may run.
func TestForkBounds(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *lifecycle.Options) { o.MaxSandboxes = 4 })
	id := s.mustCreate(t, `{"templateID":"base"}`)
	for n, want := range map[int]int{-1: 400, 0: 400, 1: 201, 3: 201, 4: 400, 5: 400, 101: 400} {
		if resp, text := s.do(t, "POST", "/sandboxes/"+id+"/fork", fmt.Sprintf(`{"count":%d}`, n)); resp.StatusCode != want {
			t.Errorf("%d children: got %d %s, want %d", n, resp.StatusCode, text, want)
		}
	}
}

// TestBuildSpecs checks the base of a build and the maximum number of its steps, and that no part
// of a step is lost.
func TestBuildSpecs(t *testing.T) {
	t.Parallel()
	run := func(n int) []stepRequest {
		all := make([]stepRequest, n)
		for i := range all {
			all[i] = stepRequest{Type: "RUN", Args: []string{"true"}}
		}
		return all
	}
	for what, tt := range map[string]struct {
		q    startRequest
		want bool
	}{
		"an image":           {startRequest{FromImage: "a"}, true},
		"a template":         {startRequest{FromTemplate: "a"}, true},
		"both":               {startRequest{FromImage: "a", FromTemplate: "a"}, false},
		"neither":            {startRequest{}, false},
		"as many steps":      {startRequest{FromImage: "a", Steps: run(builds.MaxSteps)}, true},
		"a step more":        {startRequest{FromImage: "a", Steps: run(builds.MaxSteps + 1)}, false},
		"with a stage":       {startRequest{FromImage: "a", Steps: run(builds.MaxSteps - 2), Stages: []stageRequest{{Name: "b", FromImage: "a", Steps: run(1)}}}, true},
		"with a stage, more": {startRequest{FromImage: "a", Steps: run(builds.MaxSteps - 1), Stages: []stageRequest{{Name: "b", FromImage: "a", Steps: run(1)}}}, false},
		"no type":            {startRequest{FromImage: "a", Steps: []stepRequest{{}}}, false},
		"a short hash":       {startRequest{FromImage: "a", Steps: []stepRequest{{Type: "COPY", Args: []string{"a", "/a"}, FilesHash: strings.Repeat("a", 63)}}}, false},
	} {
		if _, err := tt.q.spec(); (err == nil) != tt.want {
			t.Errorf("%s: got error %v, want it allowed %v", what, err, tt.want)
		}
	}
	made, err := steps("steps", []stepRequest{{Type: "COPY", Args: []string{"a"}, FilesHash: strings.Repeat("a", 64), FromStage: "b", Force: true}})
	if want := fmt.Sprintf("%+v", builds.Step{Type: "COPY", Args: []string{"a"}, FilesHash: strings.Repeat("a", 64), FromStage: "b", Force: true}); err != nil || len(made) != 1 || fmt.Sprintf("%+v", made[0]) != want {
		t.Errorf("got %+v and error %v, want %s", made, err, want)
	}
}

// TestEnvsOf checks that the variables of one sandbox do not reach the next sandbox of its
// template.
func TestEnvsOf(t *testing.T) {
	t.Parallel()
	build := templates.Build{}
	for _, has := range []map[string]string{nil, {"A": "template", "B": "template"}} {
		build.Envs = maps.Clone(has)
		for _, asked := range []map[string]string{nil, {"B": "asked", "C": "asked"}} {
			want := maps.Clone(has)
			if want == nil {
				want = map[string]string{}
			}
			maps.Copy(want, asked)
			if got := envsOf(build, asked); !maps.Equal(got, want) {
				t.Errorf("%v of a template with %v: got %v, want %v", asked, has, got, want)
			}
			if !maps.Equal(build.Envs, has) {
				t.Errorf("the template has %v, want %v as before", build.Envs, has)
			}
		}
	}
}

// deadlined is a ResponseWriter that remembers its deadlines.
type deadlined struct {
	*httptest.ResponseRecorder
	read, write []time.Time
}

func (d *deadlined) SetReadDeadline(t time.Time) error  { d.read = append(d.read, t); return nil }
func (d *deadlined) SetWriteDeadline(t time.Time) error { d.write = append(d.write, t); return nil }

// hurried makes the service answer a request. It checks that the deadlines of the request are
// removed afterwards, because a remaining deadline would look like a client that has gone away.
func (s *service) hurried(t *testing.T, method, path, token string, body io.Reader, status int) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, body)
	r.Header.Set("X-Api-Key", testKey)
	r.Header.Set("Authorization", "Bearer "+token)
	w := &deadlined{ResponseRecorder: httptest.NewRecorder()}
	s.ServeHTTP(w, r)
	if w.Code != status {
		t.Errorf("%s %s: got %d %s, want %d", method, path, w.Code, w.Body, status)
	}
	set := w.read
	if method == http.MethodGet {
		set = w.write
	}
	if len(set) < 2 || set[0].IsZero() || !set[len(set)-1].IsZero() {
		t.Errorf("%s %s: got the deadlines %v, want one, and none in the end", method, path, set)
	}
}

// TestDeadlinesOfBodies checks that a body has a deadline while it is read, whether it is valid,
// invalid or incomplete.
func TestDeadlinesOfBodies(t *testing.T) {
	t.Parallel()
	s := start(t)
	path := "/sandboxes/" + s.mustCreate(t, `{"templateID":"base"}`) + "/timeout"
	s.hurried(t, "POST", path, "", strings.NewReader(`{"timeout":60}`), 204)
	s.hurried(t, "POST", path, "", strings.NewReader(`{`), 400)
	s.hurried(t, "POST", path, "", iotest.ErrReader(io.ErrUnexpectedEOF), 400)
}

// TestDeadlinesOfUploads checks that an archive has a deadline while it is uploaded.
func TestDeadlinesOfUploads(t *testing.T) {
	t.Parallel()
	s := start(t)
	expires := strconv.FormatInt(time.Now().Add(time.Minute).Unix(), 10)
	path := pathUploads + someHash + "?expires=" + expires + "&signature=" + s.signUpload(someHash, expires)
	s.hurried(t, "PUT", path, "", strings.NewReader("text"), 200)
}

// TestDeadlinesOfVolumes checks that files of volumes have a deadline while they are read and
// written.
func TestDeadlinesOfVolumes(t *testing.T) {
	t.Parallel()
	linuxOnly(t)
	s := start(t)
	id, token := s.createVolume(t, "v")
	path := pathVolumeContent + id + "/file?path=/a"
	s.hurried(t, "PUT", path, token, strings.NewReader("text"), 201)
	s.hurried(t, "GET", path, token, nil, 200)
	r := httptest.NewRequestWithContext(t.Context(), "HEAD", path, nil)
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	if s.ServeHTTP(w, r); w.Code != 200 || w.Body.Len() != 0 || w.Header().Get("Content-Length") != "4" {
		t.Errorf("HEAD: got %d %q of %s bytes, want the length alone", w.Code, w.Body, w.Header().Get("Content-Length"))
	}
}

// TestTokensOfPages checks that the token of a page names the order and the exact position, and that no part or extension of
// a token is a token.
func TestTokensOfPages(t *testing.T) {
	t.Parallel()
	want := cursor{At: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), ID: "i_a__asc_"}
	for _, ascending := range []bool{false, true} {
		token := want.encode(ascending)
		if got, asc, ok := decodeCursor(token); !ok || asc != ascending || got.ID != want.ID || !got.At.Equal(want.At) {
			t.Errorf("%s: got %+v, ascending %v, valid %v, want %+v, %v", token, got, asc, ok, want, ascending)
		}
		for _, wrong := range []string{"", token + "!", "!" + token, token[1:], token + token, token[:8]} {
			if got, _, ok := decodeCursor(wrong); ok {
				t.Errorf("%q: got %+v, want no position", wrong, got)
			}
		}
	}
	for text, valid := range map[string]bool{"2026-01-02T03:04:05Z__i": true, "2026-01-02T03:04:05Z_i": false, "2026-01-02__i": false, "__i": false, "": false} {
		if got, _, ok := decodeCursor(base64.URLEncoding.EncodeToString([]byte(text))); ok != valid {
			t.Errorf("%q: got %+v, valid %v, want %v", text, got, ok, valid)
		}
	}
}

// TestMasksOfKeys checks from which length on a key shows some of its characters.
func TestMasksOfKeys(t *testing.T) {
	t.Parallel()
	const least = 4 * (shownPrefix + shownSuffix)
	for n, shown := range map[int]bool{0: false, 1: false, least - 1: false, least: true, least + 1: true} {
		value := strings.Repeat("x", n)
		want := keyMask{Prefix: keyPrefix, ValueLength: n}
		if shown {
			want.ValuePrefix, want.ValueSuffix = value[:shownPrefix], value[:shownSuffix]
		}
		if got := maskOf(keyPrefix + value); got != want {
			t.Errorf("%d characters: got %+v, want %+v", n, got, want)
		}
		want.Prefix = ""
		if got := maskOf(value); got != want {
			t.Errorf("%d characters without the prefix: got %+v, want %+v", n, got, want)
		}
	}
}

// TestSecondsOfQueries checks which times a query may have.
func TestSecondsOfQueries(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"": 7, "0": 0, "1": 1, "1099511627776": 1 << 40, "1099511627777": -1, "-1": -1, "x": -1, "1x": -1, "99999999999999999999": -1} {
		q, err := newQuery("start=" + text)
		must.Do(t, err)
		got, err := second(q, "start", 7)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%q: got %d and error %v, want %d", text, got, err, want)
		}
	}
}
