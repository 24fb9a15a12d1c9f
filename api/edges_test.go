package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/e2bctl/e2bctl/internal/must"
)

// counted is a body that counts how often it was closed.
type counted struct {
	io.Reader
	closed *int
}

func (c counted) Close() error { *c.closed++; return nil }

// TestAnswersAreBoundedAndClosed checks the longest answer, and that each answer is closed once, whether it
// is taken, refused, too long or breaks off.
func TestAnswersAreBoundedAndClosed(t *testing.T) {
	t.Parallel()
	of := func(n int) io.Reader {
		return io.MultiReader(strings.NewReader(`{"teams":1}`), io.LimitReader(spaces{}, int64(n-len(`{"teams":1}`))))
	}
	for what, tt := range map[string]struct {
		status int
		body   io.Reader
		out    bool
		want   bool
	}{
		"the longest":    {200, of(maxAnswerBody), true, true},
		"one longer":     {200, of(maxAnswerBody + 1), true, false},
		"not wanted":     {200, of(maxAnswerBody + 2), false, true},
		"refused":        {400, strings.NewReader(`{"code":400,"message":"no"}`), true, false},
		"breaks off":     {200, io.MultiReader(strings.NewReader("{"), broken{}), true, false},
		"something else": {200, strings.NewReader("text"), true, false},
	} {
		closed := 0
		c, err := NewClient(WithAPIKey(secret), WithMaxRetries(0), WithTransport(tripper(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: tt.status, Header: http.Header{}, Body: counted{tt.body, &closed}, Request: r}, nil
		})))
		must.Do(t, err)
		var out any
		if tt.out {
			out = new(map[string]any)
		}
		if _, err := c.do(t.Context(), call{method: http.MethodGet, path: "/teams"}, out); (err == nil) != tt.want {
			t.Errorf("%s: got error %v, want it to be taken: %v", what, err, tt.want)
		}
		if closed == 0 {
			t.Errorf("%s: the answer was not closed", what)
		}
	}
}

type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

// TestHeadersOnEachCall checks that headers of the program are sent with calls of the API, with those
// of the contents of volumes, and with each repetition.
func TestHeadersOnEachCall(t *testing.T) {
	t.Parallel()
	var got []string
	c := service(t, func(w http.ResponseWriter, r *http.Request) {
		if got = append(got, r.Method+" "+r.URL.Path+" "+r.Header.Get("Traceparent")); len(got) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, `{}`)
	}, WithHeaders(func(_ context.Context, h http.Header) { h.Set("Traceparent", "trace") }))
	_, err := c.Sandboxes.Get(t.Context(), "a")
	must.Do(t, err)
	_, err = c.Volumes.Content(&Volume{ID: "v", Token: "t"}).Stat(t.Context(), "/a")
	must.Do(t, err)
	if want := "[GET /sandboxes/a trace GET /sandboxes/a trace GET /volumecontent/v/path trace]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// TestEnvFileIsBounded checks the size of the largest file of settings.
func TestEnvFileIsBounded(t *testing.T) {
	t.Parallel()
	const setting = "E2B_API_KEY=" + secret + "\n#"
	for n, want := range map[int]bool{maxEnvFile: true, maxEnvFile + 1: false} {
		path := filepath.Join(t.TempDir(), "settings")
		must.Do(t, os.WriteFile(path, []byte(setting+strings.Repeat("x", n-len(setting))), 0o600))
		s := settings{envFile: path, envFileNamed: true}
		if got, err := s.readEnvFile([]string{EnvAPIKey}); (err == nil) != want || want && got[EnvAPIKey] != secret {
			t.Errorf("%d bytes: got %d settings and error %v, want it to be read: %v", n, len(got), err, want)
		}
	}
}

// TestEdgesOfArguments checks the highest value of each number, and the one beyond.
func TestEdgesOfArguments(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]bool{-1: false, 0: true, 100: true, 101: false} {
		if _, err := NewClient(WithAPIKey(secret), WithMaxRetries(n)); (err == nil) != want {
			t.Errorf("%d retries: got error %v, want it allowed: %v", n, err, want)
		}
	}
	const most = math.MaxInt32 * time.Second
	for d, want := range map[time.Duration]int64{
		0: 300, 1: 1, time.Second: 1, time.Second + 1: 2, most - 1: math.MaxInt32, most: math.MaxInt32, most + 1: -1, most + time.Second: -1, -time.Nanosecond: -1,
	} {
		if got, err := seconds("lifetime", d); err == nil && got != want || (err == nil) != (want > 0) {
			t.Errorf("%v: got %d seconds and error %v, want %d", d, got, err, want)
		}
	}
	for n, want := range map[int]bool{1: true, maxReference: true, maxReference + 1: false} {
		if got := isReference(strings.Repeat("a", n)); got != want {
			t.Errorf("a reference of %d characters: got %v, want %v", n, got, want)
		}
	}
	for n, want := range map[int]bool{0: false, 1: true, 128: true, 129: false} {
		if _, err := sandboxPath(strings.Repeat("a", n), ""); (err == nil) != want {
			t.Errorf("an id of %d characters: got error %v, want it allowed: %v", n, err, want)
		}
	}
	for code, want := range map[int]int{399: 500, 400: 400, 599: 599, 600: 500, 0: 500} {
		if got := (&forkError{Code: code}).asError("POST", "/fork").StatusCode; got != want {
			t.Errorf("a copy that failed with %d: got %d, want %d", code, got, want)
		}
	}
	for c, want := range map[rune]bool{0: false, '\t': false, ' ' - 1: false, ' ': true, '~': true, '~' + 1: false, '\u0080': false, 'é': false} {
		if _, err := NewClient(WithAPIKey(secret), WithUserAgent("a"+string(c)+"b")); (err == nil) != want {
			t.Errorf("a product with %q: got error %v, want it allowed: %v", c, err, want)
		}
	}
	for offset, want := range map[int]string{0: "", 1: "1", 2: "2"} {
		c := service(t, func(w http.ResponseWriter, r *http.Request) {
			if got := r.URL.Query().Get("logsOffset"); got != want {
				t.Errorf("from line %d on: got %q, want %q", offset, got, want)
			}
			_, _ = io.WriteString(w, `{}`)
		})
		_, err := c.Templates.BuildStatus(t.Context(), "a", "b", &BuildStatusParams{LogsOffset: offset})
		must.Do(t, err)
	}
}

// TestVolumesThatAreNotMade checks that a refused name is not taken for one that exists, and that a
// volume without a token is none.
func TestVolumesThatAreNotMade(t *testing.T) {
	t.Parallel()
	refuses := service(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"code":400,"message":"refused"}`)
	})
	for name, exists := range map[string]bool{"data": true, "my data": false, "": false, strings.Repeat("a", 128): true, strings.Repeat("a", 129): false} {
		if _, err := refuses.Volumes.Create(t.Context(), name); err == nil || errors.Is(err, ErrConflict) != exists {
			t.Errorf("%q: got error %v, want one of a name that exists: %v", name, err, exists)
		}
	}
	for answer, want := range map[string]bool{`{"volumeID":"a","token":"t"}`: true, `{"volumeID":"a"}`: false, `{"token":"t"}`: false, `{"volumeID":"a/b","token":"t"}`: false} {
		c := service(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) })
		if v, err := c.Volumes.Get(t.Context(), "a"); (err == nil) != want {
			t.Errorf("%s: got %v and error %v, want a volume: %v", answer, v, err, want)
		}
	}
}

// TestFollowingAsksSeldom checks that following a log requests the sandbox only every few seconds.
func TestFollowingAsksSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		c, err := NewClient(WithAPIKey(secret), WithTransport(tripper(func(r *http.Request) (*http.Response, error) {
			asked++
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}")), Request: r}, nil
		})))
		must.Do(t, err)
		l := &logReader{service: c.Sandboxes, id: "a"}
		began := time.Now()
		for time.Since(began) < 3*aliveEvery {
			must.Do(t, l.wait(t.Context()))
		}
		if asked != 3 {
			t.Errorf("asked %d times in %v, want 3", asked, time.Since(began))
		}
	})
}

// TestMebibytes checks that sizes are rounded up, and that a negative size stays one for the service to
// refuse.
func TestMebibytes(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[int64]int64{
		-1 << 40: -1 << 40, -1: -1, 0: 0, 1: 1, 1<<20 - 1: 1, 1 << 20: 1, 1<<20 + 1: 2, 2 << 20: 2, math.MaxInt64: 1 << 43,
	} {
		if got := mebibytes(bytes); got != want {
			t.Errorf("%d: got %d, want %d", bytes, got, want)
		}
	}
}

// TestNamesOfStatements checks what is a name in an .env file: export is one, too, if it stands alone.
func TestNamesOfStatements(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{"A=1": "A", "export A=1": "A", "export\tA: 1": "A", "export=1": "export", " export = 1": "export", "exported A=1": "exported A", "export": "export", "export A": "A", "A=": "A"} {
		for _, text := range []string{line + "\n", line} { // the last line may have no end
			if all := statements(text); len(all) != 1 || all[0].name != want || all[0].text != text {
				t.Errorf("%q: got %+v, want the name %q", text, all, want)
			}
		}
	}
}
