package state_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/pyshim"
)

// loop answers each request with one line of JSON: it evaluates an expression
// over the codec and x, the value of a document.
const loop = `
import sys, json, base64, types
codec = types.ModuleType("codec")
exec(compile(json.loads(sys.stdin.readline()), "codec.py", "exec"), codec.__dict__)
for line in sys.stdin:
    q = json.loads(line)
    scope = {"codec": codec}
    try:
        exec("import datetime, math, decimal, collections, enum, re, array\ntry:\n  from zoneinfo import ZoneInfo\nexcept ImportError: pass\n" + q.get("setup", ""), scope)
        if q["document"]:
            scope["x"] = codec.decode(base64.b64decode(q["document"]))
        v = eval(q["expression"], scope)
        a = {"document": base64.b64encode(codec.encode(v)).decode()}
    except Exception as e:
        a = {"error": type(e).__name__ + ": " + str(e)[:500]}
    print(json.dumps(a), flush=True)
`

// python is a real Python that has loaded the codec.
type python struct {
	mu  sync.Mutex
	in  io.Writer
	out *bufio.Reader
}

func startPython(tb testing.TB) *python {
	tb.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		tb.Skip("no python3 on this machine: the codec is not checked against Python")
	}
	cmd := exec.Command(path, "-c", loop)
	stdin, err := cmd.StdinPipe()
	must.Do(tb, err)
	stdout, err := cmd.StdoutPipe()
	must.Do(tb, err)
	var stderr lockedTail
	cmd.Stderr = &stderr
	must.Do(tb, cmd.Start())
	tb.Cleanup(func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			tb.Errorf("python: %v\n%s", err, stderr.data)
		}
	})
	p := &python{in: stdin, out: bufio.NewReader(stdout)}
	p.send(tb, pyshim.Codec)
	return p
}

type lockedTail struct{ data []byte }

func (t *lockedTail) Write(p []byte) (int, error) {
	t.data = append(t.data, p[:min(len(p), max(0, 1<<16-len(t.data)))]...)
	return len(p), nil
}

func (p *python) send(tb testing.TB, v any) {
	tb.Helper()
	line, err := json.Marshal(v)
	must.Do(tb, err)
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		tb.Fatal(err)
	}
}

type question struct {
	Setup      string `json:"setup,omitempty"`
	Document   string `json:"document"`
	Expression string `json:"expression"`
}

// eval returns the document of an expression in which x is the value of doc.
func (p *python) eval(tb testing.TB, doc []byte, expression string) ([]byte, error) {
	return p.ask(tb, question{Document: base64.StdEncoding.EncodeToString(doc), Expression: expression})
}

func (p *python) ask(tb testing.TB, q question) ([]byte, error) {
	tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.send(tb, q)
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		tb.Fatalf("python is gone: %v", err)
	}
	var answer struct{ Document, Error string }
	must.Do(tb, json.Unmarshal(line, &answer))
	if answer.Error != "" {
		return nil, fmt.Errorf("python: %s", answer.Error)
	}
	out, err := base64.StdEncoding.DecodeString(answer.Document)
	must.Do(tb, err)
	return out, nil
}

// asked is eval with a setup.
func (p *python) asked(tb testing.TB, setup string, doc []byte, expression string) ([]byte, error) {
	return p.ask(tb, question{Setup: setup, Document: base64.StdEncoding.EncodeToString(doc), Expression: expression})
}
