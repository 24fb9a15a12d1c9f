package control

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/builds"
	"github.com/e2bctl/e2bctl/internal/cloud/connlimit"
	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/image"
	"github.com/e2bctl/e2bctl/internal/cloud/layers"
	"github.com/e2bctl/e2bctl/internal/cloud/secrets"
	"github.com/e2bctl/e2bctl/internal/cloud/templates"
	"github.com/e2bctl/e2bctl/internal/cloud/volumes"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestSpecIsWhole checks that every field of a request to start a build reaches the builder.
func TestSpecIsWhole(t *testing.T) {
	t.Parallel()
	var q startRequest
	must.Do(t, json.Unmarshal([]byte(`{"fromImage":"a","fromImageRegistry":{"type":"registry","username":"u","password":"p"},"force":true,
		"stages":[{"name":"s","fromImage":"b","steps":[{"type":"RUN","args":["x"]}]}],"steps":[{"type":"RUN","args":["y"],"force":true}],"startCmd":"start","readyCmd":"ready"}`), &q))
	got, err := q.spec()
	must.Do(t, err)
	want := builds.Spec{
		FromImage: "a", Auth: &image.Auth{Username: "u", Password: "p"}, Force: true, Start: "start", Ready: "ready",
		Stages: []builds.Stage{{Name: "s", FromImage: "b", Steps: []builds.Step{{Type: "RUN", Args: []string{"x"}}}}},
		Steps:  []builds.Step{{Type: "RUN", Args: []string{"y"}, Force: true}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestSnapshotIsWhole checks that a snapshot has all properties of its sandbox's template, and is
// found by the id of the sandbox as clients write it.
func TestSnapshotIsWhole(t *testing.T) {
	t.Parallel()
	s := start(t)
	of := templates.Content{
		Engine: engine.Docker, Image: &engine.Image{Reference: "a", Digest: "b"}, Envs: map[string]string{"A": "1"},
		User: "me", Home: "/home/made", Workdir: "/work", Start: "start", Ready: "ready",
	}
	ref := templates.ParseReference("source")
	if _, err := s.templates.Add(&ref, templates.Build{Content: of}); err != nil {
		t.Fatal(err)
	}
	id := s.mustCreate(t, `{"templateID":"source"}`)
	s.must(t, "POST", "/sandboxes/"+id+"/snapshots", `{"name":"copy"}`, 201)
	_, build, err := s.templates.Find(templates.ParseReference("copy"))
	must.Do(t, err)
	got := build.Content
	if len(got.Layers) == 0 {
		t.Error("the snapshot has no layers")
	}
	got.Layers = nil
	if diff := cmp.Diff(of, got); diff != "" {
		t.Errorf("(-of the source +got):\n%s", diff)
	}
	other := s.mustCreate(t, `{"templateID":"base"}`)
	for source, want := range map[string]int{id: 1, id + "-client": 1, other: 0, "nobody": 0, "": 1} {
		if got := list(t, s, "/snapshots", "sandboxID="+source, snapshotID); len(got) != want {
			t.Errorf("of %q: got %q, want %d", source, got, want)
		}
	}
}

// TestAssignmentIDs checks that the id of an assignment is a UUID that identifies it and stays the
// same. A position in one order of tags is not valid in another order.
func TestAssignmentIDs(t *testing.T) {
	t.Parallel()
	s := start(t)
	source := s.mustCreate(t, `{"templateID":"base"}`)
	ids := map[string]bool{}
	for _, name := range []string{"job", "job:a", "job:b"} {
		s.must(t, "POST", "/sandboxes/"+source+"/snapshots", fmt.Sprintf(`{"name":%q}`, name), 201)
	}
	for _, tag := range []string{"default", "a", "b", "a"} {
		all := s.must(t, "GET", "/templates/job/tags/"+tag+"/assignments", "", 200)["data"].([]any)
		id := all[0].(map[string]any)["assignmentId"].(string)
		if !isUUID(id) || id[14] != '8' || !strings.Contains("89ab", id[19:20]) {
			t.Errorf("%s: got %s, want a UUID of version 8", tag, id)
		}
		ids[id] = true
	}
	if len(ids) != 3 {
		t.Errorf("3 tags have the ids %v", ids)
	}
	next := s.must(t, "GET", "/templates/job/tags/groups?tagsLimit=1&sort=name_asc", "", 200)["nextCursor"].(string)
	for sort, status := range map[string]int{"name_asc": 200, "latest_asc": 200, "name_desc": 400, "latest_desc": 400, "": 400} {
		s.must(t, "GET", "/templates/job/tags/groups?sort="+sort+"&tagsCursor="+url.QueryEscape(next), "", status)
	}
	at := cursor{time.Now().Add(time.Hour), "x"}
	for ascending, status := range map[bool]int{false: 200, true: 400} {
		s.must(t, "GET", "/templates/job/tags/a/assignments?cursor="+url.QueryEscape(at.encode(ascending)), "", status)
	}
}

// TestAddressOfUpload checks that the address for an upload has the scheme, http or https, of the
// request for that address.
func TestAddressOfUpload(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.must(t, "POST", "/v3/templates", `{"name":"job"}`, 202)
	for scheme, secured := range map[string]*tls.ConnectionState{"http": nil, "https": {}} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/templates/job/files/"+someHash, nil)
		r.Host, r.TLS = "cloud.test:1234", secured
		r.Header.Set("X-API-KEY", testKey)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		var got struct{ URL string }
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || !strings.HasPrefix(got.URL, scheme+"://cloud.test:1234/uploads/"+someHash+"?") {
			t.Errorf("%s: got %s", scheme, w.Body)
		}
	}
}

// TestRoomForUploads checks that an archive for which there is no room is refused before it is
// sent, and that older archives are removed to make room.
func TestRoomForUploads(t *testing.T) {
	t.Parallel()
	s := start(t)
	const most = 100
	st := s.options.Store
	s.builds = newBuilder(t, st, layers.Open(layers.Options{Store: st}), s.templates, func(o *builds.Options) { o.Cap = most })
	s.must(t, "POST", "/v3/templates", `{"name":"job"}`, 202)
	otherHash := strings.Repeat("a", 64)
	put := func(hash string, bytes int) int {
		t.Helper()
		link := s.must(t, "GET", "/templates/job/files/"+hash, ``, 201)["url"].(string)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, link, strings.NewReader(strings.Repeat("x", bytes)))
		must.Do(t, err)
		resp, _ := send(t, r)
		return resp.StatusCode
	}
	for _, tt := range []struct {
		hash          string
		bytes, status int
		present       [2]bool // whether someHash and otherHash remain
	}{
		{someHash, most + 1, 507, [2]bool{false, false}},
		{someHash, most, 200, [2]bool{true, false}},
		{otherHash, 1, 200, [2]bool{false, true}},
		{someHash, most + 1, 507, [2]bool{false, false}},
	} {
		if got := put(tt.hash, tt.bytes); got != tt.status {
			t.Errorf("%d bytes: got %d, want %d", tt.bytes, got, tt.status)
		}
		if got := [2]bool{s.builds.Uploads().Has(someHash), s.builds.Uploads().Has(otherHash)}; got != tt.present {
			t.Errorf("after %d bytes: got %v, want %v", tt.bytes, got, tt.present)
		}
	}
}

// TestContentErrors checks that each error of package volumes and of the system has one answer,
// even if other errors wrap it, and that only the one for unknown errors is logged.
func TestContentErrors(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]struct {
		status int
		code   string
	}{
		volumes.ErrToken: {401, "unauthorized"}, volumes.ErrNotFound: {404, "volume_not_found"}, volumes.ErrPath: {400, "invalid_path"},
		volumes.ErrAttributes: {400, "invalid_attributes"}, volumes.ErrTooLong: {400, "too_many_entries"}, volumes.ErrNotDir: {400, "not_a_directory"},
		volumes.ErrNotFile: {400, "not_a_file"}, volumes.ErrIsDir: {409, "is_a_directory"}, fs.ErrExist: {409, "already_exists"},
		fs.ErrNotExist: {404, "path_not_found"}, fs.ErrPermission: {403, "forbidden"}, os.ErrDeadlineExceeded: {408, "timeout"},
		syscall.ENOSPC: {507, "no_space"}, syscall.EDQUOT: {507, "no_space"}, context.DeadlineExceeded: {504, "timeout"},
		invalid("force must be true or false"): {400, "invalid_request"}, errors.New("broken"): {500, "internal"},
		&contentError{"own", "own", 418}: {418, "own"},
	} {
		for _, err := range []error{err, fmt.Errorf("a volume: %w", &fs.PathError{Op: "open", Path: "/a", Err: err})} {
			got := contentErrorFor(err)
			if got.status != want.status || got.Code != want.code || got.Message == "" {
				t.Errorf("%v: got %d %s %q, want %d %s and a message", err, got.status, got.Code, got.Message, want.status, want.code)
			}
			var log strings.Builder
			service, w := &Service{options: Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}}, httptest.NewRecorder()
			service.failContent(w, httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/volumecontent/a/file", nil), err)
			var answer contentError
			if failed := json.Unmarshal(w.Body.Bytes(), &answer); failed != nil || w.Code != want.status || answer.Code != want.code {
				t.Errorf("%v: answered %d %s", err, w.Code, w.Body)
			}
			if says := `level=ERROR msg="volume content" method=PUT path=/volumecontent/a/file error=`; strings.Contains(log.String(), says) != (want.status == 500) || want.status != 500 && log.Len() > 0 {
				t.Errorf("%v: logged %q", err, log.String())
			}
		}
	}
}

// TestErrorsOfSecretsAndVolumes checks that each error about a secret or a volume has an answer
// that names the secret or volume, and that other errors are returned unchanged.
func TestErrorsOfSecretsAndVolumes(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, tt := range []struct {
		got    error
		status int
		text   string
	}{
		{secretError(secrets.ErrNotFound, "one"), 404, `Secret "one" doesn't exist`},
		{secretError(secrets.ErrExists, "one"), 409, `"one" already`},
		{secretError(secrets.ErrTooMany, "one"), 429, fmt.Sprint(secrets.Max)},
		{secretError(&secrets.InvalidError{Reason: "name must be shorter"}, "one"), 400, "name must be shorter"},
		{volumeError(volumes.ErrNotFound, "one"), 404, `Volume "one" doesn't exist`},
		{volumeError(volumes.ErrExists, "one"), 400, `"one" already`},
		{volumeError(volumes.ErrName, "one"), 400, "letters"},
		{volumeError(volumes.ErrTooMany, "one"), 429, fmt.Sprint(volumes.Max)},
		{volumeError(volumes.ErrInUse, "one"), 409, `Volume "one" is in use`},
	} {
		e, ok := errors.AsType[*apiError](tt.got)
		if !ok || e.Code != tt.status || !strings.Contains(e.Message, tt.text) {
			t.Errorf("got %v, want %d with %q", tt.got, tt.status, tt.text)
		}
	}
	for _, got := range []error{secretError(broken, "one"), volumeError(broken, "one")} {
		if got != broken { //nolint:errorlint // it is to be the same
			t.Errorf("got %v, want the error as it was", got)
		}
	}
}

// TestSecretWithoutMetadata checks that the metadata of each secret is a JSON object, even if it
// has none.
func TestSecretWithoutMetadata(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, got := range []map[string]any{
		s.must(t, "POST", "/secrets", `{"name":"a","value":"x"}`, 201),
		s.must(t, "GET", "/secrets/a", "", 200),
		s.must(t, "POST", "/secrets/a", `{"value":"y"}`, 200),
	} {
		if _, object := got["metadata"].(map[string]any); !object {
			t.Errorf("got %v, want an object as its metadata", got)
		}
	}
}

func TestUUIDs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		newUUID(): true, teamID: true,
		"": false, "00000000-0000-4000-8000-00000000000": false, "00000000-0000-4000-8000-0000000000000": false,
		"00000000-0000-4000-8000-00000000000g": false, "00000000-0000-4000-8000-00000000000A": false, "../00000-0000-4000-8000-000000000000": false,
		"0000000-00000-4000-8000-000000000000": false, "00000000000040008000000000000000": false, "00000000-0000-4000-8000-000000000000-": false,
	} {
		if isUUID(text) != want {
			t.Errorf("%q: want it to be one: %v", text, want)
		}
	}
}

// TestAnswersOfContent checks that a browser may not guess the type of a volume's file, and that a
// volume is no longer in use after any answer.
func TestAnswersOfContent(t *testing.T) {
	t.Parallel()
	linuxOnly(t)
	s := start(t)
	id, token := s.createVolume(t, "data")
	at := url.Values{"path": {"/f"}}
	if resp, text := s.content(t, token, "PUT", id, "file", at, strings.NewReader("<script>")); resp.StatusCode != 201 {
		t.Fatalf("got %d %s, want 201", resp.StatusCode, text)
	}
	resp, text := s.content(t, token, "GET", id, "file", at, nil)
	want := http.Header{"Content-Type": {"application/octet-stream"}, "Content-Length": {"8"}, "X-Content-Type-Options": {"nosniff"}}
	resp.Header.Del("Date")
	if diff := cmp.Diff(want, resp.Header); diff != "" || text != "<script>" {
		t.Errorf("got %q with the header (-want +got):\n%s", text, diff)
	}
	if resp, text := s.content(t, token, "HEAD", id, "file", at, nil); resp.StatusCode != 200 || text != "" || resp.ContentLength != 8 {
		t.Errorf("HEAD: got %d %q of the length %d, want 200 without a body", resp.StatusCode, text, resp.ContentLength)
	}
	for _, call := range []string{"GET path", "GET dir", "GET file", "POST dir", "PUT file", "PATCH path", "DELETE path"} {
		method, name, _ := strings.Cut(call, " ")
		for _, path := range []string{"/f", "/nothing/at/all", ""} {
			s.content(t, token, method, id, name, url.Values{"path": {path}}, strings.NewReader("{}"))
		}
	}
	s.must(t, "DELETE", "/volumes/"+id, "", 204)
}

// TestSendersOfFilesAreAdmitted checks that a client with the token of a volume, or with a signed
// address, keeps its connection while strangers connect.
func TestSendersOfFilesAreAdmitted(t *testing.T) {
	t.Parallel()
	linuxOnly(t)
	s := start(t)
	id, token := s.createVolume(t, "data")
	s.must(t, "POST", "/v3/templates", `{"name":"job"}`, 202)
	signed, err := url.Parse(s.must(t, "GET", "/templates/job/files/"+someHash, ``, 201)["url"].(string))
	must.Do(t, err)
	for _, tt := range []struct {
		path   string
		status int
	}{{"/volumecontent/" + id + "/file?path=/f", 201}, {signed.RequestURI(), 200}} {
		inner, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		must.Do(t, err)
		l := connlimit.New(inner, connlimit.Options{Max: 1, Patience: time.Hour, Logger: slog.New(slog.DiscardHandler)})
		server := &http.Server{Handler: connlimit.Handler(s.Service), ConnContext: connlimit.ConnContext, ReadHeaderTimeout: time.Hour}
		served := make(chan error, 1)
		go func() { served <- server.Serve(l) }()
		const part, parts = 1 << 20, 16 // larger than the buffers between client and server
		body, ours := io.Pipe()
		go func() {
			for i := range parts {
				if i == parts-1 { // it is being read
					if other, err := net.Dial("tcp", l.Addr().String()); err == nil {
						_, _ = io.WriteString(other, "GET / HTTP/1.0\r\n\r\n")
						_, _ = other.Read(make([]byte, 1)) // until it is refused, or answered in place of the sender
						other.Close()
					}
				}
				if _, err := ours.Write(make([]byte, part)); err != nil {
					return
				}
			}
			ours.Close()
		}()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+l.Addr().String()+tt.path, body)
		must.Do(t, err)
		r.ContentLength = part * parts
		r.Header.Set("Authorization", "Bearer "+token)
		transport := &http.Transport{}
		resp, err := transport.RoundTrip(r)
		if err != nil {
			t.Errorf("%s: %v, want the connection to stay", tt.path, err)
		} else {
			if resp.Body.Close(); resp.StatusCode != tt.status {
				t.Errorf("%s: got %d, want %d", tt.path, resp.StatusCode, tt.status)
			}
		}
		transport.CloseIdleConnections()
		body.Close()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-served
	}
}
