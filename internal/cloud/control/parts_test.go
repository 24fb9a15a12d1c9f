package control

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/builds"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/network"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestValidHost checks each kind of text that is no Host header.
func TestValidHost(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{"a.test": true, "a.test:${PORT}": true, "[::1]:${PORT}": true, strings.Repeat("a", 255): true, strings.Repeat("a", 256): false, "a\x00": false} {
		if validHost(host) != want {
			t.Errorf("%q: want it valid: %v", host, want)
		}
	}
	for _, c := range "/@\\ \"<>{}|^`" {
		if validHost("a" + string(c) + "b") {
			t.Errorf("a host with %q is valid", c)
		}
	}
}

// TestStrongKeys checks which keys of a file are as good as those of the service.
func TestStrongKeys(t *testing.T) {
	t.Parallel()
	digits := strings.Repeat("0a", 20)
	for key, want := range map[string]bool{
		"e2b_" + digits: true, "e2b_" + digits + "ff": true, digits: false, "e2b_" + digits[1:]: false, "e2b_" + digits[2:]: false, "e2b_" + digits + "f": false,
		"e2b_" + digits + "0g": false, "e2b_" + digits + "0A": false, "x" + digits + digits: false,
	} {
		if isStrong(key) != want {
			t.Errorf("%s: want it strong: %v", key, want)
		}
	}
}

// TestUnknownOfOtherKinds checks that a value of another kind than its type has no unknown fields, and that
// no part of a field's path is lost.
func TestUnknownOfOtherKinds(t *testing.T) {
	t.Parallel()
	type inner struct {
		Known int `json:"known"`
	}
	type outer struct {
		Upper inner            `json:"Upper"`
		List  []inner          `json:"list"`
		Map   map[string]inner `json:"map"`
	}
	for value, want := range map[string][]string{
		`{"list":{"x":1},"map":[1],"Upper":[]}`: nil, `[]`: nil,
		`{"list":[{"x":1},{"x":1},2],"map":{"a":{"y":1}},"Upper":{"known":1,"z":2},"w":3}`: {"Upper.z", "list.x", "map.y", "w"},
	} {
		if got := unknownFields([]byte(value), reflect.TypeFor[outer](), ""); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", value, got, want)
		}
	}
	if got := fieldPath("Upper.known", reflect.TypeFor[outer]()); got != "Upper.known" {
		t.Errorf("got the path %s", got)
	}
}

// TestRulesAnswer checks the rules for each host in an answer: for headers, for requests, or both.
func TestRulesAnswer(t *testing.T) {
	t.Parallel()
	n := &lifecycle.Network{
		Headers:  map[string]map[string]string{"both.test": {"A": "b"}, "headers.test": {"C": "d"}, "requests.test": nil, "none.test": nil},
		Requests: map[string][]network.Request{"both.test": {{Path: "/a"}, {Methods: []string{"GET"}}}, "requests.test": {{Path: "/b"}}},
	}
	want := map[string][]networkRule{
		"both.test":     {{&transform{map[string]string{"A": "b"}}, []requestMatch{{Path: "/a"}, {Methods: []string{"GET"}}}}},
		"headers.test":  {{&transform{map[string]string{"C": "d"}}, nil}},
		"requests.test": {{nil, []requestMatch{{Path: "/b"}}}},
		"none.test":     {},
	}
	if diff := cmp.Diff(want, rulesAnswer(n)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestHeadersOnlyWithRules checks which sandboxes have a certificate authority: those that were created with
// rules for headers or requests.
func TestHeadersOnlyWithRules(t *testing.T) {
	t.Parallel()
	s := start(t)
	for body, want := range map[string]bool{
		`{"templateID":"base"}`: false, `{"templateID":"base","network":{}}`: false, `{"templateID":"base","network":{"rules":{}}}`: false,
		`{"templateID":"base","network":{"rules":{"a.test":[]}}}`: true,
	} {
		sb, err := s.registry.Get(s.mustCreate(t, body))
		must.Do(t, err)
		if sb.Headers != want {
			t.Errorf("%s: got an authority: %v, want %v", body, sb.Headers, want)
		}
	}
}

// TestTemplateOfImage checks each field of the template of a sandbox that begins with an image.
func TestTemplateOfImage(t *testing.T) {
	t.Parallel()
	s := start(t)
	ref := templates.ParseReference("docker")
	_, err := s.templates.Add(&ref, templates.Build{Content: templates.Content{Engine: engine.Docker}})
	must.Do(t, err)
	made, build, release, err := s.fromImage(t.Context(), &createRequest{TemplateID: "docker", Image: "oci:/dir"}, "oci:/dir")
	must.Do(t, err)
	defer release()
	want := lifecycle.Template{ID: "oci:/dir", User: build.User, Workdir: build.Workdir, Engine: engine.Docker, Image: &engine.Image{Reference: "oci:/dir", Digest: "sha256:1"}}
	if diff := cmp.Diff(want, made); diff != "" || len(build.Layers) != 1 {
		t.Errorf("got the layers %v, and a template (-want +got):\n%s", build.Layers, diff)
	}
}

// TestFetchErrors checks the status of the answer to a create whose image could not be fetched.
func TestFetchErrors(t *testing.T) {
	t.Parallel()
	timeout := &netError{}
	for _, tt := range []struct {
		err    error
		status int
	}{
		{&builds.FetchError{Status: 404, Err: io.EOF}, 404}, {&builds.FetchError{Status: 429, Err: io.EOF}, 503}, {&builds.FetchError{Status: 401, Err: io.EOF}, 400},
		{&builds.FetchError{Status: 499, Err: io.EOF}, 400}, {&builds.FetchError{Status: 500, Err: io.EOF}, 502}, {&builds.FetchError{Err: timeout}, 502},
		{&builds.FetchError{Err: io.EOF}, 400}, {&builds.FetchError{Err: syscall.ENOSPC}, 507},
	} {
		if got := answerFor(fmt.Errorf("a call: %w", tt.err)); got.Code != tt.status {
			t.Errorf("%#v: got %d %s, want %d", tt.err, got.Code, got.Message, tt.status)
		}
	}
}

// netError is an error of the network.
type netError struct{}

func (*netError) Error() string   { return "no route" }
func (*netError) Timeout() bool   { return false }
func (*netError) Temporary() bool { return false }

// TestOtherErrors checks refusals whose cause is one of several values of a request.
func TestOtherErrors(t *testing.T) {
	t.Parallel()
	s := start(t)
	made := s.must(t, "POST", "/v3/templates", `{"name":"job","teamID":"`+teamID+`","engine":"docker"}`, 202)
	of := fmt.Sprintf("/templates/%s/builds/%s/", made["templateID"], made["buildID"])
	for _, query := range []string{"", "?source=temporary", "?source=persistent", "?direction=forward", "?direction=backward&level=warn&limit=100"} {
		s.must(t, "GET", of+"logs"+query, "", 200)
	}
	s.fails(t, []failure{
		{"POST", "/sandboxes", `{"templateID":"base","idleTimeout":10,"timeout":0}`, 400, "Timeout must be greater than 0"},
		{"POST", "/v3/templates", `{"name":"job","teamID":"other"}`, 403, "no access to that team: this local cloud has only " + teamID},
		{"POST", "/v3/templates", `{"name":"job","engine":"none"}`, 400, fmt.Sprintf("validation error: engine must be one of %v, not %q", engine.Names, "none")},
		{"GET", of + "logs?source=other", ``, 400, "validation error: source must be temporary or persistent"},
		{"GET", of + "logs?level=loud", ``, 400, "validation error: level must be debug, info, warn or error"},
		{"GET", of + "logs?limit=101", ``, 400, "validation error: limit must be between 0 and 100"},
		{"GET", of + "logs?limit=x", ``, 400, "validation error: limit must be a number that is not negative"},
		{"GET", of + "status?limit=x", ``, 400, "validation error: limit must be a number that is not negative"},
		{"GET", of + "status?logsOffset=-1", ``, 400, "validation error: logsOffset must be a number that is not negative"},
		{"GET", "/templates?%zz", ``, 400, "validation error: the query cannot be parsed"},
		{"GET", "/v2/templates?%zz", ``, 400, "validation error: the query cannot be parsed"},
		{"GET", "/v2/templates?teamID=other", ``, 400, "no access to that team: this local cloud has only " + teamID},
	})
}

// failingWriter is an answer whose client has gone.
type failingWriter struct{ *httptest.ResponseRecorder }

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestBrokenDownload checks that the answer with a file is aborted if it cannot be sent whole.
func TestBrokenDownload(t *testing.T) {
	t.Parallel()
	linuxOnly(t)
	s := start(t)
	read := s.ofContent(t, (*contentCall).read)
	defer func() {
		if err, ok := recover().(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
			t.Errorf("got %v, want that the answer is aborted", err)
		}
	}()
	err := read(failingWriter{httptest.NewRecorder()}, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/?path=/f", nil))
	t.Errorf("got error %v", err)
}
