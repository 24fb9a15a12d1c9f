package api

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

// answering returns a client of a service that has one answer, and the requests of that client.
func answering(t *testing.T, status int, body string) (*Client, <-chan string) {
	t.Helper()
	asked := make(chan string, 10)
	return service(t, func(w http.ResponseWriter, r *http.Request) {
		sent, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		asked <- strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Method, r.URL.RequestURI(), sent))
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}), asked
}

func asks(t *testing.T, asked <-chan string, want string) {
	t.Helper()
	select {
	case got := <-asked:
		if got != want {
			t.Errorf("the service was asked %s, want %s", got, want)
		}
	default:
		t.Errorf("the service was not asked %s", want)
	}
}

func TestCreateTemplate(t *testing.T) {
	t.Parallel()
	c, asked := answering(t, 202, `{"templateID":"t1","buildID":"b-1","public":false,"names":["team/a"],"tags":["v1"],"aliases":["a"]}`)
	none := int64(0)
	got, err := c.Templates.Create(t.Context(), "a", &TemplateCreateParams{Tags: []string{"v1"}, CPUs: 2, MemoryBytes: 512<<20 - 1, MinFreeDiskBytes: &none})
	must.Do(t, err)
	if diff := cmp.Diff(&NewBuild{TemplateID: "t1", BuildID: "b-1", Names: []string{"team/a"}, Aliases: []string{"a"}, Tags: []string{"v1"}}, got); diff != "" {
		t.Error(diff)
	}
	asks(t, asked, `POST /v3/templates {"name":"a","tags":["v1"],"cpuCount":2,"memoryMB":512,"minFreeDiskMb":0}`)
	if _, err := c.Templates.Create(t.Context(), "a", nil); err != nil {
		t.Fatal(err)
	}
	asks(t, asked, `POST /v3/templates {"name":"a"}`)
	c, _ = answering(t, 202, `{"templateID":"../x","buildID":"b"}`)
	if _, err := c.Templates.Create(t.Context(), "a", nil); err == nil {
		t.Error("an answer with an id that is none: got no error")
	}
}

func TestStartBuild(t *testing.T) {
	t.Parallel()
	const login = `api: the login to a registry wants`
	tests := []struct {
		name    string
		params  *StartBuildParams
		want    string // the body
		wantErr string
	}{
		{name: "nothing to begin with", params: nil, wantErr: "begins with FromImage or with FromTemplate"},
		{name: "two things", params: &StartBuildParams{FromImage: "a", FromTemplate: "b"}, wantErr: "begins with"},
		{name: "least", params: &StartBuildParams{FromImage: "a"}, want: `{"fromImage":"a","force":false,"steps":[]}`},
		{
			name: "most",
			params: &StartBuildParams{
				FromTemplate: "b:v1", Force: true, StartCommand: "start", ReadyCommand: "ready",
				Steps: []BuildStep{{Type: "RUN", Args: []string{"x"}}, {Type: "COPY", Args: []string{"a", "b", "", ""}, FilesHash: "h", Force: true}},
			},
			want: `{"fromTemplate":"b:v1","force":true,"steps":[{"type":"RUN","args":["x"],"force":false},` +
				`{"type":"COPY","args":["a","b","",""],"filesHash":"h","force":true}],"startCmd":"start","readyCmd":"ready"}`,
		},
		{
			name: "password", params: &StartBuildParams{FromImage: "a", Registry: &ImageRegistry{Username: "u", Password: "secret-word"}},
			want: `{"fromImage":"a","fromImageRegistry":{"password":"secret-word","type":"registry","username":"u"},"force":false,"steps":[]}`,
		},
		{
			name: "aws", params: &StartBuildParams{FromImage: "a", Registry: &ImageRegistry{AWSAccessKeyID: "i", AWSSecretAccessKey: "s", AWSRegion: "r"}},
			want: `{"fromImage":"a","fromImageRegistry":{"awsAccessKeyId":"i","awsRegion":"r","awsSecretAccessKey":"s","type":"aws"},"force":false,"steps":[]}`,
		},
		{
			name: "gcp", params: &StartBuildParams{FromImage: "a", Registry: &ImageRegistry{GCPServiceAccount: "{}"}},
			want: `{"fromImage":"a","fromImageRegistry":{"serviceAccountJson":"{}","type":"gcp"},"force":false,"steps":[]}`,
		},
		{name: "half a login", params: &StartBuildParams{FromImage: "a", Registry: &ImageRegistry{Username: "u"}}, wantErr: login},
		{name: "two logins", params: &StartBuildParams{FromImage: "a", Registry: &ImageRegistry{Username: "u", Password: "p", GCPServiceAccount: "{}"}}, wantErr: login},
		{name: "no login", params: &StartBuildParams{FromImage: "a", Registry: &ImageRegistry{}}, wantErr: login},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c, asked := answering(t, 202, "")
			err := c.Templates.StartBuild(t.Context(), "t", "b", test.params)
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) || !errors.Is(err, ErrInvalidArgument) {
					t.Errorf("got error %v, want one of class ErrInvalidArgument with %q", err, test.wantErr)
				}
				return
			}
			must.Do(t, err)
			asks(t, asked, "POST /v2/templates/t/builds/b "+test.want)
		})
	}
}

func TestBuildStatusAndLogs(t *testing.T) {
	t.Parallel()
	c, asked := answering(t, 200, `{"templateID":"t","buildID":"b","status":"error","logs":[],
		"logEntries":[{"timestamp":"2026-11-22T13:30:00Z","level":"info","message":"m","step":"1"}],
		"reason":{"message":"it broke","step":"2","logEntries":[{"timestamp":"2026-11-22T13:30:00Z","level":"error","message":"e"}]}}`)
	at := time.Date(2026, 11, 22, 13, 30, 0, 0, time.UTC)
	got, err := c.Templates.BuildStatus(t.Context(), "t", "b", &BuildStatusParams{LogsOffset: 3, MaxLines: 5, Level: BuildLogInfo})
	must.Do(t, err)
	if diff := cmp.Diff(&BuildState{
		TemplateID: "t", BuildID: "b", Status: BuildError, Logs: []BuildLogEntry{{at, BuildLogInfo, "m", "1"}},
		Failure: &BuildFailure{"it broke", "2", []BuildLogEntry{{Time: at, Level: BuildLogError, Message: "e"}}},
	}, got); diff != "" {
		t.Error(diff)
	}
	asks(t, asked, "GET /templates/t/builds/b/status?level=info&limit=5&logsOffset=3")
	if _, err := c.Templates.BuildStatus(t.Context(), "t", "b", nil); err != nil {
		t.Fatal(err)
	}
	asks(t, asked, "GET /templates/t/builds/b/status")

	c, asked = answering(t, 200, `{"logs":[{"timestamp":"2026-11-22T13:30:00Z","level":"warn","message":"m"}]}`)
	logs, err := c.Templates.BuildLogs(t.Context(), "t", "b", &BuildLogsParams{Cursor: at, Backward: true, MaxLines: 7, Level: BuildLogWarn})
	must.Do(t, err)
	if diff := cmp.Diff([]BuildLogEntry{{Time: at, Level: BuildLogWarn, Message: "m"}}, logs); diff != "" {
		t.Error(diff)
	}
	asks(t, asked, fmt.Sprintf("GET /templates/t/builds/b/logs?cursor=%d&direction=backward&level=warn&limit=7", at.UnixMilli()))

	for _, ids := range [][2]string{{"", "b"}, {"t", ""}, {"a/b", "b"}, {"t", "../b"}} {
		if _, err := c.Templates.BuildStatus(t.Context(), ids[0], ids[1], nil); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("status of template %q and build %q: got %v, want ErrInvalidArgument", ids[0], ids[1], err)
		}
	}
}

// TestMissingBy400 checks that the error is ErrNotFound, too, if a service answers 400 for
// something that does not exist.
func TestMissingBy400(t *testing.T) {
	t.Parallel()
	c, _ := answering(t, 400, `{"code":400,"message":"template 't' has no build 'b'"}`)
	if _, err := c.Templates.BuildStatus(t.Context(), "t", "b", nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("an unknown build: got %v, want ErrNotFound", err)
	}
	for _, status := range []int{401, 403, 409, 422, 500} {
		c, _ := answering(t, status, `{"message":"m"}`)
		if _, err := c.Templates.BuildStatus(t.Context(), "t", "b", nil); err == nil || errors.Is(err, ErrNotFound) {
			t.Errorf("status %d: got %v, want an error that is not ErrNotFound", status, err)
		}
	}
	for code, want := range map[string]bool{CodeVolumeNotFound: true, CodeSecretNotFound: true, "": false} {
		c, _ := answering(t, 400, `{"code":400,"message":"m","error_code":"`+code+`"}`)
		if _, err := c.Sandboxes.Create(t.Context(), &CreateParams{}); errors.Is(err, ErrNotFound) != want || !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("the code %q: got %v, which is ErrNotFound: %v, want %v", code, err, !want, want)
		}
	}
}

// TestConflictBy400 checks that the error is ErrConflict, too, if a service answers 400 to calls for
// which that can have no other reason, and for no other status.
func TestConflictBy400(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]bool{400: true, 409: true, 401: false, 403: false, 404: false, 422: false, 500: false} {
		c, _ := answering(t, status, `{"message":"m"}`)
		_, volume := c.Volumes.Create(t.Context(), "a")
		for what, err := range map[string]error{"a template": c.Templates.Delete(t.Context(), "t"), "a snapshot": c.Snapshots.Delete(t.Context(), "t"), "a volume": volume} {
			if err == nil || errors.Is(err, ErrConflict) != want {
				t.Errorf("%s, status %d: got %v, want ErrConflict: %v", what, status, err, want)
			}
		}
		if _, err := c.Volumes.Create(t.Context(), "no name"); errors.Is(err, ErrConflict) != (status == 409) {
			t.Errorf("a volume with a bad name, status %d: got %v, want ErrConflict: %v", status, err, status == 409)
		}
	}
}

func TestUpload(t *testing.T) {
	t.Parallel()
	const content = "what is in the archive"
	uploads := make(chan *http.Request, 1)
	bodies := make(chan string, 1)
	storage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- string(body)
		uploads <- r
		if r.URL.Query().Get("signature") != "s/1" {
			http.Error(w, "<Error>no</Error>", http.StatusForbidden)
		}
	}))
	t.Cleanup(storage.Close)
	hash := strings.Repeat("0a", 32)
	c, asked := answering(t, 201, fmt.Sprintf(`{"present":false,"url":"%s/bucket?signature=s%%2F1","headers":{"X-Blob":"yes","content-length":"7"}}`, storage.URL))
	to, err := c.Templates.FileUpload(t.Context(), "t", hash)
	must.Do(t, err)
	asks(t, asked, "GET /templates/t/files/"+hash)
	for _, text := range []string{content, ""} {
		must.Do(t, c.Templates.Upload(t.Context(), to, strings.NewReader(text), int64(len(text))))
		r, body := <-uploads, <-bodies
		if body != text || r.ContentLength != int64(len(text)) || len(r.TransferEncoding) != 0 {
			t.Errorf("got %q of length %d, encodings %v, want %q of its length", body, r.ContentLength, r.TransferEncoding, text)
		}
		if got := r.Header.Get("X-Blob"); got != "yes" {
			t.Errorf("header: got %q, want yes", got)
		}
		for name := range r.Header {
			if strings.Contains(strings.ToLower(name), "api") || name == "Authorization" {
				t.Errorf("the key's header %s went to the storage", name)
			}
		}
	}
	to.URL = storage.URL + "/bucket?signature=forged"
	err = c.Templates.Upload(t.Context(), to, strings.NewReader(content), int64(len(content)))
	if !errors.Is(err, ErrForbidden) || strings.Contains(err.Error(), "forged") {
		t.Errorf("got %v, want ErrForbidden without the signature", err)
	}
	<-uploads
	<-bodies
	if err := c.Templates.Upload(t.Context(), to, strings.NewReader("x"), 2); err == nil {
		t.Error("an archive that is shorter than it was said to be: got no error")
	}
	for _, bad := range []string{"", "/relative", "ftp://example.com/", "http://%zz"} {
		if err := c.Templates.Upload(t.Context(), &FileUpload{URL: bad}, strings.NewReader("x"), 1); err == nil {
			t.Errorf("address %q: got no error", bad)
		}
	}
	for _, bad := range []string{"", "ab", strings.Repeat("z", 64), strings.Repeat("0A", 32)} {
		if _, err := c.Templates.FileUpload(t.Context(), "t", bad); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("hash %q: got %v, want ErrInvalidArgument", bad, err)
		}
	}
}

// Only a service that has engines is asked for one.
func TestCreateTemplateOfEngine(t *testing.T) {
	t.Parallel()
	c, asked := answering(t, 200, `{"templateID":"t1","buildID":"b-1","engines":true}`)
	if _, err := c.Templates.Create(t.Context(), "a", &TemplateCreateParams{Engine: "docker"}); err != nil {
		t.Fatal(err)
	}
	asks(t, asked, `GET /local/features`)
	asks(t, asked, `POST /v3/templates {"name":"a","engine":"docker"}`)
	for status, body := range map[int]string{404: `{}`, 200: `{"ask":true,"engines":"yes"}`} {
		c, asked = answering(t, status, body)
		_, err := c.Templates.Create(t.Context(), "a", &TemplateCreateParams{Engine: "docker"})
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "TemplateCreateParams.Engine") {
			t.Errorf("%d %s: got %v, want errors.ErrUnsupported that names the field", status, body, err)
		}
		asks(t, asked, `GET /local/features`)
		if len(asked) > 0 {
			t.Errorf("the service was asked %s, too", <-asked)
		}
	}
}

// Only a local cloud is asked to show directories of its machine.
func TestCreateWithMounts(t *testing.T) {
	t.Parallel()
	params := &CreateParams{Mounts: []Mount{{Dir: "/data", Path: "/x"}}}
	c, asked := answering(t, 200, `{"sandboxID":"i1","mounts":true}`)
	if _, err := c.Sandboxes.Create(t.Context(), params); err != nil {
		t.Fatal(err)
	}
	asks(t, asked, `GET /local/features`)
	asks(t, asked, `POST /v2/sandboxes {"templateID":"base","timeout":300,"mounts":[{"dir":"/data","path":"/x"}]}`)
	c, _ = answering(t, 200, `{"sandboxID":"i1"}`)
	if _, err := c.Sandboxes.Create(t.Context(), params); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "CreateParams.Mounts") {
		t.Errorf("got %v, want errors.ErrUnsupported that names the field", err)
	}
}
