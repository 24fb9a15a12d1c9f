//go:build linux

package interpreter

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// All problems of a body are reported at once, as FastAPI does.
func TestMalformedBodies(t *testing.T) {
	t.Parallel()
	p := serve(t, "")
	long := strings.Repeat("x", maxEcho)
	for body, want := range map[string]string{
		``:     `[{"type":"missing","loc":["body"],"msg":"Field required","input":null}]`,
		`null`: `[{"type":"missing","loc":["body"],"msg":"Field required","input":null}]`,
		`{"code"`: `[{"type":"json_invalid","loc":["body",7],"msg":"JSON decode error","input":{},` +
			`"ctx":{"error":"unexpected end of JSON input"}}]`,
		`["code"]`: `[{"type":"model_attributes_type","loc":["body"],` +
			`"msg":"Input should be a valid dictionary or object to extract fields from","input":["code"]}]`,
		`{"CODE":"1"}`:                  `[{"type":"missing","loc":["body","code"],"msg":"Field required","input":{"CODE":"1"}}]`,
		`{"code":null}`:                 `[{"type":"string_type","loc":["body","code"],"msg":"Input should be a valid string","input":null}]`,
		`{"code":["1"]}`:                `[{"type":"string_type","loc":["body","code"],"msg":"Input should be a valid string","input":["1"]}]`,
		`{"x":"` + long + `"}`:          `[{"type":"missing","loc":["body","code"],"msg":"Field required","input":null}]`,
		`{"code":"1","env_vars":["A"]}`: `[{"type":"dict_type","loc":["body","env_vars"],"msg":"Input should be a valid dictionary","input":["A"]}]`,
		`{"context_id":7,"language":{},"env_vars":{"B":1,"A":null,"C":"c"}}`: `[` +
			`{"type":"missing","loc":["body","code"],"msg":"Field required","input":{"context_id":7,"language":{},"env_vars":{"B":1,"A":null,"C":"c"}}},` +
			`{"type":"string_type","loc":["body","context_id"],"msg":"Input should be a valid string","input":7},` +
			`{"type":"string_type","loc":["body","language"],"msg":"Input should be a valid string","input":{}},` +
			`{"type":"string_type","loc":["body","env_vars","A"],"msg":"Input should be a valid string","input":null},` +
			`{"type":"string_type","loc":["body","env_vars","B"],"msg":"Input should be a valid string","input":1}]`,
	} {
		response := p.open(t, t.Context(), http.MethodPost, p.interpreter+"/execute", body)
		kind := response.Header.Get("Content-Type")
		response.Body.Close()
		status, got := p.call(t, t.Context(), http.MethodPost, p.interpreter+"/execute", body)
		if status != http.StatusUnprocessableEntity || kind != "application/json" || got != `{"detail":`+want+`}` {
			t.Errorf("%.80s: %d %s\n got %s\nwant %s", body, status, kind, got, `{"detail":`+want+`}`)
		}
	}
	if status, got := p.call(t, t.Context(), http.MethodPost, p.interpreter+"/contexts", `{"cwd":1}`); status != 422 || !strings.Contains(got, `"loc":["body","cwd"]`) {
		t.Errorf("contexts: %d %s, want status 422 and %q in it", status, got, `"loc":["body","cwd"]`)
	}
	// Unknown fields are ignored.
	if status, got := p.call(t, t.Context(), http.MethodPost, p.interpreter+"/contexts", `{"cwd":null,"language":null,"more":[1]}`); status != 200 {
		t.Errorf("contexts: %d %s, want 200", status, got)
	}
}

// Variables that no process can have in its environment are refused before anything
// runs.
func TestImpossibleVariables(t *testing.T) {
	t.Parallel()
	p := serve(t, "")
	p.run(t, map[string]any{"code": "x = 41"})
	for _, variables := range []string{`{"":"x"}`, `{"A=B":"x"}`, `{"A\u0000":"x"}`, `{"A":"\u0000"}`} {
		status, got := p.call(t, t.Context(), http.MethodPost, p.interpreter+"/execute", `{"code":"1","env_vars":`+variables+`}`)
		if status != http.StatusBadRequest || !strings.HasPrefix(got, "env_vars: ") {
			t.Errorf("%s: got %d %s, want status http.StatusBadRequest and %q at its start", variables, status, got, "env_vars: ")
		}
	}
	if got := merged(p.run(t, map[string]any{"code": "x + 1"}), "result"); got != "42" {
		t.Errorf("after them x + 1 is %q, want %q", got, "42")
	}
}

// zeros is a body without an end, which takes no memory.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestLargestBody checks the bound of a body, with the side that is allowed.
func TestLargestBody(t *testing.T) {
	t.Parallel()
	for size, want := range map[int64]int{maxBody: http.StatusUnprocessableEntity, maxBody + 1: http.StatusRequestEntityTooLarge} { // zeros are no JSON
		w := httptest.NewRecorder()
		if readBody(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/execute", io.LimitReader(zeros{}, size))) || w.Code != want {
			t.Errorf("%d bytes: got status %d, want %d", size, w.Code, want)
		}
	}
}
