//go:build linux

package interpreter

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/kernel"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
)

// withoutPython returns a server that starts no Python, and has one installed kernel that ends at once.
func withoutPython(t *testing.T) *Server {
	t.Helper()
	dir := t.TempDir()
	spec := filepath.Join(dir, "kernels", "broken")
	must.Do(t, os.MkdirAll(spec, 0o700))
	must.Do(t, os.WriteFile(filepath.Join(spec, "kernel.json"), []byte(`{"argv":["/bin/false","{connection_file}"],"display_name":"Broken","language":"broken"}`), 0o600))
	s, err := New(Options{
		Environ: func() ([]string, error) {
			return []string{"PATH=/usr/bin:/bin", "HOME=" + dir, "JUPYTER_PATH=" + dir}, nil
		},
		Dir: dir, Scratch: t.TempDir(), Token: func() string { return "" },
	})
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, s.Close()) })
	return s
}

// ask sends a request to a handler.
func ask(h http.Handler, method, path, body string) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(method, path, strings.NewReader(body)))
	return answer
}

// TestContextsAreKernels checks that each context is a kernel, that not each kernel is a context, and that a context
// whose kernel does not start is neither.
func TestContextsAreKernels(t *testing.T) {
	t.Parallel()
	s := withoutPython(t)
	count := func(h http.Handler, path string) int {
		t.Helper()
		var list []any
		must.Do(t, json.Unmarshal(ask(h, "GET", path, "").Body.Bytes(), &list))
		return len(list)
	}
	check := func(what string, contexts, kernels int) {
		t.Helper()
		if c, k := count(s.Interpreter(), "/contexts"), count(s.Jupyter(), "/api/kernels"); c != contexts || k != kernels {
			t.Errorf("%s: got %d contexts and %d kernels, want %d and %d", what, c, k, contexts, kernels)
		}
	}
	check("at first", 1, 1)
	if answer := ask(s.Interpreter(), "POST", "/contexts", `{"language":"broken"}`); answer.Code != http.StatusInternalServerError || !strings.Contains(answer.Body.String(), "Failed to create context") {
		t.Errorf("a kernel that does not start: got %d %s", answer.Code, answer.Body)
	}
	check("after one that did not start", 1, 1)
	if answer := ask(s.Jupyter(), "POST", "/api/kernels", `{}`); answer.Code != http.StatusCreated {
		t.Errorf("a kernel: got %d %s", answer.Code, answer.Body)
	}
	check("with a kernel", 1, 2)
	if answer := ask(s.Interpreter(), "POST", "/contexts", `{}`); answer.Code != http.StatusOK {
		t.Errorf("a context: got %d %s", answer.Code, answer.Body)
	}
	check("with a context", 2, 3)
}

// TestIDsOfKernels checks the longest id that a client may choose, and that each is there once.
func TestIDsOfKernels(t *testing.T) {
	t.Parallel()
	s := withoutPython(t)
	id := func(n int) string { return "a-b-c-d-" + strings.Repeat("e", n-len("a-b-c-d-")) }
	for _, test := range []struct {
		id   string
		want int
	}{
		{id(9), 201}, {id(maxKernelID), 201}, {id(maxKernelID), 409}, {id(maxKernelID + 1), 400}, {"a-b-c-d", 400}, {"a-b-c-d-e-f", 400}, {"a-b-c-d-e/", 400}, {"a-b-c-d-e\n", 400},
	} {
		if answer := ask(s.Jupyter(), "POST", "/api/kernels", fmt.Sprintf(`{"kernel_id":%q}`, test.id)); answer.Code != test.want {
			t.Errorf("%q: got %d %s, want %d", test.id, answer.Code, answer.Body, test.want)
		}
	}
}

// TestStatusOfAll checks that the last activity is that of the kernel that was active last.
func TestStatusOfAll(t *testing.T) {
	t.Parallel()
	s := withoutPython(t)
	latest := s.began
	for range 3 {
		k, err := s.addKernel(&runningKernel{})
		must.Do(t, err)
		_, latest = k.State()
	}
	for _, began := range []time.Time{s.began.Add(-time.Hour), latest.Add(time.Hour)} {
		s.began = began
		var status struct {
			Kernels int    `json:"kernels"`
			Last    string `json:"last_activity"`
		}
		must.Do(t, json.Unmarshal(ask(s.Jupyter(), "GET", "/api/status", "").Body.Bytes(), &status))
		want := latest
		if began.After(latest) {
			want = began
		}
		if status.Kernels != 4 || status.Last != jupyterTime(want) {
			t.Errorf("got %+v, want 4 kernels and %s", status, jupyterTime(want))
		}
	}
}

// TestAbsentClientMayMissMore checks how much waits for a client that has no connection now, and that the buffer of
// one that missed a message is dropped.
func TestAbsentClientMayMissMore(t *testing.T) {
	t.Parallel()
	s := withoutPython(t)
	s.mu.Lock()
	b := s.newBuffer(&socket{kernel: s.kernels[0], session: "s"})
	s.mu.Unlock()
	event := kernel.Event{Channel: jupyter.IOPub, Type: "stream", Content: json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)}
	fit := absentBytes / weight(&jupyter.Message{Content: event.Content})
	for range fit {
		b.deliver(t.Context(), event)
	}
	b.mu.Lock()
	if len(b.messages) != fit || b.closed {
		t.Errorf("%d of %d messages wait, closed %v, want all", len(b.messages), fit, b.closed)
	}
	b.mu.Unlock()
	b.deliver(t.Context(), event)
	must.Do(t, s.Close())
	if !b.closed || len(b.messages) > 0 || len(s.buffers) > 0 {
		t.Errorf("%d messages and %d buffers are left, closed %v", len(b.messages), len(s.buffers), b.closed)
	}
}

// TestCloseDropsBuffers checks that nothing of a client outlives the server: neither its messages nor a timer.
func TestCloseDropsBuffers(t *testing.T) {
	t.Parallel()
	s := withoutPython(t)
	s.mu.Lock()
	b := s.newBuffer(&socket{kernel: s.kernels[0], session: "s"})
	s.mu.Unlock()
	must.Do(t, s.Close())
	if !b.closed || len(s.buffers) > 0 || b.expiry.Stop() {
		t.Errorf("closed %v, %d buffers, want no buffer and no timer", b.closed, len(s.buffers))
	}
}

// TestHeadersOfRequests checks that a request without an id or a type, which no answer could name, is refused.
func TestHeadersOfRequests(t *testing.T) {
	t.Parallel()
	for _, header := range []jupyter.Header{{}, {MsgID: "a"}, {MsgType: "execute_request"}} {
		if err := (&socket{}).take(&jupyter.Message{Channel: jupyter.Shell, Header: header}); !errors.Is(err, errProtocol) {
			t.Errorf("%+v: got %v, want %v", header, err, errProtocol)
		}
	}
	for _, channel := range []string{"", "iopub", "hb"} {
		if err := (&socket{}).take(&jupyter.Message{Channel: channel}); !errors.Is(err, errProtocol) {
			t.Errorf("channel %q: got %v, want %v", channel, err, errProtocol)
		}
	}
}

// TestNamesOfLanguages checks that each name of a language means one context.
func TestNamesOfLanguages(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"": "python", "python": "python", " Python ": "python", "js": "javascript", "JavaScript": "javascript", "ts": "typescript", " TS": "typescript",
		"typescript": "typescript", "R": "r", "bash": "bash", "other": "other",
	} {
		if got := normalLanguage(name); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}

// TestLinesAreASCII checks that a line means the same text as before for characters at the edges of each form.
func TestLinesAreASCII(t *testing.T) {
	t.Parallel()
	for _, r := range []rune{0, '"', '<', 0x7e, 0x7f, 0x80, 0xff, 0x2028, 0xd7ff, 0xe000, 0xfffd, 0xffff, 0x10000, 0x10001, 0x10ffff} {
		text := "a" + string(r) + "z"
		line, err := asciiLine(streamLine{Text: text})
		must.Do(t, err)
		var back streamLine
		if err := json.Unmarshal(line, &back); err != nil || back.Text != text || strings.ContainsFunc(string(line), func(r rune) bool { return r > 0x7f }) {
			t.Errorf("%U: got %s and error %v, want %q in ASCII", r, line, err, text)
		}
	}
}
