package loop

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const testKey = "sk-very-secret-0123456789"

// replies returns an endpoint that gives one answer after another, and repeats the last
// one.
func replies(t *testing.T, list ...func(http.ResponseWriter)) (m *Model, asked *int) {
	t.Helper()
	asked = new(int)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err != nil || !strings.Contains(string(body), "question") {
			t.Errorf("the body is %q, %v", body, err)
		}
		w.Header().Set("Retry-After", "0")
		reply := list[min(*asked, len(list)-1)]
		*asked++
		reply(w)
	}))
	t.Cleanup(server.Close)
	return &Model{URL: server.URL + "/", Key: testKey, Name: "m"}, asked
}

func reply(status int, body string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// broken ends the connection in the middle of the answer.
func broken(w http.ResponseWriter) {
	w.Header().Set("Content-Length", "1000")
	w.WriteHeader(http.StatusOK)
	io.WriteString(w, `{"choices"`)
}

const good = `{"choices":[{"message":{"role":"assistant","content":"hello"}}],"usage":{"total_tokens":7}}`

func TestComplete(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		replies []func(http.ResponseWriter)
		asked   int
		want    string // a part of the error; "" means a good answer
		status  int
	}{
		"good":               {[]func(http.ResponseWriter){reply(200, good)}, 1, "", 0},
		"busy":               {[]func(http.ResponseWriter){reply(429, "slow down"), reply(503, ""), reply(200, good)}, 3, "", 0},
		"cut":                {[]func(http.ResponseWriter){broken, reply(200, good)}, 2, "", 0},
		"always cut":         {[]func(http.ResponseWriter){broken}, attempts, "unexpected EOF", 0},
		"always fails":       {[]func(http.ResponseWriter){reply(500, "oh no")}, attempts, `500 Internal Server Error: "oh no"`, 500},
		"wrong key":          {[]func(http.ResponseWriter){reply(401, `{"error":{"message":"bad key `+testKey+`"}}`)}, 1, `check the key: "bad key [redacted]"`, 401},
		"the key in garbage": {[]func(http.ResponseWriter){reply(200, "you said "+testKey)}, 1, "you said [redacted]", 0},
		"wrong model":        {[]func(http.ResponseWriter){reply(404, `{"error":{"message":"no such model"}}`)}, 1, "no such model", 404},
		"a page":             {[]func(http.ResponseWriter){reply(200, "<html>")}, 1, "not one of the chat completions protocol", 0},
		"no choices":         {[]func(http.ResponseWriter){reply(200, `{"choices":[]}`)}, 1, "no choices", 0},
		"endless":            {[]func(http.ResponseWriter){reply(200, `"`+strings.Repeat("x", maxAnswer)+`"`)}, 1, "has more than", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, asked := replies(t, test.replies...)
			got, err := m.Complete(t.Context(), []Message{{"user", "question"}})
			if *asked != test.asked {
				t.Errorf("it asked %d times", *asked)
			}
			if test.want == "" {
				if err != nil || *got != (Completion{"hello", 7}) {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), `model "m"`) || strings.Contains(err.Error(), testKey) {
				t.Errorf("%v", err)
			}
			if answered, ok := errors.AsType[*StatusError](err); ok != (test.status != 0) || ok && answered.Status != test.status {
				t.Errorf("the status of %v", err)
			}
		})
	}
}

func TestCompleteEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	m, asked := replies(t, func(w http.ResponseWriter) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusTooManyRequests)
		cancel()
	})
	if _, err := m.Complete(ctx, []Message{{"user", "question"}}); err == nil || *asked != 1 {
		t.Errorf("asked %d times, %v", *asked, err)
	}
	if _, err := m.Complete(ctx, []Message{{"user", "question"}}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		after   string
		attempt int
		want    time.Duration
	}{
		{"", 0, firstWait}, {"", 2, 4 * firstWait}, {"7", 2, 7 * time.Second}, {"0", 1, 0}, {"86400", 0, longestWait},
		{"Fri, 01 Jan 2100 00:00:00 GMT", 1, 2 * firstWait}, {"-1", 0, firstWait},
	} {
		if got := wait(test.after, test.attempt); got != test.want {
			t.Errorf("wait(%q, %d) is %v", test.after, test.attempt, got)
		}
	}
}

func TestModelFlag(t *testing.T) {
	for name, value := range map[string]string{"OPENAI_API_KEY": testKey, "OPENAI_BASE_URL": "http://localhost:1/v1", "OPENAI_MODEL": ""} {
		t.Setenv(name, value)
	}
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	var usage strings.Builder
	flags.SetOutput(&usage)
	m := ModelFlag(flags)
	if _, err := m.Complete(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "OPENAI_MODEL") {
		t.Errorf("without a name: %v", err)
	}
	if err := flags.Parse([]string{"-model", "m", "task"}); err != nil || m.URL != "http://localhost:1/v1" || m.Key != testKey || m.Name != "m" {
		t.Errorf("%v, %v", m, err)
	}
	if flags.Usage(); strings.Contains(usage.String(), testKey) {
		t.Error(usage.String())
	}
}

func TestModelHidesItsKey(t *testing.T) {
	t.Parallel()
	m := Model{URL: "ftp://me:" + testKey + "@example.com", Key: testKey, Name: "m"}
	_, err := m.Complete(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "no http or https URL") {
		t.Error(err)
	}
	for _, text := range []string{fmt.Sprint(err), fmt.Sprintf("%v %+v %#v", m, m, m)} {
		if strings.Contains(strings.ReplaceAll(text, m.URL, ""), testKey) {
			t.Error(text)
		}
	}
}
