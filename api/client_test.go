package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/text/encoding/unicode"

	"github.com/e2bctl/e2bctl/internal/boundjson"
	"github.com/e2bctl/e2bctl/internal/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "e2b_0123456789abcdef"

// service returns a client of a real HTTP server with the given handler.
func service(t *testing.T, h http.HandlerFunc, opts ...Option) *Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	c, err := NewClient(append([]Option{WithAPIKey(secret), WithBaseURL(server.URL)}, opts...)...)
	must.Do(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestKeyNeverShows(t *testing.T) {
	t.Parallel()
	key := Key(secret)
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).InfoContext(t.Context(), "m", "key", key, "in", struct{ K Key }{key})
	encoded, err := json.Marshal(map[string]any{"k": key, "s": struct{ K Key }{key}})
	must.Do(t, err)
	for _, text := range []string{
		fmt.Sprint(key), fmt.Sprintf("%v %+v %#v %s %q %x %d", key, key, key, key, key, key, key),
		fmt.Sprintf("%+v %#v", struct{ K Key }{key}, &struct{ K Key }{key}), log.String(), string(encoded),
	} {
		if strings.Contains(text, secret[4:]) || strings.Contains(text, fmt.Sprintf("%x", secret)) {
			t.Errorf("the key shows: %s", text)
		}
		if !strings.Contains(text, "redacted") {
			t.Errorf("no mark of redaction: %s, want %q in it", text, "redacted")
		}
	}
	var decoded struct{ K Key }
	if err := json.Unmarshal([]byte(`{"K":"x"}`), &decoded); err != nil || decoded.K != "x" {
		t.Errorf("decoded %q, %v, want %q and no error", string(decoded.K), err, "x")
	}
}

func TestNewClientRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		opts []Option
		want error
	}{
		"no key":        {nil, ErrNoAPIKey},
		"space":         {[]Option{WithAPIKey("e2b_12 34")}, ErrInvalidKey},
		"newline":       {[]Option{WithAPIKey("e2b_1234\n")}, ErrInvalidKey},
		"not ASCII":     {[]Option{WithAPIKey("e2b_12é34")}, ErrInvalidKey},
		"URL":           {[]Option{WithAPIKey(secret), WithBaseURL("api.e2b.app")}, nil},
		"URL with user": {[]Option{WithAPIKey(secret), WithBaseURL("https://u:pass1234@h")}, nil},
		"query":         {[]Option{WithAPIKey(secret), WithBaseURL("https://h?pass=1234")}, nil},
		"fragment":      {[]Option{WithAPIKey(secret), WithVolumeURL("https://h#1234")}, nil},
		"no host":       {[]Option{WithAPIKey(secret), WithSandboxURL("https:///pass")}, nil},
		"sandbox URL":   {[]Option{WithAPIKey(secret), WithSandboxURL("ftp://h")}, nil},
		"domain":        {[]Option{WithAPIKey(secret), WithDomain("e2b.app/x")}, nil},
		"domain port":   {[]Option{WithAPIKey(secret), WithDomain("e2b.app:")}, nil},
		"retries":       {[]Option{WithAPIKey(secret), WithMaxRetries(-1)}, nil},
		"agent":         {[]Option{WithAPIKey(secret), WithUserAgent("a\r\nX: y")}, nil},
		"transport":     {[]Option{WithAPIKey(secret), WithTransport(nil)}, nil},
		"logger":        {[]Option{WithAPIKey(secret), WithLogger(nil)}, nil},
		"headers":       {[]Option{WithAPIKey(secret), WithHeaders(nil)}, nil},
		"dial":          {[]Option{WithAPIKey(secret), WithDialContext(nil)}, nil},
		"nil":           {[]Option{WithAPIKey(secret), nil}, ErrInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := NewClient(test.opts...)
			if err == nil || test.want != nil && !errors.Is(err, test.want) {
				t.Fatalf("error = %v, want %v", err, test.want)
			}
			for _, part := range []string{"1234", "pass", secret[4:]} {
				if strings.Contains(err.Error(), part) {
					t.Errorf("the secret shows: %v", err)
				}
			}
		})
	}
	if !strings.Contains(ErrNoAPIKey.Error(), "E2B_API_KEY") || !strings.Contains(ErrNoAPIKey.Error(), "--local") {
		t.Errorf("ErrNoAPIKey does not say what to do: %v, want %q in it and %q in it", ErrNoAPIKey, "E2B_API_KEY", "--local")
	}
}

func TestFromEnv(t *testing.T) {
	const file = "E2B_API_KEY=filekey\nE2B_DOMAIN=file.test\nOTHER=x\n"
	for name, test := range map[string]struct {
		env                  map[string]string
		file                 string
		opts                 []Option
		key, domain, base    string
		want                 error
		mentions, mentionNot []string
	}{
		"environment":             {env: map[string]string{"E2B_API_KEY": "envkey", "E2B_API_URL": "http://env.test:1"}, key: "envkey", domain: "e2b.app", base: "http://env.test:1"},
		"file":                    {file: file, key: "filekey", domain: "file.test", base: "https://api.file.test"},
		"empty is absent":         {env: map[string]string{"E2B_API_KEY": "", "E2B_DOMAIN": ""}, file: file, key: "filekey", domain: "file.test", base: "https://api.file.test"},
		"program wins":            {env: map[string]string{"E2B_API_KEY": "envkey", "E2B_DOMAIN": "env.test"}, opts: []Option{WithAPIKey("mine"), WithDomain("mine.test:8443")}, key: "mine", domain: "mine.test:8443", base: "https://api.mine.test:8443"},
		"environment before file": {env: map[string]string{"E2B_DOMAIN": "env.test"}, file: file, key: "filekey", domain: "env.test", base: "https://api.env.test"},
		"address less trusted than the environment's key": {
			env: map[string]string{"E2B_API_KEY": "envkey"}, file: file, want: ErrUntrustedAddress,
			mentions: []string{"E2B_DOMAIN", "E2B_API_KEY", ".env", "the environment"}, mentionNot: []string{"envkey", "filekey"},
		},
		"address less trusted than the program's key": {
			opts: []Option{WithAPIKey("mine")}, file: "E2B_API_URL=http://evil.test\n", want: ErrUntrustedAddress,
			mentions: []string{"E2B_API_URL", "the program"}, mentionNot: []string{"mine"},
		},
		"sandbox URL less trusted": {opts: []Option{WithAPIKey("mine")}, file: "E2B_SANDBOX_URL=http://evil.test\n", want: ErrUntrustedAddress},
		"no key":                   {want: ErrNoAPIKey},
		"broken file":              {file: "E2B_API_KEY='sup3rs3cret\n%%%", mentions: []string{".env"}, mentionNot: []string{"sup3rs3cret"}},
		"broken line is named":     {file: "OTHER=1\nLONG=\"a\nb\"\n\nE2B_API_KEY='sup3rs3cret\n", mentions: []string{".env:5", "E2B_API_KEY"}, mentionNot: []string{"sup3rs3cret"}},
		"name without a value":     {file: "export E2B_API_KEY\n", mentions: []string{".env:1", "E2B_API_KEY"}},
		"broken line that is not needed": {
			env: map[string]string{"E2B_API_KEY": "envkey"}, file: "E2B_API_KEY='filekey\n", key: "envkey", domain: "e2b.app", base: "https://api.e2b.app",
		},
		"byte-order mark":      {file: "\ufeff" + file, key: "filekey", domain: "file.test", base: "https://api.file.test"},
		"UTF-16":               {file: "\xff\xfe" + utf16le(file), key: "filekey", domain: "file.test", base: "https://api.file.test"},
		"line ends of Windows": {file: "\ufeff" + strings.ReplaceAll("just words\n"+file, "\n", "\r\n"), key: "filekey", domain: "file.test", base: "https://api.file.test"},
		"of another program": {
			file: "#!/bin/sh\nset -e\n[section]\nmy-name = x\nQUOTE='open\nPEM=\"-----BEGIN\nE2B_API_KEY=inside\n-----END\" # end\n{json}\nHOST=file.test\n" +
				"export E2B_API_KEY=filekey # mine\nE2B_DOMAIN: ${HOST}\nrm -rf \"$x\"\nESCAPED=\"a\\\"b\nE2B_API_KEY=inside\n\"\n",
			key: "filekey", domain: "file.test", base: "https://api.file.test",
		},
		"too large":      {file: file + strings.Repeat("# more\n", 200_000), mentions: []string{".env", "1 MiB"}},
		"no file wanted": {file: file, opts: []Option{WithEnvFile("")}, want: ErrNoAPIKey},
		"named file missing, all set": {
			env:  map[string]string{"E2B_API_KEY": "envkey", "E2B_API_URL": "http://env.test", "E2B_DOMAIN": "env.test", "E2B_SANDBOX_URL": "http://env.test", "E2B_VOLUME_API_URL": "http://env.test"},
			opts: []Option{WithEnvFile("missing")}, want: os.ErrNotExist,
		},
		"named file missing": {opts: []Option{WithEnvFile("missing")}, want: os.ErrNotExist},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			for _, v := range []string{"E2B_API_KEY", "E2B_API_URL", "E2B_DOMAIN", "E2B_SANDBOX_URL", "E2B_VOLUME_API_URL"} {
				t.Setenv(v, test.env[v])
			}
			if test.file != "" {
				must.Do(t, os.WriteFile(".env", []byte(test.file), 0o600))
			}
			c, err := NewClient(append(test.opts, FromEnv())...)
			if test.key == "" {
				if err == nil || test.want != nil && !errors.Is(err, test.want) {
					t.Fatalf("error = %v, want %v", err, test.want)
				}
				for _, part := range test.mentions {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%q is not in: %v", part, err)
					}
				}
				for _, part := range test.mentionNot {
					if strings.Contains(err.Error(), part) {
						t.Errorf("%q is in: %v", part, err)
					}
				}
				return
			}
			must.Do(t, err)
			got := []string{string(c.key), c.Domain(), c.BaseURL()}
			if diff := cmp.Diff([]string{test.key, test.domain, test.base}, got); diff != "" {
				t.Error(diff)
			}
			if v := os.Getenv("OTHER"); v != "" {
				t.Errorf("the file changed the environment: OTHER=%s, want nothing", v)
			}
		})
	}
}

func utf16le(text string) string {
	encoded, err := unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM).NewEncoder().String(text)
	if err != nil {
		panic(err)
	}
	return encoded
}

func TestEnvFileMayBeAVirtualEnvironment(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("E2B_API_KEY", "envkey")
	must.Do(t, os.Mkdir(".env", 0o700))
	if _, err := NewClient(FromEnv()); err != nil {
		t.Error(err)
	}
	t.Setenv("E2B_API_KEY", "")
	named := filepath.Join(t.TempDir(), "settings")
	must.Do(t, os.WriteFile(named, []byte("E2B_API_KEY=named\n"), 0o600))
	c, err := NewClient(FromEnv(), WithEnvFile(named))
	if err != nil || c.key != "named" {
		t.Errorf("key %q, %v, want %q and no error", string(c.key), err, "named")
	}
}

// A file that the program names is trusted with an address, as the environment
// is, and a client says where each of its settings comes from.
func TestNamedEnvFile(t *testing.T) {
	t.Chdir(t.TempDir())
	named := filepath.Join(t.TempDir(), "settings")
	must.Do(t, os.WriteFile(named, []byte("E2B_API_KEY=filekey\nE2B_DOMAIN=named.test\n"), 0o600))
	must.Do(t, os.WriteFile(".env", []byte("E2B_API_KEY=dotkey\nE2B_SANDBOX_URL=http://dot.test\n"), 0o600))
	for name, test := range map[string]struct {
		key  string // from the environment
		opts []Option
		want Sources
	}{
		"environment's key": {"envkey", []Option{WithEnvFile(named)}, Sources{"the environment", named, named, "the default", "the default"}},
		"program's key":     {"", []Option{WithEnvFile(named), WithAPIKey("mine")}, Sources{"the program", named, named, "the default", "the default"}},
		"program's address": {"", []Option{WithEnvFile(named), WithBaseURL("http://mine.test")}, Sources{named, "the program", named, "the default", "the default"}},
		"all of .env":       {"", nil, Sources{".env", "the default", "the default", ".env", "the default"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(EnvAPIKey, test.key)
			for _, v := range []string{EnvAPIURL, EnvDomain, EnvSandboxURL, EnvVolumeURL} {
				t.Setenv(v, "")
			}
			c, err := NewClient(append(test.opts, FromEnv())...)
			must.Do(t, err)
			if diff := cmp.Diff(test.want, c.Sources()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestErrorClasses(t *testing.T) {
	t.Parallel()
	all := []error{ErrNotFound, ErrUnauthorized, ErrForbidden, ErrConflict, ErrRateLimited, ErrInvalidArgument, ErrTimeout, ErrUnavailable, ErrRetryable}
	for status, want := range map[int][]error{
		400: {ErrInvalidArgument}, 401: {ErrUnauthorized}, 403: {ErrForbidden}, 404: {ErrNotFound}, 409: {ErrConflict},
		422: {ErrInvalidArgument}, 429: {ErrRateLimited, ErrRetryable}, 408: {ErrTimeout, ErrRetryable}, 500: nil,
		502: {ErrUnavailable, ErrRetryable}, 503: {ErrUnavailable, ErrRetryable}, 504: {ErrTimeout, ErrRetryable}, 307: nil,
	} {
		c := service(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Request-Id", "r1")
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"code":%d,"message":"told\nso","error_code":"why"}`, status)
		}, WithMaxRetries(0))
		_, err := c.Sandboxes.Get(t.Context(), "i1")
		e, ok := errors.AsType[*Error](fmt.Errorf("wrapped: %w", err))
		if !ok {
			t.Fatalf("%d: got %v, want an *Error", status, err)
		}
		got := Error{Method: e.Method, Path: e.Path, StatusCode: e.StatusCode, Code: e.Code, Message: e.Message, RequestID: e.RequestID}
		if want := (Error{Method: "GET", Path: "/sandboxes/i1", StatusCode: status, Code: "why", Message: "told so", RequestID: "r1"}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		for _, class := range all {
			if errors.Is(err, class) != slices.Contains(want, class) {
				t.Errorf("%d is %v: %v, want %v", status, class, errors.Is(err, class), slices.Contains(want, class))
			}
		}
	}
}

func TestErrorBodiesAreBounded(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"huge text": strings.Repeat("x", 4<<20), "huge JSON": `{"code":500,"message":"` + strings.Repeat("é", 1<<19) + `"}`, "empty": "",
	} {
		c := service(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			_, _ = io.WriteString(w, body)
		}, WithMaxRetries(0))
		_, err := c.Sandboxes.Get(t.Context(), "i1")
		if err == nil || len(err.Error()) > maxMessage+128 || strings.Contains(err.Error(), "\uFFFD") {
			t.Errorf("%s: %d bytes of error", name, len(fmt.Sprint(err)))
		}
	}
	c := service(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(404)
		_, _ = io.WriteString(w, "<html>nginx</html>")
	})
	if _, err := c.Sandboxes.Get(t.Context(), "i1"); err == nil || strings.Contains(err.Error(), "<") {
		t.Errorf("a page in the message: %v", err)
	}
}

func TestNoAnswer(t *testing.T) {
	t.Parallel()
	// A port that was free a moment ago may belong to another program by now;
	// nothing listens on this one.
	c, err := NewClient(WithAPIKey(secret), WithBaseURL("http://127.0.0.1:1"), WithMaxRetries(1))
	must.Do(t, err)
	_, err = c.Sandboxes.Create(t.Context(), nil)
	e, ok := errors.AsType[*Error](err)
	if !ok || e.StatusCode != 0 {
		t.Errorf("got %#v, want an *Error without a status", err)
	}
	if !errors.Is(err, ErrUnavailable) || !errors.Is(err, ErrRetryable) {
		t.Errorf("got %v, want ErrUnavailable and ErrRetryable", err)
	}
	if !errors.Is(err, ErrNothingListens) || !strings.Contains(err.Error(), "a local cloud that did has ended") {
		t.Errorf("got %v, want that a local cloud has ended", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Sandboxes.Get(ctx, "i1"); !errors.Is(err, context.Canceled) || errors.Is(err, ErrRetryable) {
		t.Errorf("cancelled: %v, want context.Canceled and not ErrRetryable", err)
	}
}

func TestCreateSendsWhatBothGenerationsNeed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		v2    func(w http.ResponseWriter)
		paths []string
	}{
		"second generation": {nil, []string{"/v2/sandboxes", "/v2/sandboxes"}},
		"405":               {func(w http.ResponseWriter) { w.WriteHeader(405) }, []string{"/v2/sandboxes", "/sandboxes", "/sandboxes"}},
		"404 without a word": {func(w http.ResponseWriter) { http.Error(w, "404 page not found", 404) },
			[]string{"/v2/sandboxes", "/sandboxes", "/sandboxes"}},
		"404 of a framework": {func(w http.ResponseWriter) { w.WriteHeader(404); _, _ = io.WriteString(w, `{"message":"Not Found"}`) },
			[]string{"/v2/sandboxes", "/sandboxes", "/sandboxes"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var paths []string
			var bodies []map[string]any
			c := service(t, func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				paths = append(paths, r.URL.Path)
				if r.Header.Get("X-API-KEY") != secret || !strings.HasPrefix(r.UserAgent(), "mytool/1 e2bctl-go/") {
					t.Errorf("headers: %v, want the API key and a User-Agent that begins with %q", r.Header, "mytool/1 e2bctl-go/")
				}
				if strings.HasPrefix(r.URL.Path, "/v2/") && test.v2 != nil {
					test.v2(w)
					return
				}
				var body map[string]any
				if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
					t.Error(err)
				}
				bodies = append(bodies, body)
				w.WriteHeader(201)
				_, _ = io.WriteString(w, `{"sandboxID":"i1","templateID":"t","clientID":"c","envdVersion":"0.6.13","envdAccessToken":"tok","new":{}}`)
			}, WithUserAgent("mytool/1"))
			no := false
			for range 2 {
				got, err := c.Sandboxes.Create(t.Context(), &CreateParams{
					Template: "x:y", Lifetime: 60*time.Second + 1, Metadata: map[string]string{"a": "b"}, Envs: map[string]string{"E": "f"},
					AllowInternetAccess: &no, PrivateTraffic: true,
				})
				must.Do(t, err)
				if diff := cmp.Diff(&Sandbox{ID: "i1", TemplateID: "t", ClientID: "c", EnvdVersion: "0.6.13", AccessToken: "tok"}, got); diff != "" {
					t.Error(diff)
				}
			}
			if diff := cmp.Diff(test.paths, paths); diff != "" {
				t.Error(diff)
			}
			want := map[string]any{
				"templateID": "x:y", "timeout": 61.0, "metadata": map[string]any{"a": "b"}, "envVars": map[string]any{"E": "f"},
				"allow_internet_access": false, "network": map[string]any{"allowPublicTraffic": false},
			}
			if test.v2 != nil {
				want["secure"] = true
			}
			if diff := cmp.Diff(want, bodies[1]); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTemplateThatIsNotThereIsNotAMissingRoute(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	c := service(t, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.WriteHeader(404)
		_, _ = io.WriteString(w, `{"code":404,"message":"template 'x' not found"}`)
	})
	_, err := c.Sandboxes.Create(t.Context(), &CreateParams{Template: "x"})
	if want := "template 'x' not found"; !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), want) || calls.Load() != 1 {
		t.Errorf("%d calls: %v, want ErrNotFound, an error with %q and one call", calls.Load(), err, want)
	}
}

func TestRepetition(t *testing.T) {
	t.Parallel()
	create := func(ctx context.Context, c *Client) error { _, err := c.Sandboxes.Create(ctx, nil); return err }
	get := func(ctx context.Context, c *Client) error { _, err := c.Sandboxes.Get(ctx, "i1"); return err }
	kill := func(ctx context.Context, c *Client) error { return c.Sandboxes.Kill(ctx, "i1") }
	type answer struct {
		status int
		after  string
		should string
	}
	for name, test := range map[string]struct {
		do      func(context.Context, *Client) error
		answers []answer // the last is repeated; status 0 cuts the connection
		want    int32
		ok      bool
		longest time.Duration
	}{
		"get, busy":                   {get, []answer{{503, "", ""}, {200, "", ""}}, 2, true, time.Second},
		"get, always busy":            {get, []answer{{503, "", ""}}, 4, false, 5 * time.Second},
		"get, cut":                    {get, []answer{{0, "", ""}, {200, "", ""}}, 2, true, time.Second},
		"get, wrong":                  {get, []answer{{500, "", ""}}, 1, false, 0},
		"get, asked to wait":          {get, []answer{{429, "1", ""}, {200, "", ""}}, 2, true, 2 * time.Second},
		"get, asked to wait too long": {get, []answer{{429, "3600", ""}}, 1, false, 0},
		"get, limit of the plan":      {get, []answer{{429, "", ""}}, 1, false, 0},
		"create, busy":                {create, []answer{{503, "", ""}}, 1, false, 0},
		"create, cut":                 {create, []answer{{0, "", ""}}, 1, false, 0},
		"create, asked to wait":       {create, []answer{{429, "0", ""}, {201, "", ""}}, 2, true, time.Second},
		"create, limit":               {create, []answer{{429, "", ""}}, 1, false, 0},
		"kill, cut, then not there":   {kill, []answer{{0, "", ""}, {404, "", ""}}, 2, true, time.Second},
		"kill, not there":             {kill, []answer{{404, "", ""}}, 1, false, 0},
		"get, not to be repeated":     {get, []answer{{503, "", "False"}}, 1, false, 0},
		"get, no use":                 {get, []answer{{429, "1", "no"}}, 1, false, 0},
		"get, wrong for now":          {get, []answer{{500, "", "true"}, {200, "", ""}}, 2, true, time.Second},
		"create, to be repeated":      {create, []answer{{503, "", "true"}, {201, "", ""}}, 2, true, time.Second},
		"create, wait and repeat":     {create, []answer{{503, "1", " TRUE "}, {201, "", ""}}, 2, true, 2 * time.Second},
		"create, repeated in vain":    {create, []answer{{503, "", "true"}}, 4, false, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int32
				c, err := NewClient(WithAPIKey(secret), WithTransport(tripper(func(r *http.Request) (*http.Response, error) {
					n := int(calls.Add(1))
					a := test.answers[min(n, len(test.answers))-1]
					if a.status == 0 {
						return nil, io.ErrUnexpectedEOF
					}
					w := httptest.NewRecorder()
					if a.after != "" {
						w.Header().Set("Retry-After", a.after)
					}
					if a.should != "" {
						w.Header().Set("Should-Retry", a.should)
					}
					w.WriteHeader(a.status)
					fmt.Fprintf(w, `{"sandboxID":"i1","code":%d,"message":"m"}`, a.status)
					response := w.Result()
					response.Request = r
					return response, nil
				})))
				must.Do(t, err)
				start := time.Now()
				err = test.do(t.Context(), c)
				if (err == nil) != test.ok || calls.Load() != test.want || time.Since(start) > test.longest {
					t.Errorf("%d calls in %v: %v, want no error: %v, %v calls and at most %v", calls.Load(), time.Since(start), err, test.ok, test.want, test.longest)
				}
				if n := test.answers[0].after; test.ok && n == "1" && time.Since(start) < time.Second {
					t.Errorf("waited %v, was asked for %s s", time.Since(start), n)
				}
			})
		})
	}
}

// A list of empty objects would take a hundred times its size in memory.
func TestManyValues(t *testing.T) {
	t.Parallel()
	page := strings.TrimSuffix(strings.Repeat("{},", maxAnswerValues), ",")
	c := service(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "["+page+"]") })
	_, err := c.Sandboxes.ListPage(t.Context(), nil)
	if _, ok := errors.AsType[*boundjson.TooManyError](err); !ok {
		t.Errorf("got %v, want an error about too many values", err)
	}
}

// drops is the body of an answer that never ends: each read returns a blank.
type drops struct {
	ctx  context.Context //nolint:containedctx // the request's
	each time.Duration
}

func (d drops) Read(p []byte) (int, error) {
	select {
	case <-time.After(d.each):
		return copy(p, " "), nil
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	}
}

func (drops) Close() error { return nil }

// A service that does not end its answers does not hold up a caller forever,
// and is not asked again.
func TestSlowAnswers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status int // 0: not even a head is sent
		each   time.Duration
		limit  time.Duration
	}{
		"no head":      {0, 0, 75 * time.Second},
		"drips":        {200, time.Second, time.Minute},
		"stops":        {200, time.Hour, 20 * time.Second},
		"error drips":  {500, time.Second, time.Minute},
		"a miss drips": {404, 19 * time.Second, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int32
				c, err := NewClient(WithAPIKey(secret), WithTransport(tripper(func(r *http.Request) (*http.Response, error) {
					calls.Add(1)
					if test.status == 0 {
						<-r.Context().Done()
						return nil, r.Context().Err()
					}
					return &http.Response{StatusCode: test.status, Body: drops{r.Context(), test.each}, Request: r}, nil
				})))
				must.Do(t, err)
				start := time.Now()
				_, err = c.Sandboxes.Get(t.Context(), "i1")
				if took := time.Since(start); err == nil || took != test.limit || calls.Load() != 1 {
					t.Errorf("%v after %v and %d calls, want an error after %v", err, took, calls.Load(), test.limit)
				}
				if test.status < 300 {
					if !errors.Is(err, ErrTimeout) || errors.Is(err, ErrRetryable) {
						t.Errorf("got %v, want ErrTimeout and not ErrRetryable", err)
					}
					if want := "too slow"; err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("got %v, want an error with %q", err, want)
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err = c.Sandboxes.Get(ctx, "i1"); test.status < 300 && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("with a deadline: %v", err)
				}
			})
		})
	}
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestCreateIsRepeatedWhenNothingWasSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		c, err := NewClient(WithAPIKey(secret), WithTransport(tripper(func(*http.Request) (*http.Response, error) {
			calls.Add(1)
			return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
		})))
		must.Do(t, err)
		if _, err := c.Sandboxes.Create(t.Context(), nil); !errors.Is(err, ErrUnavailable) || calls.Load() != 4 {
			t.Errorf("%d calls: %v, want ErrUnavailable and 4 calls", calls.Load(), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		start := time.Now()
		if _, err := c.Sandboxes.Create(ctx, nil); err == nil || time.Since(start) > 10*time.Millisecond {
			t.Errorf("got %v after %v, want an error at once: the wait would go past the deadline", err, time.Since(start))
		}
	})
}

func TestListPages(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	c := service(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		next := map[string]string{"": "p2", "p2": "p3"}[r.URL.Query().Get("nextToken")]
		if next != "" {
			w.Header().Set("X-Next-Token", next)
		}
		fmt.Fprintf(w, `[{"sandboxID":"i%sa","state":"running","startedAt":"2026-01-02T03:04:05.678901234Z","future":1},{"sandboxID":"i%sb","state":"odd"}]`, next, next)
	})
	list := c.Sandboxes.List(t.Context(), &ListParams{PageSize: 2})
	for range 2 { // ranging again starts over
		var ids []string
		for info, err := range list {
			must.Do(t, err)
			ids = append(ids, info.ID)
		}
		if diff := cmp.Diff([]string{"ip2a", "ip2b", "ip3a", "ip3b", "ia", "ib"}, ids); diff != "" {
			t.Error(diff)
		}
	}
	calls.Store(0)
	for range list {
		break
	}
	if calls.Load() != 1 {
		t.Errorf("a range that stopped made %d calls, want 1", calls.Load())
	}
}

func TestListEndsWithItsError(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]http.HandlerFunc{
		"error": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("nextToken") != "" {
				w.WriteHeader(400)
				return
			}
			w.Header().Set("X-Next-Token", "n")
			_, _ = io.WriteString(w, `[{"sandboxID":"i1"}]`)
		},
		"the same page for ever": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Next-Token", "n")
			_, _ = io.WriteString(w, `[{"sandboxID":"i1"}]`)
		},
	} {
		var items, failures int
		for _, err := range service(t, h).Sandboxes.List(t.Context(), nil) {
			if failures > 0 {
				t.Errorf("%s: goes on after its error", name)
			}
			if err != nil {
				failures++
			} else if items++; items > 2 {
				break
			}
		}
		if failures != 1 || items == 0 || items > 2 {
			t.Errorf("%s: %d items, %d errors", name, items, failures)
		}
	}
}

func TestMetadataFilterOnTheWire(t *testing.T) {
	t.Parallel()
	var raw string
	c := service(t, func(w http.ResponseWriter, r *http.Request) {
		raw = r.URL.RawQuery
		_, _ = io.WriteString(w, `[]`)
	})
	_, err := c.Sandboxes.ListPage(t.Context(), &ListParams{Metadata: map[string]string{"user id": "a&b"}, States: []SandboxState{StateRunning, StatePaused}})
	must.Do(t, err)
	if want := "metadata=user%252520id%3Da%252526b&state=running%2Cpaused"; raw != want {
		t.Errorf("query = %s, want %s", raw, want)
	}
}

func TestConnectTellsWhetherItWoke(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 201} {
		c := service(t, func(w http.ResponseWriter, r *http.Request) {
			if body, _ := io.ReadAll(r.Body); r.URL.Path != "/v2/sandboxes/i1/connect" || string(body) != `{"timeout":300}` {
				t.Errorf("got %s %s, want %s %s", r.URL.Path, body, "/v2/sandboxes/i1/connect", `{"timeout":300}`)
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"sandboxID":"i1"}`)
		})
		sb, err := c.Sandboxes.Connect(t.Context(), "i1", nil)
		if err != nil || sb.Resumed != (status == 201) {
			t.Errorf("%d: got %+v, %v, want Resumed %v and no error", status, sb, err, status == 201)
		}
	}
}

func TestBadArgumentsSendNothing(t *testing.T) {
	t.Parallel()
	c := service(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("sent %s", r.URL) })
	for _, id := range []string{"", "../x", "a/b", "a?b", "a b", "é", strings.Repeat("a", 200)} {
		if _, err := c.Sandboxes.Get(t.Context(), id); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("id %q: %v, want ErrInvalidArgument", id, err)
		}
	}
	for _, d := range []time.Duration{-1, 0, 1 << 62, math.MaxInt64} {
		if err := c.Sandboxes.SetLifetime(t.Context(), "i1", d); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("timeout %v: %v, want ErrInvalidArgument", d, err)
		}
	}
}

func TestLogHasNoSecrets(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	c := service(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(201)
		_, _ = io.WriteString(w, `{"sandboxID":"i1","envdAccessToken":"tokentoken"}`)
	}, WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	sb, err := c.Sandboxes.Create(t.Context(), &CreateParams{Envs: map[string]string{"S": "envsecret"}})
	must.Do(t, err)
	_, err = c.Volumes.Content(&Volume{ID: "vol", Token: "volumetoken"}).Stat(t.Context(), "/pathsecret")
	must.Do(t, err)
	text := log.String() + fmt.Sprintf("%v %+v %#v", sb, sb, *sb)
	for _, s := range []string{secret[4:], "tokentoken", "envsecret", "volumetoken", "pathsecret"} {
		if strings.Contains(text, s) {
			t.Errorf("%s shows: %s", s, text)
		}
	}
	for _, want := range []string{`level=DEBUG msg="api call" method=POST path=/v2/sandboxes `, `level=DEBUG msg="api call" method=GET path=/volumecontent/vol/path `} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the call is not logged: %s, want %q in it", log.String(), want)
		}
	}
}

func TestAnswerThatIsNone(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "{", "[]", `{"sandboxID":"../x"}`, `{}`} {
		c := service(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(201)
			_, _ = io.WriteString(w, body)
		})
		if _, err := c.Sandboxes.Create(t.Context(), nil); err == nil {
			t.Errorf("%q is taken for an answer, want an error", body)
		}
	}
}

func TestCloseIsIdempotent(t *testing.T) {
	t.Parallel()
	c := service(t, func(http.ResponseWriter, *http.Request) {})
	for range 2 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := (*Client)(nil).Close(); err != nil {
		t.Error(err)
	}
}
