package sandbox

import (
	"errors"
	"io/fs"
	"math"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/internal/must"
)

func TestSignature(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ path, operation, user, token, expiration, want string }{
		{"/tmp/b.txt", "read", "", "deadbeef", "", "v1_tIWP3Kx9pOTBydJr6NhK6AVCrVziGp6TQN4bHh/MDkE"},
		{"/home/user/a.txt", "read", "user", "0123456789abcdef", "1700000000", "v1_7tBnmImUz4OT9m/akKudyCkRsVT00BK8CtkP439xWzM"},
		{"/home/user/a.txt", "write", "", "0123456789abcdef", "", "v1_xvlQ963AAcGfb56vmq3RqD2lnCrOttksvuQ+wdzvAuI"},
		{"", "write", "", "0123456789abcdef", "", "v1_vWy40L+F6t8a9aNkeq4zjDQBhkQmfGuV/zwviL9BRZk"},
	} {
		if got := signature(tt.path, tt.operation, tt.user, tt.token, tt.expiration); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}

func TestSignedURL(t *testing.T) {
	t.Parallel()
	of := func(sandboxURL string, token api.Key) *Files {
		c, err := NewClient(WithAPIKey(testKey), WithDomain("test.invalid"), WithSandboxURL(sandboxURL))
		must.Do(t, err)
		t.Cleanup(func() { c.Close() })
		return newSandbox(c, &api.Sandbox{ID: testID, AccessToken: token}, sandboxConfig{expiry: Expiry{After: time.Hour}}, false).Files
	}
	before := time.Now()
	signed, err := of("", "0123456789abcdef").DownloadURL("/a +/b", &SignedURLParams{User: "root", Expires: time.Hour})
	u, parseErr := url.Parse(signed)
	if err != nil || parseErr != nil {
		t.Fatal(err, parseErr)
	}
	q := u.Query()
	if want := "https://49983-" + testID + ".test.invalid/files?"; !strings.HasPrefix(signed, want) {
		t.Errorf("got %s, want %s…", signed, want)
	}
	if q.Get("path") != "/a +/b" || q.Get("username") != "root" {
		t.Errorf("path %q, username %q, want \"/a +/b\" and \"root\"", q.Get("path"), q.Get("username"))
	}
	expiration := q.Get("signature_expiration")
	if q.Get("signature") != signature("/a +/b", "read", "root", "0123456789abcdef", expiration) {
		t.Errorf("signature of %s", signed)
	}
	until, err := strconv.ParseInt(expiration, 10, 64)
	if end := time.Unix(until, 0); err != nil || end.Before(before.Add(time.Hour).Truncate(time.Second)) || end.After(time.Now().Add(time.Hour+time.Second)) {
		t.Errorf("good until %v, %v, want an hour from %v", end, err, before)
	}
	forever, err := of("", "deadbeef").DownloadURL("/x", &SignedURLParams{Expires: math.MaxInt64})
	u, parseErr = url.Parse(forever)
	if err != nil || parseErr != nil {
		t.Fatal(err, parseErr)
	}
	if late, err := strconv.ParseInt(u.Query().Get("signature_expiration"), 10, 64); err != nil || late < until {
		t.Errorf("%s: %v", forever, err)
	}
	if shared, err := of("http://127.0.0.1:1", "deadbeef").UploadURL("", nil); err != nil || !strings.HasPrefix(shared, "http://127.0.0.1:1/files?signature=v1_") {
		t.Errorf("%s, %v", shared, err)
	}
	if open, err := of("", "").DownloadURL("/x", nil); err != nil || open != "https://49983-"+testID+".test.invalid/files?path=%2Fx" {
		t.Errorf("without a token: %s, %v", open, err)
	}
	if _, err := of("http://127.0.0.1:1", "").DownloadURL("/x", nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("nothing to route by: %v", err)
	}
	for _, p := range []*SignedURLParams{{Expires: time.Hour}, {Expires: -1}} {
		if _, err := of("", "").DownloadURL("/x", p); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}
