//go:build linux

package interpreter

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"

	"github.com/e2bctl/e2bctl/internal/cloud/child"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestPythonIsLookedUp checks the command of Python: it is nil unless a program is found.
func TestPythonIsLookedUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "py"), []byte("#!/bin/sh\n"), 0o755))
	environ := []string{"PATH=" + dir}
	for _, test := range []struct{ python, want []string }{
		{nil, nil},
		{[]string{"no-such-python"}, nil},
		{[]string{"no-such-python", "-I"}, nil},
		{[]string{"py"}, []string{filepath.Join(dir, "py")}},
		{[]string{"py", "-I"}, []string{filepath.Join(dir, "py"), "-I"}},
	} {
		s := &Server{options: Options{Python: test.python}}
		if got := s.python(environ); !slices.Equal(got, test.want) {
			t.Errorf("%q: got %q, want %q", test.python, got, test.want)
		}
	}
}

// TestOwnPythonHidesAnother checks that the Python of the server is the kernel python3, although another one is
// installed under this name, and that other kernels are beside it.
func TestOwnPythonHidesAnother(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"python3", "other"} {
		must.Do(t, os.MkdirAll(filepath.Join(dir, "kernels", name), 0o755))
		must.Do(t, os.WriteFile(filepath.Join(dir, "kernels", name, "kernel.json"), []byte(`{"argv":["theirs"],"display_name":"theirs","language":"text"}`), 0o644))
	}
	s := &Server{driver: "driver.py", options: Options{Python: []string{"sh"}, Dir: dir, Environ: func() ([]string, error) {
		return []string{"PATH=/bin:/usr/bin", "JUPYTER_PATH=" + dir}, nil
	}}}
	for _, test := range []struct {
		python []string
		want   string
	}{{[]string{"sh"}, "Python 3"}, {nil, "theirs"}} {
		s.options.Python = test.python
		names := map[string]string{}
		for name, model := range s.specModels() {
			names[name] = model.(map[string]any)["spec"].(map[string]any)["display_name"].(string)
		}
		own := s.specModels()["python3"].(map[string]any)
		want := map[string]any{"name": "python3", "resources": map[string]string{}, "spec": map[string]any{
			"argv": []string{child.LookPath("sh", []string{"PATH=/bin:/usr/bin"}), "driver.py"}, "display_name": "Python 3", "language": "python",
			"interrupt_mode": "signal", "env": map[string]string{}, "metadata": json.RawMessage("{}"),
		}}
		if diff := cmp.Diff(want, own); diff != "" && test.python != nil {
			t.Errorf("the own Python (-want +got):\n%s", diff)
		}
		if names["python3"] != test.want || names["other"] != "theirs" {
			t.Errorf("with the Python %q: got the kernels %v, want %q as python3, and the other one", test.python, names, test.want)
		}
	}
}

// TestOnlyPreflightsAreAnswered checks which requests of other origins never reach a route.
func TestOnlyPreflightsAreAnswered(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		method, origin, asks string
		answered             bool
	}{
		{"OPTIONS", "http://a.test", "POST", true},
		{"OPTIONS", "http://a.test", "", false},
		{"OPTIONS", "", "POST", false},
		{"POST", "http://a.test", "POST", false},
		{"GET", "", "", false},
	} {
		reached := false
		h := allowOrigins(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
		r := httptest.NewRequestWithContext(t.Context(), test.method, "/execute", nil)
		if test.origin != "" {
			r.Header.Set("Origin", test.origin)
		}
		if test.asks != "" {
			r.Header.Set("Access-Control-Request-Method", test.asks)
			r.Header.Set("Access-Control-Request-Headers", "x-a")
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if reached == test.answered || (w.Header().Get("Access-Control-Allow-Methods") != "") != test.answered {
			t.Errorf("%+v: the request reached the route: %v", test, reached)
		}
		want := http.Header{
			"Access-Control-Allow-Origin": {"*"}, "Access-Control-Allow-Methods": {"DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"}, "Access-Control-Allow-Headers": {"x-a"}, "Access-Control-Max-Age": {"600"},
		}
		if diff := cmp.Diff(want, w.Header()); test.answered && diff != "" {
			t.Errorf("%+v: headers (-want +got):\n%s", test, diff)
		}
		if (w.Header().Get("Access-Control-Allow-Origin") == "*") != (test.origin != "") {
			t.Errorf("%+v: got the origin %q", test, w.Header().Get("Access-Control-Allow-Origin"))
		}
	}
}

// TestFormsOfMessages checks that a text is JSON in every subprotocol, as clients may send both kinds of frames.
func TestFormsOfMessages(t *testing.T) {
	t.Parallel()
	const text = `{"channel":"shell","header":{"msg_id":"1","msg_type":"execute_request"},"parent_header":{},"metadata":{},"content":{}}`
	for _, v1 := range []bool{false, true} {
		so := &socket{v1: v1}
		if m, err := so.unmarshal(websocket.TextMessage, []byte(text)); err != nil || m.Header.MsgType != "execute_request" {
			t.Errorf("v1 %v: got %+v and error %v, want the message", v1, m, err)
		}
		if m, err := so.unmarshal(websocket.BinaryMessage, []byte(text)); err == nil {
			t.Errorf("v1 %v: a text as a binary message: got %+v, want an error", v1, m)
		}
	}
}
