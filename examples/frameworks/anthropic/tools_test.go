package anthropic_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/e2bctl/e2bctl/examples/frameworks/anthropic"
	"github.com/e2bctl/e2bctl/examples/frameworks/workspace"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// call is a tool call of the scripted model.
type call struct {
	Type  string         `json:"type"`
	ID    string         `json:"id"`
	Name  string         `json:"name"`
	Input map[string]any `json:"input"`
}

func use(id, name string, input map[string]any) call { return call{"tool_use", id, name, input} }

// result is a tool result as the API receives it.
type result struct {
	ID      string `json:"tool_use_id"`
	IsError bool   `json:"is_error"`
	Content []struct {
		Type, Text string
		Source     struct {
			MediaType string `json:"media_type"`
			Data      []byte
		}
	}
}

// model is a server of the Messages API whose turns are written beforehand. After the last turn it
// answers with text.
type model struct {
	*httptest.Server

	turns   [][]call
	mu      sync.Mutex
	asked   int
	results map[string]result
	// tools are the tools of the requests, with the inputs that they require.
	tools map[string][]string
}

func newModel(t *testing.T, turns ...[]call) *model {
	m := &model{turns: turns, results: map[string]result{}, tools: map[string][]string{}}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Messages []struct {
			Content []result
		}
		Tools []struct {
			Name   string
			Schema struct {
				Required []string
			} `json:"input_schema"`
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.URL.Path != "/v1/messages" {
		http.Error(w, "not a request for a message", http.StatusBadRequest)
		return
	}
	for _, tool := range body.Tools {
		m.tools[tool.Name] = tool.Schema.Required
	}
	for _, answered := range body.Messages[len(body.Messages)-1].Content {
		if answered.ID != "" {
			m.results[answered.ID] = answered
		}
	}
	content, reason := any([]map[string]string{{"type": "text", "text": "done"}}), "end_turn"
	if m.asked < len(m.turns) {
		content, reason = m.turns[m.asked], "tool_use"
	}
	m.asked++
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": content, "stop_reason": reason,
		"usage": map[string]int{"input_tokens": 1, "output_tokens": 1},
	})
}

func (m *model) run(ctx context.Context, w *workspace.Workspace) (*sdk.BetaMessage, error) {
	client := sdk.NewClient(option.WithBaseURL(m.URL), option.WithAPIKey("none"), option.WithMaxRetries(0))
	return anthropic.Run(ctx, &client, w, sdk.BetaToolRunnerParams{MaxIterations: 10, BetaMessageNewParams: sdk.BetaMessageNewParams{
		Model: "scripted", MaxTokens: 1000, Messages: []sdk.BetaMessageParam{sdk.NewBetaUserMessage(sdk.NewBetaTextBlock("go"))},
	}})
}

// TestTools checks the results that a model receives: those of calls that succeed, and those that
// it can correct.
func TestTools(t *testing.T) {
	t.Parallel()
	w := workspace.New(sandboxtest.New(t).Create(t))
	w.MaxBytes, w.Timeout = 2000, 20*time.Second
	for _, test := range []struct {
		id, name string
		input    map[string]any
		want     []string
		isError  bool
	}{
		{"write", "write_file", map[string]any{"path": "a/b.txt", "content": "text\n"}, []string{"wrote 5 bytes to a/b.txt"}, false},
		{"read", "read_file", map[string]any{"path": "/home/user/a/b.txt"}, []string{"text\n"}, false},
		{"list", "list_files", map[string]any{"path": "a"}, []string{"file 5 b.txt\n"}, false},
		{"value", "run_code", map[string]any{"code": "x = 6; print('said'); x * 7"}, []string{"stdout:\nsaid\n", "values:\n42\n"}, false},
		{"kept", "run_code", map[string]any{"code": "x"}, []string{"values:\n6\n"}, false},
		{"silent", "run_code", map[string]any{"code": "y = 1"}, []string{"(no output)"}, false},
		{"raised", "run_code", map[string]any{"code": "print('before'); 1 / 0"}, []string{"stdout:\nbefore\n", "exception:\n", "ZeroDivisionError: division by zero"}, false},
		{"huge", "run_code", map[string]any{"code": "print('o' * 10**6); 'v' * 10**6"}, []string{"values:\nvvv", "[cut after 2000 bytes]"}, false},
		{"failed", "run_command", map[string]any{"command": "pwd; echo no >&2; exit 3"}, []string{"stdout:\n/home/user\n", "stderr:\nno\n", "exit status 3"}, false},
		{"flood", "run_command", map[string]any{"command": "head -c 1000000 /dev/zero | tr '\\0' x; echo end"}, []string{"xend\n", "exit status 0"}, false},
		{"more", "read_file", map[string]any{"path": "big"}, []string{"zz", "[more than 2000 bytes: read the rest with a command, such as tail -c +2001]"}, false},
		{"binary", "read_file", map[string]any{"path": "raw"}, []string{"raw is not text"}, true},
		{"missing", "read_file", map[string]any{"path": "none"}, []string{"list the directory to see the names"}, true},
		{"outside", "write_file", map[string]any{"path": "../../etc/passwd", "content": ""}, []string{`"../../etc/passwd" is outside of /home/user`}, true},
		{"wrong", "run_code", map[string]any{"code": 7}, []string{"the input of run_code is not as its schema says"}, true},
	} {
		if test.id == "more" {
			must.Do(t, w.Sandbox.Files.WriteText(t.Context(), "big", strings.Repeat("z", 5000), nil))
			must.Do(t, w.Sandbox.Files.WriteText(t.Context(), "raw", "\x00\xff", nil))
		}
		m := newModel(t, []call{use(test.id, test.name, test.input)})
		message, err := m.run(t.Context(), w)
		must.Do(t, err)
		got := m.results[test.id]
		if len(got.Content) != 1 || got.IsError != test.isError || message.StopReason != "end_turn" {
			t.Fatalf("%s: %+v, is_error %t, want %t", test.id, got.Content, got.IsError, test.isError)
		}
		for _, want := range test.want {
			if text := got.Content[0].Text; !strings.Contains(text, want) || len(text) > 5000 {
				t.Errorf("%s: no %q, or more than 5000 bytes, in %d bytes:\n%.300s", test.id, want, len(text), text)
			}
		}
	}
}

// TestPictures checks that the model receives pictures, but not too many, and no bytes that are
// no picture.
func TestPictures(t *testing.T) {
	t.Parallel()
	w := workspace.New(sandboxtest.New(t).Create(t))
	m := newModel(t, []call{use("1", "run_code", map[string]any{"code": `
from IPython.display import display
import base64
png = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(100)).decode()
for data in [base64.b64encode(b"no picture").decode()] + [png] * 6:
    display({"image/png": data, "text/plain": "a picture"}, raw=True)`})})
	_, err := m.run(t.Context(), w)
	must.Do(t, err)
	want := map[string][]string{"run_code": {"code"}, "run_command": {"command"}, "read_file": {"path"}, "write_file": {"path", "content"}, "list_files": {"path"}}
	if !maps.EqualFunc(m.tools, want, slices.Equal) {
		t.Errorf("the model was offered %v, want %v", m.tools, want)
	}
	content := m.results["1"].Content
	if len(content) != 5 || !strings.Contains(content[0].Text, "[2 more pictures are not shown") {
		t.Fatalf("got %d blocks: %+v", len(content), content)
	}
	for _, picture := range content[1:] {
		if picture.Source.MediaType != "image/png" || !strings.HasPrefix(string(picture.Source.Data), "\x89PNG") {
			t.Errorf("got %+v", picture)
		}
	}
}

// TestEnds checks that a run ends with the sandbox and with its context, and that a call that takes
// too long does not end it.
func TestEnds(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t)
	w := workspace.New(cloud.Create(t))
	sandboxtest.RunCode(t, w.Sandbox, "1", nil) // Python takes its time to start
	w.Timeout = 3 * time.Second
	m := newModel(t, []call{
		use("1", "run_command", map[string]any{"command": "echo begun; sleep 1000"}), use("2", "run_code", map[string]any{"code": "print('begun'); import time; time.sleep(1000)"}),
	})
	_, err := m.run(t.Context(), w)
	must.Do(t, err)
	for _, id := range []string{"1", "2"} {
		got := m.results[id]
		if len(got.Content) != 1 || !got.IsError || !strings.Contains(got.Content[0].Text, "took more than 3s and was ended: do less in one call") || !strings.Contains(got.Content[0].Text, "stdout:\nbegun\n") {
			t.Errorf("%s: %+v", id, got)
		}
	}

	must.Do(t, w.Sandbox.Kill(t.Context()))
	many := make([][]call, 20)
	for i := range many {
		many[i] = []call{use("1", "list_files", map[string]any{"path": "."})}
	}
	m = newModel(t, many...)
	if _, err := m.run(t.Context(), w); !errors.Is(err, sandbox.ErrGone) || m.asked != 2 {
		t.Errorf("the sandbox has ended: got %v after %d requests", err, m.asked)
	}

	w = workspace.New(cloud.Create(t))
	ctx, cancel := context.WithCancel(t.Context())
	m = newModel(t, []call{use("1", "run_code", map[string]any{"code": "open('begun', 'w').close(); import time; time.sleep(1000)"})})
	go func() {
		defer cancel()
		for there := false; !there; {
			if there, err = w.Exists(ctx, "begun"); err != nil {
				return
			}
		}
	}()
	if _, err := m.run(ctx, w); !errors.Is(err, context.Canceled) || m.asked != 1 {
		t.Errorf("the context has ended: got %v after %d requests", err, m.asked)
	}
}
