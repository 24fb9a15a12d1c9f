//go:build linux

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/sandboxtest"
)

// For every failure of a tool the code gets an exception, and the next call
// works.
func TestToolFaults(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	type nothing = struct{}
	tools := []agent.Tool{
		add,
		agent.MustTool("panics", "", func(context.Context, nothing) (int, error) { panic("what it said") }),
		agent.MustTool("hangs", "", func(ctx context.Context, _ nothing) (int, error) { <-ctx.Done(); return 0, ctx.Err() },
			agent.WithToolLimits(agent.ToolLimits{Timeout: 10 * time.Millisecond})),
		agent.MustTool("odd", "", func(context.Context, nothing) (any, error) { return make(chan int), nil }),
		agent.MustTool("cycle", "", func(context.Context, nothing) (any, error) { m := map[string]any{}; m["m"] = m; return m, nil }),
		agent.MustTool("large", "", func(context.Context, nothing) ([]byte, error) { return make([]byte, 65<<20), nil }),
		agent.MustTool("echo", "", func(_ context.Context, in struct{ X any }) (any, error) { return in.X, nil }),
		agent.MustTool("fails", "", func(context.Context, nothing) (int, error) { return 0, errors.New("no luck") }),
	}
	r := begin(t, sb, &agent.Params{Tools: tools})
	for code, want := range map[string]string{
		"panics()":                              "ToolError: panics: it panicked",
		"hangs()":                               "ToolError: hangs: it took longer than 10ms",
		"odd()":                                 "ToolError: odd: the tool's result has no Python form",
		"cycle()":                               "ToolError: cycle: the tool's result has no Python form",
		"large()":                               "ToolError: the result of large has",
		"fails()":                               "ToolError: fails: no luck",
		"add(1)":                                "TypeError: add: missing a required argument: 'B'",
		"add(1, 2, 3)":                          "TypeError: add: too many positional arguments",
		"add(1, 'x')":                           "TypeError: ",
		"add(1, b=2)":                           "TypeError: add: ",
		"echo(lambda: 0)":                       "TypeError: ",
		"echo(echo)":                            "TypeError: ",
		"subtract(1, 2)":                        "NameError: name 'subtract' is not defined",
		"call('subtract', {'A': 1, 'B': 2})":    "ToolError: the run has no tool \"subtract\"",
		"call('add', {'A': 1, 'B': 2, 'C': 3})": "TypeError: add: wrong arguments: there is no parameter \"C\"",
		"call('add', [1, 2])":                   "TypeError: ",
		"echo({'$': 'opaque'})":                 "{'$': 'opaque'}",
		"len(echo('ä' * (1 << 20)))":            "1048576",
	} {
		step := observe(t, r, "call = __import__('sys').modules['_e2bctl_tools']._bridge.call\ntry:\n    r = "+code+"\nexcept Exception as e:\n    r = '%s: %s' % (type(e).__name__, e)\nprint(r)")
		if !strings.HasPrefix(step.Stdout, want) || step.Error != nil || strings.Contains(step.Stdout, "what it said") {
			t.Errorf("%s: %.300s, want %s; %v", code, step.Stdout, want, step.Error)
		}
	}
	if step := observe(t, r, "add(40, 2)"); step.Text() != "42" {
		t.Errorf("afterwards: %+v, want text %q", step, "42")
	}
}

func TestManyToolCalls(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	r := begin(t, sb, &agent.Params{Tools: []agent.Tool{add}})
	step := observe(t, r, fmt.Sprintf("n = 0\nfor i in range(%d):\n    n = add(n, 1)\nn", manyCalls))
	if step.Text() != fmt.Sprint(manyCalls) {
		t.Errorf("got %+v, want text %q", step, fmt.Sprint(manyCalls))
	}
	if m := r.Metrics(); m.ToolCalls != manyCalls || m.ToolErrors != 0 {
		t.Errorf("got %+v, want %d tool calls without an error", m, manyCalls)
	}
}

// A thread may call a tool after its cell has ended: it gets an error, and the
// next step has its tools.
func TestToolCalledBetweenSteps(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	r := begin(t, sb, &agent.Params{Tools: []agent.Tool{add}})
	observe(t, r, `import os, threading, time
def late():
    while not os.path.exists('/tmp/go'):
        time.sleep(0.01)
    try:
        add(1, 1)
    except BaseException as e:
        open('/tmp/said', 'w').write('%s %s' % (type(e).__name__, e))
thread = threading.Thread(target=late)
thread.start()`)
	sandboxtest.Run(t, sb, "touch /tmp/go")
	patience.Until(t, "the thread is told", func() bool {
		said, err := sb.Files.ReadText(t.Context(), "/tmp/said", nil)
		return err == nil && strings.HasPrefix(said, "ToolError add: no step of the run is under way")
	})
	if step := observe(t, r, "thread.join()\nadd(40, 2)"); step.Text() != "42" {
		t.Errorf("got %+v, want text %q", step, "42")
	}
}

// A thread's tool call that is under way when its step ends raises an exception,
// and so does one that waits behind it. The next step has its tools.
func TestToolCallThatOutlivesItsStep(t *testing.T) {
	t.Parallel()
	sb := shared(t).Create(t)
	type nothing = struct{}
	var made atomic.Int32
	slow := agent.MustTool("slow", "", func(ctx context.Context, _ nothing) (int, error) {
		made.Add(1)
		<-ctx.Done()
		return 0, ctx.Err()
	})
	begun := agent.MustTool("begun", "", func(context.Context, nothing) (bool, error) { return made.Load() == 2, nil })
	r := begin(t, sb, &agent.Params{Tools: []agent.Tool{add, slow, begun}})
	observe(t, r, `import threading
said = []
def call():
    try:
        slow()
    except Exception as e:
        said.append(f'{type(e).__name__} {e}')
threads = [threading.Thread(target=call) for _ in range(2)]
for thread in threads:
    thread.start()
while not begun():
    pass`)
	step, err := r.Exec(patience.Context(t), "for thread in threads:\n    thread.join()\nprint(*said, sep='\\n')\nadd(40, 2)")
	if err != nil || step.Text() != "42" {
		t.Errorf("got %+v, %v, want text %q and no error", step, err, "42")
	}
	if n := strings.Count(step.Stdout, "ToolError "); n != 2 || made.Load() != 2 {
		t.Errorf("%d of %d calls failed, want 2 of 2: %q", n, made.Load(), step.Stdout)
	}
}

// toolServer speaks JSON-RPC over a connection, like servers of the Model Context
// Protocol.
func toolServer(conn io.ReadWriteCloser) {
	defer conn.Close()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		var call struct {
			ID     int
			Method string
			Params struct {
				Name      string
				Arguments struct{ Text string }
			}
		}
		if json.Unmarshal(lines.Bytes(), &call) != nil {
			return
		}
		fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":%q}]}}`+"\n", call.ID, strings.ToUpper(call.Params.Arguments.Text))
	}
}

// remoteTools is the client's end: it has a live connection and a secret.
type remoteTools struct {
	conn   io.ReadWriteCloser
	lines  *bufio.Scanner
	secret string
	id     int
}

func (c *remoteTools) tool(name string) agent.Tool {
	type in struct {
		Text string `py:"text"`
	}
	return agent.MustTool(name, "", func(_ context.Context, in in) (string, error) {
		if c.secret == "" {
			return "", errors.New("no credential")
		}
		c.id++
		if _, err := fmt.Fprintf(c.conn, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"text":%q}}}`+"\n", c.id, name, in.Text); err != nil {
			return "", err
		}
		if !c.lines.Scan() {
			return "", io.ErrUnexpectedEOF
		}
		var reply struct {
			Result struct{ Content []struct{ Text string } }
		}
		if err := json.Unmarshal(c.lines.Bytes(), &reply); err != nil || len(reply.Result.Content) != 1 {
			return "", fmt.Errorf("%s: %w", c.lines.Bytes(), err)
		}
		return reply.Result.Content[0].Text, nil
	}, agent.WithToolLimits(agent.ToolLimits{MaxConcurrency: 1}))
}

// A tool with a live connection, such as those of a tool server, and one made
// with a secret are called like any other. The connection and the secret do not
// get into the sandbox.
func TestToolsOfAServer(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	served := make(chan struct{})
	go func() { defer close(served); toolServer(there) }()
	defer func() { here.Close(); <-served }()
	const secret = "constructor-secret-0123456789"
	c := &remoteTools{conn: here, lines: bufio.NewScanner(here), secret: secret}
	sb := shared(t).Create(t)
	r := begin(t, sb, &agent.Params{Tools: []agent.Tool{c.tool("shout"), c.tool("cry")}})
	if step := observe(t, r, "shout('a') + cry(text='b')"); step.Text() != "AB" {
		t.Errorf("got %+v, want text %q", step, "AB")
	}
	// The search finds the planted text. Thanks to the brackets it does not find
	// its own pattern.
	observe(t, r, "import os\nos.environ['PLANTED'] = kept = 'constructor-' + 'control'\nopen('/tmp/planted', 'w').write(kept)")
	for word, want := range map[string]string{"[s]ecret": "", "[c]ontrol": "/tmp/planted"} {
		if got := sandboxtest.Run(t, sb, "grep -rls 'constructor-"+word+"' /home /tmp /run /proc/[0-9]*/environ /proc/[0-9]*/cmdline || true"); got != want {
			t.Errorf("%s is in %q, want %q", word, got, want)
		}
		step := observe(t, r, "import re\nbool(re.search('constructor-"+word+"', repr([globals(), In, dict(os.environ), [vars(f) for f in (shout, cry)]])))")
		if got, want := step.Text(), map[bool]string{true: "True", false: "False"}[want != ""]; got != want {
			t.Errorf("%s is in the kernel: %s, want %s", word, got, want)
		}
	}
}
