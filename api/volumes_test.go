package api

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
)

const (
	volumeID    = "7f7b6d3a-1c2d-4e5f-8a9b-0c1d2e3f4a5b"
	volumeToken = "secret.token"
)

// volumes answers as a service with one volume, and writes down the requests.
func volumes(t *testing.T, seen *[]string) http.HandlerFunc {
	t.Helper()
	one := fmt.Sprintf(`{"volumeID":%q,"name":"data","token":%q,"domain":"else.where"}`, volumeID, volumeToken)
	entry := `{"name":"a b","type":"file","path":"/a b","size":3,"mode":420,"uid":1000,"gid":7,"atime":"2026-01-02T03:04:05Z","mtime":"2026-01-02T03:04:06Z","ctime":"2026-01-02T03:04:07Z","target":"x"}`
	type answer struct {
		status int
		body   string
	}
	answers := map[string]answer{
		"GET /volumes":                {200, fmt.Sprintf(`[{"volumeID":%q,"name":"data"}]`, volumeID)},
		"POST /volumes":               {201, one},
		"GET /volumes/" + volumeID:    {200, one},
		"DELETE /volumes/" + volumeID: {204, ""},
	}
	content := "/volumecontent/" + volumeID
	for call, status := range map[string]int{"GET %s/path": 200, "PATCH %s/path": 200, "POST %s/dir": 201, "PUT %s/file": 201} {
		answers[fmt.Sprintf(call, content)] = answer{status, entry}
	}
	answers["GET "+content+"/dir"] = answer{200, "[" + entry + "]"}
	answers["GET "+content+"/file"] = answer{200, "text"}
	answers["DELETE "+content+"/path"] = answer{204, ""}
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		key, token := r.Header.Get("X-API-KEY"), r.Header.Get("Authorization")
		wantKey, wantToken := secret, ""
		if strings.HasPrefix(r.URL.Path, "/volumecontent/") {
			wantKey, wantToken = "", "Bearer "+volumeToken
		}
		if key != wantKey || token != wantToken {
			t.Errorf("%s %s: got key %q and token %q", r.Method, r.URL.Path, key, token)
		}
		*seen = append(*seen, strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Method, r.URL.RequestURI(), body)))
		found, ok := answers[r.Method+" "+r.URL.Path]
		if !ok {
			found = answer{404, `{"code":404,"message":"no such volume"}`}
			if strings.HasPrefix(r.URL.Path, "/volumecontent/") {
				found.body = `{"code":"path_not_found","message":"no such path"}`
			}
		}
		w.WriteHeader(found.status)
		_, _ = io.WriteString(w, found.body)
	}
}

func TestVolumes(t *testing.T) {
	t.Parallel()
	var seen []string
	c := service(t, volumes(t, &seen))
	ctx := t.Context()
	want := &Volume{ID: volumeID, Name: "data", Token: volumeToken, Domain: "else.where"}
	v, err := c.Volumes.Create(ctx, "data")
	if diff := cmp.Diff(want, v); diff != "" || err != nil {
		t.Errorf("create (-want +got), error %v:\n%s", err, diff)
	}
	if v, err = c.Volumes.Get(ctx, volumeID); !cmp.Equal(want, v) || err != nil {
		t.Errorf("get: got %+v and error %v, want %+v", v, err, want)
	}
	all, err := c.Volumes.List(ctx)
	if diff := cmp.Diff([]Volume{{ID: volumeID, Name: "data"}}, all); diff != "" || err != nil {
		t.Errorf("list (-want +got), error %v:\n%s", err, diff)
	}
	at := func(second int) time.Time { return time.Date(2026, 1, 2, 3, 4, second, 0, time.UTC) }
	entry := &VolumeEntry{
		Name: "a b", Type: VolumeFile, Path: "/a b", Size: 3, Mode: 0o644, UID: 1000, GID: 7,
		AccessedAt: at(5), ModifiedAt: at(6), ChangedAt: at(7), Target: "x",
	}
	content := c.Volumes.Content(v)
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	must.Do(t, err)
	for name, do := range map[string]func() (*VolumeEntry, error){
		"stat": func() (*VolumeEntry, error) { return content.Stat(ctx, "/a b") },
		"attributes": func() (*VolumeEntry, error) {
			return content.SetAttributes(ctx, "/a", &VolumeAttributesParams{Mode: new(uint32(0))})
		},
		"make": func() (*VolumeEntry, error) { return content.MakeDir(ctx, "/a&b", nil) },
		"write": func() (*VolumeEntry, error) {
			return content.Write(ctx, "a", strings.NewReader("hey"), &VolumeWriteParams{Mode: new(uint32(0o600)), UID: new(uint32(0)), GID: new(uint32(9)), Force: true})
		},
		"nothing": func() (*VolumeEntry, error) { return content.Write(ctx, "a", nil, nil) },
		"a file":  func() (*VolumeEntry, error) { return content.Write(ctx, "a", file, nil) },
	} {
		seen = nil
		got, err := do()
		if diff := cmp.Diff(entry, got); diff != "" || err != nil {
			t.Errorf("%s (-want +got), error %v:\n%s", name, err, diff)
		}
		base := "/volumecontent/" + volumeID
		want := map[string]string{
			"stat": "GET " + base + "/path?path=%2Fa+b", "attributes": "PATCH " + base + `/path?path=%2Fa {"mode":0}`, "make": "POST " + base + "/dir?path=%2Fa%26b",
			"write": "PUT " + base + "/file?force=true&gid=9&mode=384&path=a&uid=0 hey", "nothing": "PUT " + base + "/file?path=a", "a file": "PUT " + base + "/file?path=a",
		}[name]
		if len(seen) != 1 || seen[0] != want {
			t.Errorf("%s: got requests %q, want %q", name, seen, want)
		}
	}
	if err := file.Close(); err != nil {
		t.Errorf("the caller's file: %v, want it open until now", err)
	}
	seen = nil
	entries, err := content.List(ctx, "/", &VolumeListParams{MaxDepth: 3})
	if diff := cmp.Diff([]VolumeEntry{*entry}, entries); diff != "" || err != nil || seen[0] != "GET /volumecontent/"+volumeID+"/dir?depth=3&path=%2F" {
		t.Errorf("list (-want +got), error %v, requests %q:\n%s", err, seen, diff)
	}
	r, err := content.Open(ctx, "/a")
	must.Do(t, err)
	text, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); string(text) != "text" || err != nil {
		t.Errorf("open: got %q and error %v, want text", text, err)
	}
	if err := errors.Join(content.Remove(ctx, "/a"), c.Volumes.Delete(ctx, volumeID)); err != nil {
		t.Error(err)
	}
}

func TestVolumeErrors(t *testing.T) {
	t.Parallel()
	var seen []string
	c := service(t, volumes(t, &seen))
	ctx := t.Context()
	other := c.Volumes.Content(&Volume{ID: "other", Token: volumeToken})
	_, getErr := c.Volumes.Get(ctx, "other")
	_, statErr := other.Stat(ctx, "/a")
	_, openErr := other.Open(ctx, "/a")
	for name, err := range map[string]error{"get": getErr, "delete": c.Volumes.Delete(ctx, "other"), "stat": statErr, "open": openErr, "remove": other.Remove(ctx, "/a")} {
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: got error %v, want %v", name, err, ErrNotFound)
		}
	}
	if e, ok := errors.AsType[*Error](statErr); !ok || e.Code != "path_not_found" || e.RouteMissing() || e.Message != "no such path" {
		t.Errorf("got %+v, want the code and message of the service", e)
	}
	seen = nil
	_, getErr = c.Volumes.Get(ctx, "../sandboxes")
	_, statErr = c.Volumes.Content(&Volume{ID: "a/b"}).Stat(ctx, "/a")
	_, openErr = other.Open(ctx, "")
	_, listErr := other.List(ctx, "/", &VolumeListParams{MaxDepth: -1})
	for name, err := range map[string]error{"get": getErr, "delete": c.Volumes.Delete(ctx, ""), "stat": statErr, "open": openErr, "list": listErr} {
		if !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("%s: got error %v, want %v", name, err, ErrInvalidArgument)
		}
	}
	if len(seen) > 0 {
		t.Errorf("got requests %q, want none", seen)
	}
}

// TestVolumeAddress checks the address of a volume's content: E2B_VOLUME_API_URL, if the
// address of the API is set too, or else the address that the volume names.
func TestVolumeAddress(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		opts   []Option
		domain string
		want   string
	}{
		"set":          {[]Option{WithBaseURL("http://api.test"), WithVolumeURL("http://volumes.test/")}, "else.where", "http://volumes.test"},
		"beside":       {[]Option{WithBaseURL("http://api.test")}, "else.where", "http://api.test"},
		"the volume's": {nil, "else.where", "https://api.else.where"},
		"the domain's": {[]Option{WithDomain("my.domain")}, "", "https://api.my.domain"},
	} {
		c, err := NewClient(append(test.opts, WithAPIKey(secret))...)
		must.Do(t, err)
		if got, err := c.contentURL(&Volume{Domain: test.domain}); got != test.want || err != nil {
			t.Errorf("%s: got %q and error %v, want %q", name, got, err, test.want)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := NewClient(WithAPIKey(secret), WithVolumeURL("ftp://volumes.test")); err == nil {
		t.Error("got no error for an address that is none")
	}
	c, err := NewClient(WithAPIKey(secret))
	must.Do(t, err)
	defer c.Close()
	if got, err := c.contentURL(&Volume{Domain: "a/b"}); err == nil {
		t.Errorf("got %q, want a domain that is none to be refused", got)
	}
}
