package control

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/builds"
	"github.com/e2bctl/e2bctl/internal/must"
)

const someHash = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// TestBuildCalls checks that invalid build requests are refused with errors that name the
// field.
func TestBuildCalls(t *testing.T) {
	t.Parallel()
	s := start(t)
	var made struct{ TemplateID, BuildID string }
	_, text := s.do(t, "POST", "/v3/templates", `{"name":"Local/Job:v1","tags":["V2","v1"],"cpuCount":4,"memoryMB":512,"minFreeDiskMb":0,"futureField":1}`)
	must.Do(t, json.Unmarshal([]byte(text), &made))
	if want := fmt.Sprintf(`{"templateID":"%s","buildID":"%s","public":false,"names":["local/job"],"tags":["v1","v2"],"aliases":["job"]}`, made.TemplateID, made.BuildID); text != want {
		t.Errorf("got %s, want %s", text, want)
	}
	build := "/templates/" + made.TemplateID + "/builds/" + made.BuildID
	for i, tt := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/v3/templates", `{}`, 400, `name is missing`},
		{"POST", "/v3/templates", `{"name":"a b"}`, 400, `the name 'a b' must be`},
		{"POST", "/v3/templates", `{"name":"base"}`, 400, `built-in template`},
		{"POST", "/v3/templates", `{"name":"other/a"}`, 400, `team 'other'`},
		{"POST", "/v3/templates", `{"name":"` + made.TemplateID + `"}`, 409, `is the id of a template`},
		{"POST", "/v3/templates", `{"name":"a","tags":["a b"]}`, 400, `the tag 'a b' must be`},
		{"POST", "/v3/templates", `{"name":"a","tags":["00000000-0000-4000-8000-000000000009"]}`, 400, `no UUID`},
		{"POST", "/v3/templates", `{"name":"a","tags":"a"}`, 400, `tags must be an array`},
		{"POST", "/v3/templates", `{"name":"a","cpuCount":0}`, 400, `cpuCount must be between 1 and 32`},
		{"POST", "/v3/templates", `{"name":"a","memoryMB":127}`, 400, `memoryMB must be at least 128`},
		{"POST", "/v3/templates", `{"name":"a","minFreeDiskMb":-1}`, 400, `minFreeDiskMb must not be negative`},
		{"POST", "/v3/templates", `{"name":"a","teamID":"x"}`, 403, `no access to that team`},
		{"POST", "/v3/templates", `{"alias":"old"}`, 202, `"aliases":["old"]`},

		{"GET", "/templates/aliases/job", ``, 404, `tag 'default' does not exist for template 'job'`},
		{"GET", "/templates/aliases/job%3Av1", ``, 404, `not ready yet`},
		{"POST", "/v2/sandboxes", `{"templateID":"job:v1"}`, 404, `tag 'v1' does not exist for template 'job': it is not ready yet: the build that it is to name is waiting`},
		{"POST", "/v2/sandboxes", `{"templateID":"job:v1","mcp":{"github":{}}}`, 404, `the build that it is to name is waiting"`},
		{"GET", "/templates", ``, 200, `"buildStatus":"waiting"`},
		{"GET", "/templates/" + made.TemplateID, ``, 200, `"status":"waiting"`},
		{"GET", "/templates/" + made.TemplateID, ``, 200, `"cpuCount":4,"memoryMB":512`},

		{"GET", "/templates/nope/files/" + someHash, ``, 404, `template 'nope' not found`},
		{"GET", "/templates/base/files/" + someHash, ``, 403, `built-in template`},
		{"GET", "/templates/job/files/x", ``, 400, `64 hexadecimal digits`},
		{"GET", "/templates/job/files/" + someHash, ``, 201, `{"present":false,"url":"http://`},

		{"GET", build + "/status", ``, 200, `"status":"waiting","logs":[],"logEntries":[]}`},
		{"GET", build + "/logs", ``, 200, `{"logs":[]}`},
		{"GET", build + "/nope", ``, 404, `no such path`},
		{"GET", "/templates/nope/builds/" + made.BuildID + "/status", ``, 404, `template 'nope' not found`},
		{"GET", "/templates/base/builds/" + made.BuildID + "/status", ``, 400, `has no build`},
		{"GET", build + "/status?logsOffset=-1", ``, 400, `logsOffset must be`},
		{"GET", build + "/status?limit=101", ``, 400, `limit must be between 0 and 100`},
		{"GET", build + "/status?level=loud", ``, 400, `level must be`},
		{"GET", build + "/logs?cursor=x", ``, 400, `cursor must be`},
		{"GET", build + "/logs?direction=up", ``, 400, `direction must be`},
		{"GET", build + "/logs?source=x", ``, 400, `source must be`},

		{"POST", "/v2/templates/nope/builds/x", `{"fromImage":"e2bdev/base"}`, 404, `template 'nope' not found`},
		{"POST", "/v2" + strings.Replace(build, made.BuildID, "x", 1), `{"fromImage":"e2bdev/base"}`, 404, `has no build 'x'`},
		{"POST", "/v2/templates/base/builds/x", `{"fromImage":"e2bdev/base"}`, 403, `built-in template`},
		{"POST", "/v2" + build, `{}`, 400, `exactly one of fromImage and fromTemplate`},
		{"POST", "/v2" + build, `{"fromImage":"e2bdev/base","fromTemplate":"base"}`, 400, `exactly one of fromImage and fromTemplate`},
		{"POST", "/v2" + build, `{"fromImage":"e2bdev/base","steps":[{"args":[]}]}`, 400, `steps[0].type is missing`},
		{"POST", "/v2" + build, `{"fromImage":"e2bdev/base","steps":[{"type":"RUN","args":"a"}]}`, 400, `args must be an array`},
		{"POST", "/v2" + build, `{"fromImage":"e2bdev/base","steps":[{"type":"COPY","filesHash":"../a"}]}`, 400, `steps[0].filesHash must be`},
		{"POST", "/v2" + build, `{"fromImage":"e2bdev/base","steps":[` + strings.Repeat(`{"type":"ENV"},`, 1000) + `{"type":"ENV"}]}`, 400, `steps has 1001 elements`},
		{"POST", "/v2" + build, `{"fromImage":"x","fromImageRegistry":{"type":"aws","awsAccessKeyId":"a","awsSecretAccessKey":"b","awsRegion":"c"}}`, 400, `fromImageRegistry of type aws: use type registry with user AWS`},
		{"POST", "/v2" + build, `{"fromImage":"x","fromImageRegistry":{"type":"gcp","serviceAccountJson":"{}"}}`, 400, `fromImageRegistry of type gcp: use type registry with user _json_key`},
		{"POST", "/v2" + build, `{"fromImage":"x","fromImageRegistry":{"type":"new"}}`, 400, `fromImageRegistry.type must be registry`},
		{"POST", "/v2" + build, `{"fromImage":"x","fromImageRegistry":{"type":"registry","username":"me"}}`, 400, `must have a username and a password`},
		{"POST", "/v2" + build, `{"fromImage":"e2bdev/base","stages":[{"name":"a","fromImage":"x","steps":[{"args":[]}]}]}`, 400, `stages[0].steps[0].type is missing`},
		{"POST", "/v2" + build, `{"fromImage":"e2bdev/base","stages":[{"name":"a"}]}`, 400, `stages[0].fromImage is missing`},
		{"POST", "/v2" + build, `{"fromImage":"e2bdev/base","steps":[{"type":"COPY","args":[],"fromStage":"a"}]}`, 400, `fromStage names 'a', and no stage before is called so`},
		{"POST", "/v2" + build, `{"fromImage":"e2bdev/base","stages":[{"name":"a","fromImage":"x","steps":[` + strings.Repeat(`{"type":"RUN"},`, 999) + `{"type":"RUN"}]}]}`, 400, `steps has 1001 elements, and may have 1000`},
		{"POST", "/v2" + build, `{"fromImage":"python:3"}`, 400, `the image 'python:3'`},
		{"GET", build + "/status", ``, 200, `"reason":{"message":"not supported by this local cloud: the image 'python:3'`},
		{"GET", build + "/status", ``, 200, `"step":"base"`},
		{"POST", "/v2" + build, `{"fromImage":"e2bdev/base"}`, 400, `cannot be started: it is over`},

		{"GET", "/local/space", ``, 200, `{"bytes":0,"cap":21474836480,"layers":{"count":0,"bytes":0},"cache":{"count":0,"bytes":0},"uploads":{"count":0,"bytes":0}}`},
		{"DELETE", "/local/space/cache", ``, 204, ``},
		{"DELETE", "/templates/job", ``, 204, ``},
	} {
		resp, text := s.do(t, tt.method, tt.path, tt.body)
		if resp.StatusCode != tt.status || !strings.Contains(text, tt.want) {
			t.Errorf("%d, %s %s %.100s: got %d %s, want %d and %q in it", i, tt.method, tt.path, tt.body, resp.StatusCode, text, tt.status, tt.want)
		}
	}
}

// TestBuildThatFails checks that a build is started only once, that the answer to its start is
// empty, and that its log can be read to its end.
func TestBuildThatFails(t *testing.T) {
	t.Parallel()
	s := start(t)
	made := s.must(t, "POST", "/v3/templates", `{"name":"job"}`, 202)
	build := fmt.Sprintf("/templates/%v/builds/%v", made["templateID"], made["buildID"])
	resp, text := s.do(t, "POST", "/v2"+build, `{"fromImage":"e2bdev/base:1","force":false,"steps":[{"type":"RUN","args":["true"],"force":false,"forceUpload":true}]}`)
	if resp.StatusCode != 202 || text != "" || resp.Header.Get("Content-Length") != "0" {
		t.Fatalf("got %d %q with the length %q, want 202 with the length 0", resp.StatusCode, text, resp.Header.Get("Content-Length"))
	}
	var status struct {
		Status     string
		LogEntries []logEntry
		Reason     *failureAnswer
	}
	for status.Status != "error" {
		_, text = s.do(t, "GET", build+"/status?logsOffset=0", ``)
		must.Do(t, json.Unmarshal([]byte(text), &status))
	}
	n := len(status.LogEntries)
	if status.Reason == nil || status.Reason.Step != "1" || !strings.Contains(status.Reason.Message, "no sandbox here") || len(status.Reason.LogEntries) == 0 {
		t.Errorf("got the reason %+v, want step 1", status.Reason)
	}
	if last := status.LogEntries[n-1]; last.Level != "error" || last.Step != "1" || time.Since(last.Timestamp) > time.Hour {
		t.Errorf("got the last line %+v, want the failure", last)
	}
	for query, want := range map[string]int{
		"status?logsOffset=" + strconv.Itoa(n): 0, "status?logsOffset=1": n - 1, "status?limit=2": 2, "status?level=error": 1,
		"logs": n, "logs?direction=backward&limit=1": 1, "logs?cursor=0&source=temporary": n, "logs?direction=backward&cursor=0": 0,
	} {
		_, text := s.do(t, "GET", build+"/"+query, ``)
		var got struct{ LogEntries, Logs []json.RawMessage }
		if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.LogEntries)+len(got.Logs) != want {
			t.Errorf("%s: got %s, want %d lines", query, text, want)
		}
	}
}

// TestUpload checks that an archive is uploaded to a signed address, and only as a whole.
func TestUpload(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.must(t, "POST", "/v3/templates", `{"name":"job"}`, 202)
	link := func() *url.URL {
		t.Helper()
		address, err := url.Parse(s.must(t, "GET", "/templates/job/files/"+someHash, ``, 201)["url"].(string))
		must.Do(t, err)
		return address
	}
	with := func(change func(query url.Values)) string {
		address := link()
		query := address.Query()
		change(query)
		address.RawQuery = query.Encode()
		return address.String()
	}
	otherHash := *link()
	otherHash.Path = strings.Replace(otherHash.Path, "0", "1", 1)
	asked := time.Now()
	long, _ := strconv.ParseInt(link().Query().Get("expires"), 10, 64)
	if expires := time.Unix(long, 0); expires.After(time.Now().Add(31*time.Minute)) || expires.Before(asked.Add(29*time.Minute)) {
		t.Errorf("the address is valid until %v, want 30 minutes after %v", expires, asked)
	}
	justLate := strconv.FormatInt(time.Now().Unix()-1, 10)
	for name, tt := range map[string]struct {
		method, address string
		length          int64
		status          int
		want            string
	}{
		"another hash":   {"PUT", otherHash.String(), 4, 403, "signature"},
		"no signature":   {"PUT", with(func(q url.Values) { q.Del("signature") }), 4, 403, "signature"},
		"a longer time":  {"PUT", with(func(q url.Values) { q.Set("expires", "99999999999") }), 4, 403, "signature"},
		"too late":       {"PUT", with(func(q url.Values) { q.Set("expires", "1"); q.Set("signature", s.signUpload(someHash, "1")) }), 4, 403, "expired"},
		"just too late":  {"PUT", with(func(q url.Values) { q.Set("expires", justLate); q.Set("signature", s.signUpload(someHash, justLate)) }), 4, 403, "expired"},
		"another method": {"POST", link().String(), 4, 405, "only PUT"},
		"without length": {"PUT", link().String(), -1, 411, "Content-Length is missing"},
		"too large":      {"PUT", link().String(), builds.MaxUpload + 1, 413, "may have"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tt.method, tt.address, io.NopCloser(strings.NewReader("text")))
		must.Do(t, err)
		r.ContentLength = tt.length
		if tt.length > 4 { // the rest of the body never comes
			r.Header.Set("Expect", "100-continue")
			r.Body = io.NopCloser(io.MultiReader(strings.NewReader("text"), neverRead{t.Context().Done()}))
		}
		if resp, text := send(t, r); resp.StatusCode != tt.status || !strings.Contains(text, tt.want) {
			t.Errorf("%s: got %d %s, want %d and %q in it", name, resp.StatusCode, text, tt.status, tt.want)
		}
	}
	largest := httptest.NewRequestWithContext(t.Context(), "PUT", link().String(), strings.NewReader("text"))
	largest.ContentLength = builds.MaxUpload
	w := httptest.NewRecorder()
	if s.ServeHTTP(w, largest); w.Code != 400 || !strings.Contains(w.Body.String(), "cut off") {
		t.Errorf("the largest archive, cut off: got %d %s, want 400 that says so", w.Code, w.Body)
	}
	if s.builder.Uploads().Has(someHash) {
		t.Error("something was kept")
	}
	for range 2 {
		r, err := http.NewRequestWithContext(t.Context(), "PUT", link().String(), strings.NewReader("text"))
		must.Do(t, err)
		if resp, text := send(t, r); resp.StatusCode != 200 || text != "" {
			t.Errorf("got %d %s, want 200", resp.StatusCode, text)
		}
		if got := s.must(t, "GET", "/templates/job/files/"+someHash, ``, 201); got["present"] != true {
			t.Errorf("got %v, want it to be present", got)
		}
	}
}

// neverRead is a body whose Read returns only when the test ends.
type neverRead struct{ done <-chan struct{} }

func (n neverRead) Read([]byte) (int, error) {
	<-n.done
	return 0, io.EOF
}
