//go:build linux

package interpreter

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/cloud/kernel"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
)

// TestLinesOfEvents checks the lines of each kind of event, and that a malformed one has none.
func TestLinesOfEvents(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 67890000, time.FixedZone("", 3600))
	const failure = `{"ename":"E","evalue":"v","traceback":["a","b"]}`
	line := errorLine{Type: "error", Name: "E", Value: "v", Traceback: "ab"}
	aborted := errorLine{Type: "error", Name: "ExecutionAborted", Value: "Execution was aborted"}
	ended := errorLine{Type: "error", Name: kernel.Ended.Name, Value: kernel.Ended.Value}
	lost := errorLine{Type: "error", Name: "WebSocketError", Value: "The connections was lost, rerun the code to get the results"}
	content, err := json.Marshal(kernel.Ended)
	must.Do(t, err)
	result := func(isMain bool) *resultLine {
		return &resultLine{Type: "result", Text: "x", Extra: map[string]json.RawMessage{}, IsMain: isMain}
	}
	for _, tt := range []struct {
		kind, content string
		failed        bool
		want          []any
		fails         bool
	}{
		{"queued", `{"position":3}`, false, []any{queuedLine{Type: "queued", Position: 3}}, false},
		{"queued", `{"position":"3"}`, false, nil, false},
		{"execute_input", `{"execution_count":7,"code":"x"}`, false, []any{countLine{Type: "number_of_executions", Count: 7}}, false},
		{"execute_input", `[]`, false, nil, false},
		{"stream", `{"name":"stdout","text":"t"}`, false, []any{streamLine{Type: "stdout", Text: "t", Timestamp: "2026-01-02T02:04:05.067890+00:00"}}, false},
		{"stream", `{"name":"stderr","text":"t"}`, false, []any{streamLine{Type: "stderr", Text: "t", Timestamp: "2026-01-02T02:04:05.067890+00:00"}}, false},
		{"stream", `{"name":"stdin","text":"t"}`, false, nil, false},
		{"stream", `{"name":"stdout","text":1}`, false, nil, false},
		{"display_data", `{"data":{"text/plain":"x"}}`, false, []any{result(false)}, false},
		{"execute_result", `{"data":{"text/plain":"x"}}`, false, []any{result(true)}, false},
		{"execute_result", `{"data":1}`, false, nil, false},
		{"error", failure, false, []any{line}, true},
		{"error", failure, true, nil, true},
		{"error", `{"ename":1}`, false, nil, false},
		{"error", string(content), false, []any{lost, ended}, true},
		{"execute_reply", `{"status":"ok"}`, false, nil, false},
		{"execute_reply", `{"status":"error"` + "," + failure[1:], false, []any{line}, true},
		{"execute_reply", `{"status":"error"` + "," + failure[1:], true, nil, true},
		{"execute_reply", `{"status":"aborted"}`, false, []any{aborted}, true},
		{"execute_reply", `{"status":"abort"}`, false, []any{aborted}, true},
		{"execute_reply", `{"status":"abort"}`, true, nil, true},
		{"execute_reply", `{"status":1}`, false, nil, false},
		{"status", `{"execution_state":"idle"}`, false, nil, false},
		{"comm_open", `{}`, false, nil, false},
	} {
		e := &execution{busy: make(chan struct{}), failed: tt.failed}
		got := e.lines(kernel.Event{Type: tt.kind, Content: json.RawMessage(tt.content), Time: at})
		if diff := cmp.Diff(tt.want, got); diff != "" || e.failed != tt.fails {
			t.Errorf("%s %s after an error: %v: failed %v, want %v; lines (-want +got):\n%s", tt.kind, tt.content, tt.failed, e.failed, tt.fails, diff)
		}
		select {
		case <-e.busy:
			t.Errorf("%s %s: the code is said to run", tt.kind, tt.content)
		default:
		}
	}
	e := &execution{busy: make(chan struct{})}
	if got := e.lines(kernel.Event{Type: "status", Content: json.RawMessage(`{"execution_state":"busy"}`)}); got != nil {
		t.Errorf("busy: got %v", got)
	}
	<-e.busy
}

// TestFormsOfResults checks the field of a line for each form of a result.
func TestFormsOfResults(t *testing.T) {
	t.Parallel()
	forms := map[string]string{
		"text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg", "image/png": "png", "image/jpeg": "jpeg", "application/pdf": "pdf",
		"text/latex": "latex", "application/json": "json", "application/javascript": "javascript", "e2b/data": "data", "e2b/chart": "chart",
	}
	for mime, name := range forms {
		for value, want := range map[string]map[string]any{
			`"v"`:     {"type": "result", name: "v", "extra": map[string]any{}, "is_main_result": true},
			`{"a":1}`: {"type": "result", name: map[string]any{"a": 1.0}, "extra": map[string]any{}, "is_main_result": true},
			`null`:    {"type": "result", "extra": map[string]any{}, "is_main_result": true},
		} {
			data, err := asciiLine(newResultLine(map[string]json.RawMessage{mime: json.RawMessage(value)}, true))
			must.Do(t, err)
			var got map[string]any
			must.Do(t, json.Unmarshal(data, &got))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", mime, value, diff)
			}
		}
	}
	for value, want := range map[string]any{`"'v'"`: "v", `"v"`: "v", `["v"]`: json.RawMessage(`["v"]`), `null`: nil} {
		if got := newResultLine(map[string]json.RawMessage{"text/plain": json.RawMessage(value)}, false).Text; !cmp.Equal(got, want) && (value != "null" || got != "") {
			t.Errorf("the text %s: got %v, want %v", value, got, want)
		}
	}
	if got := newResultLine(nil, false).Text; got != nil {
		t.Errorf("no text: got %v", got)
	}
}

// TestDeliveredLines checks that only the events of its own request become lines, and the line for one that is
// no JSON.
func TestDeliveredLines(t *testing.T) {
	t.Parallel()
	own := &kernel.Request{}
	e := &execution{request: own, outbox: newOutbox(), busy: make(chan struct{})}
	stream := json.RawMessage(`{"name":"stdout","text":"t"}`)
	e.deliver(t.Context(), t.Context(), kernel.Event{Type: "stream", Content: stream})
	e.deliver(t.Context(), t.Context(), kernel.Event{Type: "stream", Content: stream, Request: &kernel.Request{}})
	if n := len(e.outbox.frames); n != 0 {
		t.Errorf("%d lines of others were taken", n)
	}
	e.deliver(t.Context(), t.Context(), kernel.Event{Type: "stream", Content: stream, Request: own})
	if f := <-e.outbox.frames; !strings.Contains(string(f.data), `"text":"t"`) {
		t.Errorf("got %s", f.data)
	}
	if _, err := asciiLine(math.Inf(1)); err == nil {
		t.Error("a value that is no JSON became a line")
	}
	w := httptest.NewRecorder()
	if writeJSON(w, http.StatusOK, math.Inf(1)); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "unsupported value") {
		t.Errorf("an answer that is no JSON: got %d %s", w.Code, w.Body)
	}
	w = httptest.NewRecorder()
	if writeJSON(w, http.StatusCreated, 1); w.Code != http.StatusCreated || w.Body.String() != "1" || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("an answer: got %d %s %v", w.Code, w.Body, w.Header())
	}
}

// failing is an answer whose client goes away after some writes.
type failing struct {
	*httptest.ResponseRecorder
	left int
}

func (f *failing) Write(data []byte) (int, error) {
	if f.left--; f.left < 0 {
		return 0, errors.New("the client has gone")
	}
	return f.ResponseRecorder.Write(data)
}

func (f *failing) FlushError() error { return nil }

// TestSignsOfLife checks when an execution shows that it lives: only while it runs, after each silence, and that
// the first line that cannot be sent ends it.
func TestSignsOfLife(t *testing.T) {
	t.Parallel()
	const alive, end = "{\"type\": \"keepalive\"}\n", "{\"type\": \"end_of_execution\"}\n"
	for name, tt := range map[string]struct {
		busyAt, textAt, doneAt time.Duration // 0: never
		left                   int
		want                   string
		whole                  bool
		took                   time.Duration
	}{
		"it waits":                       {0, 0, 35 * time.Second, 99, end, true, 35 * time.Second},
		"it runs":                        {5 * time.Second, 0, 29 * time.Second, 99, alive + alive + end, true, 29 * time.Second},
		"it prints":                      {5 * time.Second, 12 * time.Second, 29 * time.Second, 99, "text\n" + alive + end, true, 29 * time.Second},
		"its client goes away":           {5 * time.Second, 0, 0, 1, alive, false, 25 * time.Second},
		"its client goes away in a line": {5 * time.Second, 17 * time.Second, 0, 1, alive, false, 17 * time.Second},
		"its client leaves at the end":   {0, 0, 5 * time.Second, 0, "", true, 5 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			k := kernel.New(kernel.Spec{Logger: slog.New(slog.DiscardHandler), Environ: func() ([]string, error) {
				<-release // the request lasts until then
				return nil, errors.New("no environment")
			}})
			client := k.Attach(func(context.Context, kernel.Event) {})
			e := &execution{request: &kernel.Request{Header: jupyter.NewHeader("execute_request", "c", "u")}, outbox: newOutbox(), busy: make(chan struct{})}
			must.Do(t, client.Submit(e.request))
			began := time.Now()
			for at, do := range map[time.Duration]func(){
				tt.busyAt: func() { close(e.busy) }, tt.textAt: func() { e.outbox.tryPush(frame{[]byte("text\n")}) }, tt.doneAt: func() { close(release) },
			} {
				if at > 0 {
					time.AfterFunc(at, do)
				}
			}
			w := &failing{httptest.NewRecorder(), tt.left}
			whole := e.write(t.Context(), w, http.NewResponseController(w), 10*time.Second)
			if took := time.Since(began); whole != tt.whole || w.Body.String() != tt.want || took != tt.took {
				t.Errorf("%s: got %q, whole %v, after %v, want %q, %v and %v", name, w.Body, whole, took, tt.want, tt.whole, tt.took)
			}
			if tt.doneAt == 0 {
				close(release)
			}
			must.Do(t, k.Close())
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e := &execution{request: &kernel.Request{}, outbox: newOutbox(), busy: make(chan struct{})}
	w := httptest.NewRecorder()
	if e.write(ctx, w, http.NewResponseController(w), time.Hour) || w.Body.Len() > 0 {
		t.Errorf("after its client has left: got %q", w.Body)
	}
}
