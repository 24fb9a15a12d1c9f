package eino_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cloudwego/eino/adk"
	"github.com/cloudwego/eino/adk/filesystem"
	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/schema"

	"github.com/e2bctl/e2bctl/examples/frameworks/eino"
	"github.com/e2bctl/e2bctl/examples/frameworks/workspace"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// script is a model whose calls are written beforehand, one a turn. After the last it answers.
type script struct {
	calls []schema.FunctionCall
	asked int
	// results are the results of the calls, in order.
	results []string
}

func (s *script) Generate(_ context.Context, input []*schema.Message, _ ...model.Option) (*schema.Message, error) {
	if last := input[len(input)-1]; last.Role == schema.Tool {
		s.results = append(s.results, last.Content)
	}
	s.asked++
	if s.asked > len(s.calls) {
		return schema.AssistantMessage("done", nil), nil
	}
	return schema.AssistantMessage("", []schema.ToolCall{{ID: fmt.Sprint(s.asked), Function: s.calls[s.asked-1]}}), nil
}

func (s *script) Stream(ctx context.Context, input []*schema.Message, opts ...model.Option) (*schema.StreamReader[*schema.Message], error) {
	message, err := s.Generate(ctx, input, opts...)
	return schema.StreamReaderFromArray([]*schema.Message{message}), err
}

func (s *script) WithTools([]*schema.ToolInfo) (model.ToolCallingChatModel, error) { return s, nil }

func use(t *testing.T, tool string, input map[string]any) schema.FunctionCall {
	t.Helper()
	arguments, err := json.Marshal(input)
	must.Do(t, err)
	return schema.FunctionCall{Name: tool, Arguments: string(arguments)}
}

// run lets an agent follow the script. It returns the last message.
func run(ctx context.Context, t *testing.T, w *workspace.Workspace, s *script, streaming bool) (string, error) {
	t.Helper()
	middleware, err := eino.NewMiddleware(ctx, w)
	must.Do(t, err)
	agent, err := adk.NewChatModelAgent(ctx, &adk.ChatModelAgentConfig{
		Name: "tester", Description: "tests", Model: s, Middlewares: []adk.AgentMiddleware{middleware}, MaxIterations: 30,
	})
	must.Do(t, err)
	events := adk.NewRunner(ctx, adk.RunnerConfig{Agent: agent, EnableStreaming: streaming}).Query(ctx, "go")
	last := ""
	for {
		event, ok := events.Next()
		if !ok {
			return last, nil
		}
		if event.Err != nil {
			return last, event.Err
		}
		message, _, err := adk.GetMessage(event)
		if err != nil {
			return last, err
		}
		last = message.Content
	}
}

// TestAgent checks the results that a model receives through Eino's own agent and tools, of calls
// that succeed, and of those that it can correct.
func TestAgent(t *testing.T) {
	t.Parallel()
	for _, streaming := range []bool{false, true} {
		w := workspace.New(sandboxtest.New(t).Create(t))
		w.MaxBytes, w.Timeout = 2000, 20*time.Second
		tests := []struct {
			tool  string
			input map[string]any
			want  []string
		}{
			{"write_file", map[string]any{"file_path": "/home/user/src/a.py", "content": "one\ntwo = 'ü'\nthree\n"}, []string{"Updated file /home/user/src/a.py"}},
			{"write_file", map[string]any{"file_path": "src/a.py", "content": ""}, []string{"src/a.py is there already: edit it"}},
			{"write_file", map[string]any{"file_path": "/etc/x", "content": ""}, []string{`"/etc/x" is outside of /home/user`}},
			{"read_file", map[string]any{"file_path": "src/a.py", "offset": 1, "limit": 1}, []string{"     2\ttwo = 'ü'"}},
			{"read_file", map[string]any{"file_path": "none"}, []string{"list the directory to see the names"}},
			{"edit_file", map[string]any{"file_path": "src/a.py", "old_string": "e", "new_string": "E"}, []string{"the old text is 3 times in src/a.py"}},
			{"edit_file", map[string]any{"file_path": "src/a.py", "old_string": "four", "new_string": ""}, []string{"the old text is not in src/a.py"}},
			{"edit_file", map[string]any{"file_path": "src/a.py", "old_string": "two", "new_string": "2"}, []string{"Successfully replaced"}},
			{"ls", map[string]any{"path": "/home/user/src"}, []string{"/home/user/src/a.py"}},
			{"glob", map[string]any{"pattern": "**/*.py", "path": ""}, []string{"/home/user/src/a.py"}},
			{"glob", map[string]any{"pattern": "[", "path": ""}, []string{"is no pattern"}},
			{"grep", map[string]any{"pattern": "2 = 'ü'", "output_mode": "content"}, []string{"/home/user/src/a.py:2:2 = 'ü'\n"}},
			{"grep", map[string]any{"pattern": "nowhere", "output_mode": "count"}, []string{"0"}},
			{"grep", map[string]any{"pattern": "x", "path": "none", "output_mode": "count"}, []string{"the search ended with exit status 2", "No such file"}},
			{"execute", map[string]any{"command": "cd src; pwd; echo no >&2; exit 3"}, []string{"/home/user/src\n", "no\n", "[Command failed with exit code 3]"}},
			{"execute", map[string]any{"command": "printf x; printf 'ü%.0s' $(seq 100000); echo last"}, []string{"üüü", "[Output was truncated due to size limits]", "ülast\n"}},
			{"execute", map[string]any{"command": "python3 -c 'print(\"y\" * 10**5)' >long; true"}, []string{"[Command executed successfully with no output]"}},
			{"read_file", map[string]any{"file_path": "long"}, []string{"     1\tyyy", "[cut in line 1: read on with an offset]"}},
			{"execute", map[string]any{"command": []int{1}}, []string{"[error: "}},
		}
		s := &script{}
		for _, test := range tests {
			s.calls = append(s.calls, use(t, test.tool, test.input))
		}
		last, err := run(t.Context(), t, w, s, streaming)
		must.Do(t, err)
		if last != "done" || len(s.results) != len(tests) {
			t.Fatalf("it ended with %q after %d results, want %d", last, len(s.results), len(tests))
		}
		for i, test := range tests {
			for _, want := range test.want {
				if got := s.results[i]; !strings.Contains(got, want) || len(got) > 6000 || strings.Contains(got, "\uFFFD") {
					t.Errorf("streaming %t, %s %v: no %q, or half a character, in %d bytes:\n%.500s", streaming, test.tool, test.input, want, len(got), got)
				}
			}
		}
	}
}

// TestShell checks the shell without Eino's tools: a result in one piece, and a stream that its
// reader closes, which ends the command.
func TestShell(t *testing.T) {
	t.Parallel()
	w := workspace.New(sandboxtest.New(t).Create(t))
	w.MaxBytes = 2000
	b := &eino.Backend{Workspace: w}
	got, err := b.Execute(t.Context(), &filesystem.ExecuteRequest{Command: "seq 10000; exit 3"})
	must.Do(t, err)
	if *got.ExitCode != 3 || !got.Truncated || !strings.HasSuffix(got.Output, "10000\n") {
		t.Errorf("got %+v with exit status %d", got, *got.ExitCode)
	}
	stream, err := b.ExecuteStreaming(t.Context(), &filesystem.ExecuteRequest{Command: "while echo line; do sleep 0.01; done"})
	must.Do(t, err)
	if chunk, err := stream.Recv(); err != nil || !strings.HasPrefix(chunk.Output, "line\n") {
		t.Errorf("got %+v, %v", chunk, err)
	}
	stream.Close()
	for running := 1; running > 0; {
		processes, err := w.Sandbox.Commands.List(t.Context(), nil)
		must.Do(t, err)
		running = len(processes)
	}
}

// TestEnds checks that a run ends with the sandbox and with its context, and that a command that
// takes too long does not end it.
func TestEnds(t *testing.T) {
	t.Parallel()
	cloud := sandboxtest.New(t)
	w := workspace.New(cloud.Create(t))
	w.Timeout = 2 * time.Second
	s := &script{calls: []schema.FunctionCall{use(t, "execute", map[string]any{"command": "echo begun; sleep 1000"})}}
	_, err := run(t.Context(), t, w, s, true)
	must.Do(t, err)
	if len(s.results) != 1 || !strings.Contains(s.results[0], "begun\n") || !strings.Contains(s.results[0], "took more than 2s and was ended: do less in one call") {
		t.Errorf("a command that takes too long: %q", s.results)
	}

	must.Do(t, w.Sandbox.Kill(t.Context()))
	list := use(t, "ls", map[string]any{"path": ""})
	s = &script{calls: []schema.FunctionCall{list, list, list}}
	if _, err := run(t.Context(), t, w, s, false); !errors.Is(err, sandbox.ErrGone) || s.asked != 1 {
		t.Errorf("the sandbox has ended: got %v after %d turns", err, s.asked)
	}

	w = workspace.New(cloud.Create(t))
	ctx, cancel := context.WithCancel(t.Context())
	s = &script{calls: []schema.FunctionCall{use(t, "execute", map[string]any{"command": "touch begun; sleep 1000"})}}
	go func() {
		defer cancel()
		for there := false; !there; {
			var err error
			if there, err = w.Exists(ctx, "begun"); err != nil {
				return
			}
		}
	}()
	if _, err := run(ctx, t, w, s, false); !errors.Is(err, context.Canceled) || s.asked != 1 {
		t.Errorf("the context has ended: got %v after %d turns", err, s.asked)
	}
}
