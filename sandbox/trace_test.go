package sandbox

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// TestTraceCannotOverride checks that headers of hooks never replace those that route
// and authorize.
func TestTraceCannotOverride(t *testing.T) {
	t.Parallel()
	const mark = "of the hook"
	s := newService(t)
	check := func(r *http.Request, own map[string]string) {
		for name, want := range own {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s %s has %s %q, want %q", r.Method, r.URL.Path, name, got, want)
			}
		}
		if got := r.Header.Get("Traceparent"); got != mark {
			t.Errorf("%s %s has traceparent %q, want that of the hook", r.Method, r.URL.Path, got)
		}
		if got := r.UserAgent(); got == mark {
			t.Errorf("%s %s has the User-Agent %q, want the client's", r.Method, r.URL.Path, got)
		}
	}
	s.control = func(_ http.ResponseWriter, r *http.Request) { check(r, map[string]string{"X-Api-Key": testKey}) }
	s.raw = func(_ http.ResponseWriter, r *http.Request) bool {
		check(r, map[string]string{"E2b-Sandbox-Id": testID, "X-Access-Token": "envdtoken"})
		return false
	}
	trace := Trace{Headers: func(_ context.Context, h http.Header) {
		for _, name := range []string{"X-Api-Key", "User-Agent", "E2b-Sandbox-Id", "X-Access-Token", "Traceparent"} {
			h.Set(name, mark)
		}
	}}
	sb, err := s.client(WithTrace(trace)).Create(t.Context())
	must.Do(t, err)
	defer sb.Close()
	if status, err := sb.health(t.Context()); err != nil || status != http.StatusNoContent {
		t.Errorf("got %d, %v, want %d", status, err, http.StatusNoContent)
	}
}

// TestTraceEnvs checks where the variables of a trace go.
func TestTraceEnvs(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		params *RunCodeParams
		want   string
	}{
		"Python":           {nil, `"env_vars":{"MARK":"hook"}`},
		"the caller's own": {&RunCodeParams{Envs: map[string]string{"MARK": "mine"}}, `"env_vars":{"MARK":"mine"}`},
		"another language": {&RunCodeParams{Language: "bash"}, ""},
		"a context":        {&RunCodeParams{Context: testContext}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			var body string
			s.execute = func(w http.ResponseWriter, r *http.Request) {
				text, _ := io.ReadAll(r.Body)
				body = string(text)
				_, _ = io.WriteString(w, `{"type":"end_of_execution"}`+"\n")
			}
			var ended int
			trace := Trace{
				Envs: func(context.Context) map[string]string { return map[string]string{"MARK": "hook"} },
				Code: func(ctx context.Context, _ *Sandbox, code string) (context.Context, func(*Execution, error)) {
					return ctx, func(e *Execution, err error) {
						if ended++; e == nil || err != nil || code != "1" {
							t.Errorf("%q ended with %v, %v, want an execution", code, e, err)
						}
					}
				},
			}
			sb, err := s.client(WithTrace(trace)).Create(t.Context(), WithCodeTransport(CodeTransportHTTP))
			must.Do(t, err)
			defer sb.Close()
			if _, err := sb.RunCode(t.Context(), "1", test.params); err != nil {
				t.Fatal(err)
			}
			if ended != 1 || !strings.Contains(body, test.want) || test.want == "" && strings.Contains(body, "MARK") {
				t.Errorf("the hook ended %d times, and the request is %s, want %q in it", ended, body, test.want)
			}
		})
	}
}
