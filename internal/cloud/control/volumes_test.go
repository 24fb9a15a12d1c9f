package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
	"github.com/e2bctl/e2bctl/internal/cloud/volumes"
	"github.com/e2bctl/e2bctl/internal/must"
)

func (s *service) createVolume(t *testing.T, name string) (id, token string) {
	t.Helper()
	v := s.must(t, "POST", "/volumes", `{"name":"`+name+`"}`, 201)
	return v["volumeID"].(string), v["token"].(string)
}

func TestVolumeCalls(t *testing.T) {
	t.Parallel()
	s := start(t)
	if _, text := s.do(t, "GET", "/volumes", ""); text != "[]" {
		t.Errorf("got %s, want an empty list", text)
	}
	v := s.must(t, "POST", "/volumes", `{"name":"Data_1-x"}`, 201)
	id := v["volumeID"].(string)
	if v["name"] != "Data_1-x" || v["domain"] != "localhost:1" || v["token"] == "" || !isUUID(id) {
		t.Errorf("got %v, want name, domain, token and UUID", v)
	}
	got := s.must(t, "GET", "/volumes/"+id, "", 200)
	if got["volumeID"] != id || got["name"] != "Data_1-x" || got["domain"] != "localhost:1" || got["token"] == "" {
		t.Errorf("got %v, want what create answered", got)
	}
	if _, text := s.do(t, "GET", "/volumes", ""); text != `[{"volumeID":"`+id+`","name":"Data_1-x"}]` {
		t.Errorf("got %s, want a list with one volume", text)
	}
	for _, tt := range []struct {
		method, path, body string
		status             int
		message            string
	}{
		{"POST", "/volumes", `{"name":"Data_1-x"}`, 400, "already"},
		{"POST", "/volumes", `{"name":"a b"}`, 400, "letters"},
		{"POST", "/volumes", `{}`, 400, "letters"},
		{"GET", "/volumes/data", "", 400, "Invalid volume ID"},
		{"DELETE", "/volumes/data", "", 400, "Invalid volume ID"},
		{"GET", "/volumes/" + newUUID(), "", 404, "doesn't exist"},
		{"DELETE", "/volumes/" + newUUID(), "", 404, "doesn't exist"},
		{"PUT", "/volumes/" + id, "", 405, "DELETE, GET"},
	} {
		resp, text := s.do(t, tt.method, tt.path, tt.body)
		if resp.StatusCode != tt.status || !strings.Contains(text, tt.message) {
			t.Errorf("%s %s: got %d %s, want %d with %q", tt.method, tt.path, resp.StatusCode, text, tt.status, tt.message)
		}
	}
	s.must(t, "DELETE", "/volumes/"+id, "", 204)
	s.must(t, "GET", "/volumes/"+id, "", 404)
}

// TestVolumeMounts checks that a sandbox is created with volumes and reports them, and that the
// volumes cannot be deleted as long as the sandbox can be resumed.
func TestVolumeMounts(t *testing.T) {
	t.Parallel()
	s := start(t)
	a, _ := s.createVolume(t, "a")
	b, _ := s.createVolume(t, "b")
	for mounts, want := range map[string]string{
		`[{"name":"nothing","path":"/a"}]`:                      `does not exist","error_code":"volume_not_found"`,
		`[{"path":"/a"}]`:                                       "without a name",
		`[{"name":"a","path":"a"}]`:                             "absolute",
		`[{"name":"a","path":"/a/"}]`:                           "absolute",
		`[{"name":"a","path":"/a/../b"}]`:                       "absolute",
		`[{"name":"a"}]`:                                        "absolute",
		`[{"name":"a","path":"/"}]`:                             "nothing can be mounted",
		`[{"name":"a","path":"/run"}]`:                          "nothing can be mounted",
		`[{"name":"a","path":"/proc/x"}]`:                       "nothing can be mounted",
		`[{"name":"a","path":"/x"},{"name":"b","path":"/x"}]`:   "different",
		`[{"name":"a","path":"/x/y"},{"name":"b","path":"/x"}]`: "inside",
		`"a"`:                     "must be an array",
		`[{"name":"a","path":5}]`: "must be a string",
		"[" + strings.Repeat(`{"name":"a","path":"/x"},`, maxVolumeMounts) + `{"name":"a","path":"/x"}]`: "is the limit",
	} {
		resp, text := s.do(t, "POST", "/v2/sandboxes", `{"templateID":"base","volumeMounts":`+mounts+`}`)
		if resp.StatusCode != 400 || !strings.Contains(text, want) {
			t.Errorf("%s: got %d %s, want 400 with %q", mounts, resp.StatusCode, text, want)
		}
	}
	id := s.mustCreate(t, `{"templateID":"base","volumeMounts":[{"name":"b","path":"/data"},{"name":"a","path":"/home/user/a"},{"name":"a","path":"/x"}]}`)
	want := []lifecycle.VolumeMount{{ID: b, Name: "b", Path: "/data"}, {ID: a, Name: "a", Path: "/home/user/a"}, {ID: a, Name: "a", Path: "/x"}}
	if diff := cmp.Diff(want, s.fakes.Spec(id).Volumes); diff != "" {
		t.Errorf("launched with (-want +got):\n%s", diff)
	}
	shown := []any{
		map[string]any{"name": "b", "path": "/data"}, map[string]any{"name": "a", "path": "/home/user/a"}, map[string]any{"name": "a", "path": "/x"},
	}
	if diff := cmp.Diff(any(shown), s.must(t, "GET", "/sandboxes/"+id, "", 200)["volumeMounts"]); diff != "" {
		t.Errorf("volumeMounts (-want +got):\n%s", diff)
	}
	s.must(t, "DELETE", "/volumes/"+a, "", 409)
	s.must(t, "POST", "/sandboxes/"+id+"/pause", `{"memory":false}`, 204)
	s.must(t, "DELETE", "/volumes/"+a, "", 409)
	s.must(t, "POST", "/v2/sandboxes/"+id+"/connect", `{"timeout":60}`, 201)
	if diff := cmp.Diff(want, s.fakes.Spec(id).Volumes); diff != "" {
		t.Errorf("resumed with (-want +got):\n%s", diff)
	}
	s.must(t, "DELETE", "/sandboxes/"+id, "", 204)
	s.must(t, "DELETE", "/volumes/"+a, "", 204)
}

// content calls the content API.
func (s *service) content(t *testing.T, token, method, id, call string, query url.Values, body io.Reader) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+"/volumecontent/"+id+"/"+call+"?"+query.Encode(), body)
	must.Do(t, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return send(t, r)
}

// volumeContent calls the content API for one volume.
type volumeContent struct {
	*service
	id, token string
}

func openContent(t *testing.T) volumeContent {
	t.Helper()
	linuxOnly(t)
	s := start(t)
	id, token := s.createVolume(t, "data")
	return volumeContent{s, id, token}
}

// call sends a request whose body has no announced length.
func (v volumeContent) call(t *testing.T, method, call, path string, more url.Values, body string) (int, string) {
	t.Helper()
	if more == nil {
		more = url.Values{}
	}
	if path != "" {
		more.Set("path", path)
	}
	resp, text := v.content(t, v.token, method, v.id, call, more, io.MultiReader(strings.NewReader(body)))
	return resp.StatusCode, text
}

// entry returns the entry in an answer, with its times removed.
func entry(t *testing.T, text string) (e contentEntry) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &e); err != nil || e.MTime.IsZero() {
		t.Fatalf("%s: %v, want an entry", text, err)
	}
	e.ATime, e.MTime, e.CTime = time.Time{}, time.Time{}, time.Time{}
	return e
}

func TestVolumeContent(t *testing.T) {
	t.Parallel()
	v := openContent(t)
	uid, gid := 1000, 1000
	if os.Geteuid() != 0 {
		uid, gid = 0, 0
	}
	status, text := v.call(t, "PUT", "file", "d/f", url.Values{"force": {"true"}, "mode": {"416"}}, "hello")
	want := contentEntry{Name: "f", Path: "/d/f", Type: "file", Size: 5, Mode: 0o640, UID: uint32(uid), GID: uint32(gid)}
	if status != 201 {
		t.Fatalf("got %d %s, want 201", status, text)
	}
	if diff := cmp.Diff(want, entry(t, text)); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
	if status, text := v.call(t, "GET", "file", "/d/f", nil, ""); status != 200 || text != "hello" {
		t.Errorf("got %d %s, want hello", status, text)
	}
	if status, text := v.call(t, "PATCH", "path", "/d/f", nil, `{"mode":256}`); status != 200 || entry(t, text).Mode != 0o400 {
		t.Errorf("got %d %s, want another mode", status, text)
	}
	if status, text := v.call(t, "POST", "dir", "/d/e", nil, ""); status != 201 || entry(t, text).Type != volumes.Directory {
		t.Errorf("got %d %s, want a directory", status, text)
	}
	if status, text := v.call(t, "GET", "path", "/d/e", nil, ""); status != 200 || entry(t, text).Mode != 0o755 {
		t.Errorf("got %d %s, want the directory", status, text)
	}
	for depth, want := range map[string]int{"": 1, "1": 1, "2": 3, "4000000000": 3} {
		status, text := v.call(t, "GET", "dir", "/", url.Values{"depth": {depth}}, "")
		var entries []contentEntry
		if err := json.Unmarshal([]byte(text), &entries); err != nil || status != 200 || len(entries) != want {
			t.Errorf("depth %q: got %d %s, want %d entries", depth, status, text, want)
		}
	}
}

// TestVolumeContentRefusals checks the status and the code of each error, in a volume with the file /d/f.
func TestVolumeContentRefusals(t *testing.T) {
	t.Parallel()
	v := openContent(t)
	for _, tt := range []struct {
		method, call, path string
		more               url.Values
		body               string
		status             int
		code               string
	}{
		{"PUT", "file", "/d/f", url.Values{"force": {"true"}}, "hello", 201, ""},
		{"GET", "path", "/nothing", nil, "", 404, "path_not_found"},
		{"GET", "path", "", nil, "", 400, "invalid_path"},
		{"GET", "file", "/nothing", nil, "", 404, "path_not_found"},
		{"GET", "file", "/d", nil, "", 409, "is_a_directory"},
		{"GET", "dir", "/d/f", nil, "", 400, "not_a_directory"},
		{"GET", "dir", "/d", url.Values{"depth": {"0"}}, "", 400, "invalid_request"},
		{"GET", "dir", "/d", url.Values{"depth": {"-1"}}, "", 400, "invalid_request"},
		{"PUT", "file", "/d/f", nil, "x", 409, "already_exists"},
		{"PUT", "file", "/d/f", url.Values{"force": {"false"}}, "x", 409, "already_exists"},
		{"PUT", "file", "/d/f", url.Values{"force": {"perhaps"}}, "x", 400, "invalid_request"},
		{"PUT", "file", "/d", url.Values{"force": {"true"}}, "x", 409, "is_a_directory"},
		{"PUT", "file", "/x/y", nil, "x", 404, "path_not_found"},
		{"PUT", "file", "/x", url.Values{"mode": {"0o644"}}, "x", 400, "invalid_request"},
		{"PUT", "file", "/x", url.Values{"mode": {"4096"}}, "x", 400, "invalid_attributes"},
		{"PUT", "file", "/x", url.Values{"uid": {"70000"}}, "x", 400, "invalid_attributes"},
		{"POST", "dir", "/d", nil, "", 409, "already_exists"},
		{"PATCH", "path", "/d/f", nil, `{"uid":"root"}`, 400, "invalid_request"},
		{"PATCH", "path", "/d/f", nil, `{"uid":-1}`, 400, "invalid_request"},
		{"DELETE", "path", "/", nil, "", 404, "path_not_found"},
		{"DELETE", "path", "/d", nil, "", 204, ""},
		{"DELETE", "path", "/d", nil, "", 404, "path_not_found"},
		{"POST", "file", "/d", nil, "", 404, "not_found"},
	} {
		status, text := v.call(t, tt.method, tt.call, tt.path, tt.more, tt.body)
		var e contentError
		if tt.code != "" {
			if err := json.Unmarshal([]byte(text), &e); err != nil || e.Message == "" {
				t.Errorf("%s %s: got %s, want an error with a message", tt.method, tt.call, text)
			}
		}
		if status != tt.status || e.Code != tt.code {
			t.Errorf("%s %s %s %v: got %d %s, want %d %s", tt.method, tt.call, tt.path, tt.more, status, text, tt.status, tt.code)
		}
	}
}

// TestVolumeContentToken checks that only the token of a volume gives access to its content.
func TestVolumeContentToken(t *testing.T) {
	t.Parallel()
	linuxOnly(t)
	s := start(t)
	id, token := s.createVolume(t, "data")
	other, otherToken := s.createVolume(t, "other")
	s.must(t, "DELETE", "/volumes/"+other, "", 204)
	for _, tt := range []struct {
		id, token string
		status    int
	}{{id, "", 401}, {id, testKey, 401}, {id, otherToken, 401}, {other, token, 401}, {other, otherToken, 404}} {
		resp, text := s.content(t, tt.token, "GET", tt.id, "path", url.Values{"path": {"/"}}, nil)
		var e contentError
		if err := json.Unmarshal([]byte(text), &e); resp.StatusCode != tt.status || err != nil {
			t.Errorf("got %d %s, want %d and an error", resp.StatusCode, text, tt.status)
		}
	}
}

func linuxOnly(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("volumes are on Linux only")
	}
}

// TestVolumeTransfers checks that a large file is not held in memory, and that a
// volume is not deleted while its files are being copied.
func TestVolumeTransfers(t *testing.T) { //nolint:paralleltest // it measures memory, and that of other tests would count
	linuxOnly(t)
	s := start(t)
	id, token := s.createVolume(t, "data")
	const size = 64 << 20
	query := url.Values{"path": {"/large"}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	body, ours := io.Pipe()
	deleted := make(chan error, 1)
	go func() {
		defer ours.Close()
		part := []byte(strings.Repeat("0123456789abcdef", 1<<16))
		for n := range size / len(part) {
			if _, err := ours.Write(part); err != nil {
				return
			}
			if n == 8 {
				r, err := http.NewRequestWithContext(t.Context(), "DELETE", s.url+"/volumes/"+id, nil)
				if err == nil {
					r.Header.Set("X-API-KEY", testKey)
					resp, text := send(t, r)
					if resp.StatusCode != 409 {
						err = fmt.Errorf("got %d %s, want 409", resp.StatusCode, text)
					}
				}
				deleted <- err
			}
		}
	}()
	resp, text := s.content(t, token, "PUT", id, "file", query, body)
	if resp.StatusCode != 201 {
		t.Fatalf("got %d %s, want 201", resp.StatusCode, text)
	}
	if err := <-deleted; err != nil {
		t.Errorf("deleting the volume meanwhile: %v", err)
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.url+"/volumecontent/"+id+"/file?"+query.Encode(), nil)
	must.Do(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err = transport.RoundTrip(r)
	must.Do(t, err)
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if n != size || err != nil || resp.ContentLength != size {
		t.Errorf("got %d of %d bytes and error %v, want %d", n, resp.ContentLength, err, size)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > size/2 {
		t.Errorf("copying %d bytes twice allocated %d, want at most %d", size, used, size/2)
	}
}

// answered is a client that does something before it receives each piece of an answer.
type answered struct {
	*httptest.ResponseRecorder
	before func(received int64)
}

func (w *answered) WriteHeader(status int) {
	w.before(0)
	w.ResponseRecorder.WriteHeader(status)
}

func (w *answered) Write(b []byte) (int, error) {
	w.before(int64(w.Body.Len() + len(b)))
	return w.ResponseRecorder.Write(b)
}

// TestVolumeIsFreeOnceAnswered checks that a client can delete a volume as soon as it has the answer
// of a call for its content, but not while a file is being sent.
func TestVolumeIsFreeOnceAnswered(t *testing.T) {
	t.Parallel()
	const size = 2*contentPart + 1
	for call, tt := range map[string]struct {
		path, body string
		sent       int64 // bytes that the client has when it deletes the volume
	}{
		"GET path": {path: "/f"}, "GET dir": {path: "/"}, "GET file": {path: "/f", sent: size}, "DELETE path": {path: "/f"},
		"POST dir": {path: "/d"}, "PUT file": {path: "/g", body: "new"}, "PATCH path": {path: "/f", body: `{"mode":384}`},
	} {
		v := openContent(t)
		if status, text := v.call(t, "PUT", "file", "/f", nil, strings.Repeat("x", size)); status != 201 {
			t.Fatalf("got %d %s, want 201", status, text)
		}
		method, name, _ := strings.Cut(call, " ")
		r := httptest.NewRequestWithContext(t.Context(), method, "/volumecontent/"+v.id+"/"+name+"?path="+tt.path, strings.NewReader(tt.body))
		r.Header.Set("Authorization", "Bearer "+v.token)
		deleted := false
		w := &answered{httptest.NewRecorder(), func(received int64) {
			if deleted {
				return
			}
			var want error
			if received < tt.sent {
				want = volumes.ErrInUse
			}
			err := v.volumes.Delete(v.id, func() bool { return false })
			if deleted = err == nil; !errors.Is(err, want) {
				t.Errorf("%s: after %d bytes: got error %v, want %v", call, received, err, want)
			}
		}}
		v.contentRoutes().ServeHTTP(w, r)
		if w.Code >= 300 || !deleted {
			t.Errorf("%s: got %d %s, and the volume is deleted: %v", call, w.Code, w.Body, deleted)
		}
	}
}
