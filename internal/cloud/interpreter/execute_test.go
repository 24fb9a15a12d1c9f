//go:build linux

package interpreter

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

func TestEnvOfOneCall(t *testing.T) {
	t.Parallel()
	p := serve(t, "")
	code := "import os; os.environ.get('CALL', 'unset') + os.environ['GLOBAL']"
	for _, test := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"CALL": "it's\n", "GLOBAL": "mine"}, `it's\nmine`},
		{nil, "unsetglobal"},
	} {
		if got := merged(p.run(t, map[string]any{"code": code, "env_vars": test.env}), "result"); got != test.want {
			t.Errorf("%v: %q, want %q", test.env, got, test.want)
		}
	}
}

func TestResultFields(t *testing.T) {
	t.Parallel()
	p := serve(t, "")
	lines := p.run(t, map[string]any{"code": "display({'text/latex': 'x', 'a/b': 1}, raw=True)\n[1, {'k': float('nan')}]"})
	if len(lines) != 3 {
		t.Fatalf("got %+v, want 3 lines", lines)
	}
	if display := lines[1]; display.IsMain || display.Text != "" || display.Extra["a/b"] != 1.0 {
		t.Errorf(`got %+v, want no main result, no text and 1 as a/b`, display)
	}
	some := newResultLine(map[string]json.RawMessage{"text/html": []byte("null"), "image/png": []byte(`"aGk="`), "text/plain": []byte(`"'<é>'"`), "a/b": []byte("null")}, false)
	if data, err := asciiLine(some); err != nil || string(data) != `{"type":"result","text":"<\u00e9>","png":"aGk=","extra":{"a/b":null},"is_main_result":false}`+"\n" {
		t.Errorf("got %s, %v, want %s and no error", data, err, `{"type":"result","text":"<\u00e9>","png":"aGk=","extra":{"a/b":null},"is_main_result":false}`+"\n")
	}
	if data, err := json.Marshal(lines[2].JSON); err != nil || string(data) != `[1,{"k":null}]` {
		t.Errorf("got %s, %v, want %s and no error", data, err, `[1,{"k":null}]`)
	}
	if !lines[2].IsMain || lines[2].Extra == nil {
		t.Errorf("got %+v, want a main result with other forms", lines[2])
	}
}

func TestContexts(t *testing.T) {
	t.Parallel()
	p := serve(t, "")
	first := p.defaultID(t)
	status, body := p.call(t, t.Context(), http.MethodPost, p.interpreter+"/contexts", `{"language":null,"cwd":"/"}`)
	var made contextModel
	if err := json.Unmarshal([]byte(body), &made); status != 200 || err != nil {
		t.Fatalf("got %d %s, %v, want 200 and a context", status, body, err)
	}
	if made.Language != "python" || made.CWD != "/" {
		t.Fatalf("made %+v, want the language %q in %q", made, "python", "/")
	}
	if got := merged(p.run(t, map[string]any{"code": "x = 1; import os; os.getcwd()", "context_id": made.ID}), "result"); got != "/" {
		t.Errorf("cwd %q, want %q", got, "/")
	}
	must.Do(t, os.Mkdir(filepath.Join(p.options.Dir, "below"), 0o755))
	for cwd, want := range map[string]string{"below": filepath.Join(p.options.Dir, "below"), "/nowhere": p.options.Dir} {
		k, err := p.newContext("python", cwd, false)
		must.Do(t, err)
		if got := merged(p.run(t, map[string]any{"code": "import os; print(os.getcwd(), end='')", "context_id": k.id}), "stdout"); got != want || k.contextModel().CWD != cwd {
			t.Errorf("%s: runs in %q", cwd, got)
		}
		p.removeKernel(k)
	}
	if got := merged(p.run(t, map[string]any{"code": "x"}), "error"); got != "NameError" {
		t.Errorf("contexts share variables: %q, want %q", got, "NameError")
	}
	if status, body := p.call(t, t.Context(), http.MethodPost, p.interpreter+"/contexts/"+made.ID+"/restart", ""); status != 200 || body != "null" {
		t.Errorf("restart: %d %q, want status 200 and body %q", status, body, "null")
	}
	if got := merged(p.run(t, map[string]any{"code": "x", "context_id": made.ID}), "error"); got != "NameError" {
		t.Errorf("after restart: %q, want %q", got, "NameError")
	}
	var list []contextModel
	_, body = p.call(t, t.Context(), http.MethodGet, p.interpreter+"/contexts", "")
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatalf("got %s: %v", body, err)
	}
	var ids []string
	for _, c := range list {
		ids = append(ids, c.ID)
	}
	if diff := cmp.Diff([]string{first, made.ID}, ids); diff != "" {
		t.Errorf("contexts (-want +got):\n%s", diff)
	}
	if status, body := p.call(t, t.Context(), http.MethodDelete, p.interpreter+"/contexts/"+made.ID, ""); status != 200 || body != "null" {
		t.Errorf("delete: %d %q, want status 200 and body %q", status, body, "null")
	}
	for len(p.listKernels()) < maxKernels {
		_, err := p.addKernel(&runningKernel{isContext: true, language: "python"})
		must.Do(t, err)
	}
	status, body = p.call(t, t.Context(), http.MethodPost, p.interpreter+"/contexts", `{}`)
	if status != 500 || !strings.Contains(body, "Failed to create context") || !strings.Contains(body, "the limit of a sandbox is 64") {
		t.Errorf("one too many: %d %s, want status 500, %q in it and %q in it", status, body, "Failed to create context", "the limit of a sandbox is 64")
	}
}

// The default context may be removed like any other: the next code makes a new one.
func TestDefaultContextIsReplaced(t *testing.T) {
	t.Parallel()
	p := serve(t, "")
	first := p.defaultID(t)
	if got := merged(p.run(t, map[string]any{"code": "x = 1; x", "context_id": "default"}), "result"); got != "1" {
		t.Errorf("the alias: %q, want %q", got, "1")
	}
	if status, body := p.call(t, t.Context(), http.MethodDelete, p.interpreter+"/contexts/"+first, ""); status != 200 {
		t.Fatalf("got %d %s, want 200", status, body)
	}
	for _, code := range []string{"'x' in globals()", "y = 1", "'y' not in globals()"} {
		if got := merged(p.run(t, map[string]any{"code": code}), "result"); got != "" && got != "False" {
			t.Errorf("%s: %q", code, got)
		}
	}
	if second := p.defaultID(t); second == first {
		t.Error("the removed context is still listed")
	}
}

// Browsers of any origin may use this port.
func TestCrossOrigin(t *testing.T) {
	t.Parallel()
	p := serve(t, "")
	preflight, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, p.interpreter+"/execute", nil)
	must.Do(t, err)
	for name, value := range map[string]string{
		"Origin": "http://page.example", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-access-token,content-type",
	} {
		preflight.Header.Set(name, value)
	}
	response, err := p.client.Do(preflight)
	must.Do(t, err)
	response.Body.Close()
	if response.StatusCode != 200 {
		t.Errorf("preflight: %s, want 200", response.Status)
	}
	h := response.Header
	for name, want := range map[string]string{"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Headers": "x-access-token,content-type"} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := h.Get("Access-Control-Allow-Methods"); !strings.Contains(got, "POST") {
		t.Errorf("methods: %q, want %q in it", got, "POST")
	}
	response = p.open(t, t.Context(), http.MethodGet, p.interpreter+"/health", "", "Origin", "http://page.example")
	response.Body.Close()
	if got := response.Header.Get("Access-Control-Allow-Origin"); got != "*" {
		t.Errorf("got %q, want %q", got, "*")
	}
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	p := serve(t, "")
	for _, test := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/health", "", 200, `"OK"`},
		{"POST", "/execute", `{"code":"1","context_id":"a","language":"python"}`, 400, "Only one of context_id or language can be provided"},
		{"POST", "/execute", `{"code":"1","context_id":"a"}`, 404, "Context a not found"},
		{"POST", "/execute", `{}`, 422, `"loc":["body","code"]`},
		{"POST", "/execute", `{"code":1}`, 422, `"loc":["body","code"]`},
		{"POST", "/execute", `{`, 422, "json_invalid"},
		{"POST", "/execute", ``, 422, "missing"},
		{"POST", "/execute", `{"code":"1","language":"js"}`, 500, `Failed to create context: {"message": "The 'javascript' kernel is not available. Please pick another suitable kernel instead, or install that kernel. The local cloud has it, and TypeScript, after ` + "`e2bctl local setup --full`" + ` and a new start.", "short_message": "javascript not found"}`},
		{"POST", "/contexts", `{"language":"java"}`, 500, "The local cloud has it if IJava is installed on its machine, after `e2bctl local setup --full` and a new start."},
		{"POST", "/contexts", `{"language":"foo"}`, 500, `The 'foo' kernel is not available`},
		{"DELETE", "/contexts/x", "", 404, "Context x not found"},
		{"POST", "/contexts/x/restart", "", 404, "Context x not found"},
	} {
		status, body := p.call(t, t.Context(), test.method, p.interpreter+test.path, test.body)
		if status != test.status || !strings.Contains(body, test.want) || strings.HasSuffix(body, "\n") {
			t.Errorf("%s %s %s: got %d %q, want status %d and %q in it, without a newline at its end", test.method, test.path, test.body, status, body, test.status, test.want)
		}
	}
}

// A client that goes away interrupts its code, and only its own.
func TestDisconnectInterrupts(t *testing.T) {
	t.Parallel()
	p := serve(t, "")
	ctx, leave := context.WithCancel(t.Context())
	response := p.open(t, ctx, http.MethodPost, p.interpreter+"/execute", `{"code":"x = 5\nimport time\nprint('here')\ntime.sleep(3000)"}`)
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() && !strings.Contains(lines.Text(), "here") {
	}
	waiting, leaveToo := context.WithCancel(t.Context())
	second := p.open(t, waiting, http.MethodPost, p.interpreter+"/execute", `{"code":"x = 6"}`)
	defer second.Body.Close()
	leaveToo()
	leave()
	if got := merged(p.run(t, map[string]any{"code": "x"}), "result"); got != "5" {
		t.Errorf("x is %q, want %q: the interrupted context must keep its state, and a request that was given up must not run", got, "5")
	}
}

func TestRestartEndsAnExecution(t *testing.T) {
	t.Parallel()
	p := serve(t, "")
	response := p.open(t, t.Context(), http.MethodPost, p.interpreter+"/execute", `{"code":"import time\nprint('here')\ntime.sleep(3000)"}`)
	defer response.Body.Close()
	var text strings.Builder
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		text.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "here") {
			p.call(t, t.Context(), http.MethodPost, p.interpreter+"/contexts/default/restart", "")
		}
	}
	first, second := strings.Index(text.String(), "WebSocketError"), strings.Index(text.String(), "UnexpectedEndOfExecution")
	if first < 0 || second < first || !strings.HasSuffix(text.String(), "{\"type\": \"end_of_execution\"}\n") {
		t.Errorf("got %s, want two signs of life and %q at its end", text.String(), "{\"type\": \"end_of_execution\"}\n")
	}
}

// TestInterruptOverREST checks that Jupyter's call interrupts the code that runs.
func TestInterruptOverREST(t *testing.T) {
	t.Parallel()
	p := serve(t, "")
	id := p.defaultID(t)
	next := p.ask(t, "import time\nprint('here')\ntime.sleep(3000)")
	for l, ok := next(); ok; l, ok = next() {
		switch {
		case l.Text == "here\n":
			if status, body := p.call(t, t.Context(), http.MethodPost, p.jupyter+"/api/kernels/"+id+"/interrupt", ""); status != http.StatusNoContent {
				t.Errorf("got %d %s, want 204", status, body)
			}
		case l.Type == "error" && l.Name == "KeyboardInterrupt":
			return
		}
	}
	t.Error("the code was not interrupted")
}

// gate is code that runs until the file "open" exists.
const gate = "while not __import__('os').path.exists('open'): pass"

func (p *ports) openGate(t testing.TB) {
	t.Helper()
	must.Do(t, os.WriteFile(filepath.Join(p.options.Dir, "open"), nil, 0o600))
}

// ask posts code and returns a function that returns the lines as they arrive.
func (p *ports) ask(t testing.TB, code string) func() (line, bool) {
	t.Helper()
	body, err := json.Marshal(map[string]string{"code": code})
	must.Do(t, err)
	response := p.open(t, t.Context(), http.MethodPost, p.interpreter+"/execute", string(body))
	t.Cleanup(func() { response.Body.Close() })
	decoder := json.NewDecoder(response.Body)
	return func() (line, bool) {
		var l line
		err := decoder.Decode(&l)
		return l, err == nil
	}
}

// Code that runs without output shows that it is alive; a request that waits for it
// does not.
func TestKeepalive(t *testing.T) {
	t.Parallel()
	p := serve(t, "")
	p.keepalive = 20 * time.Millisecond
	running, waiting := p.ask(t, gate), p.ask(t, "1")
	var early atomic.Int32
	started := make(chan bool, 1)
	go func() {
		for l, ok := waiting(); ok; l, ok = waiting() {
			if l.Type == "number_of_executions" {
				started <- true
				return
			}
			if l.Type == "keepalive" {
				early.Add(1)
			}
		}
		started <- false
	}()
	for n := 0; n <= 10; {
		if l, ok := running(); !ok {
			t.Fatal("the running code ended")
		} else if l.Type == "keepalive" {
			n++
		}
	}
	if n := early.Load(); n > 0 { // before its turn, after which there may be some
		t.Errorf("got %d signs of life while it waited, want none", n)
	}
	p.openGate(t)
	if !patience.Receive(t, "the waiting code", started) {
		t.Error("the waiting code did not run")
	}
}

// Requests run in the order in which they came.
func TestRequestsRunInOrder(t *testing.T) {
	t.Parallel()
	p := serve(t, "")
	first := p.ask(t, "order = []\n"+gate)
	first()
	var rest []func() (line, bool)
	for i := range 12 {
		next := p.ask(t, fmt.Sprintf("order.append(%d)", i))
		if l, ok := next(); !ok || l.Type != "queued" {
			t.Fatalf("request %d: %+v, want %q", i, l, "queued")
		}
		rest = append(rest, next)
	}
	p.openGate(t)
	if got, want := merged(p.run(t, map[string]any{"code": "order"}), "result"), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]"; got != want {
		t.Errorf("ran as %s, want %s", got, want)
	}
	for i, next := range rest {
		last := line{}
		for l, ok := next(); ok; l, ok = next() {
			last = l
		}
		if last.Type != "end_of_execution" {
			t.Errorf("request %d ended with %+v, want %q", i, last, "end_of_execution")
		}
	}
}

// Every raised value becomes one line of the type error, with a traceback without
// colours.
func TestErrorLines(t *testing.T) {
	t.Parallel()
	p := serve(t, "")
	for code, want := range map[string]string{
		"1/0":                     "ZeroDivisionError",
		"x = )":                   "SyntaxError",
		"x = (":                   "", // IPython names it _IncompleteInputError with Python 3.13
		"  x = 1\n y = 2":         "IndentationError",
		"import sys; sys.exit(3)": "SystemExit",
		"raise KeyboardInterrupt": "KeyboardInterrupt",
		"class E(BaseException): pass\nraise E('\x1b[31mred')":                                                                               "E",
		"try: raise ExceptionGroup('g', [ValueError(1), ExceptionGroup('h', [KeyError(2)])])\nexcept NameError: raise BaseException('3.10')": "",
		"async def f(): raise OSError(1)\nawait f()":                                                                                         "OSError",
		"%no_such_magic": "UsageError",
	} {
		errors := 0
		for _, l := range p.run(t, map[string]any{"code": code}) {
			if l.Type != "error" {
				continue
			}
			errors++
			plain := strings.ReplaceAll(l.Traceback, "\x1b[31mred", "")
			if l.Name == "" || want != "" && l.Name != want {
				t.Errorf("%q: got the error %q, want %q", code, l.Name, want)
			}
			if strings.Contains(plain, "\x1b") {
				t.Errorf("%q: the traceback has colours: %q", code, l.Traceback)
			}
		}
		if errors != 1 {
			t.Errorf("%q: %d errors, want 1", code, errors)
		}
	}
}

// Headers arrive while the code still runs, and output as it is produced.
func TestOutputStreams(t *testing.T) {
	t.Parallel()
	p := serve(t, "")
	next := p.ask(t, "print('first')\n"+gate+"\nprint('second')")
	for l, ok := next(); l.Text != "first\n"; l, ok = next() {
		if !ok {
			t.Fatal("it ended")
		}
	}
	p.openGate(t)
	if l, _ := next(); l.Text != "second\n" {
		t.Errorf("got %+v, want text %q", l, "second\n")
	}
}

func TestUnquote(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{`'a'`: `a`, `"a"`: `a`, `'a"`: `'a"`, `'`: `'`, ``: ``, `''`: ``, `'a' + 'b'`: `a' + 'b`} {
		if got := unquote(in); got != want {
			t.Errorf("unquote(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzASCIILine(f *testing.F) {
	f.Add("é\u2028\U0001f600\xff<&>")
	f.Fuzz(func(t *testing.T, text string) {
		line, err := asciiLine(text)
		must.Do(t, err)
		var back string
		if err := json.Unmarshal(line, &back); err != nil || back != strings.ToValidUTF8(text, "\ufffd") && strings.ToValidUTF8(text, "") == text {
			t.Errorf("%q became %q: %v", text, back, err)
		}
		if strings.Count(string(line), "\n") != 1 || strings.ContainsFunc(string(line), func(r rune) bool { return r >= 0x80 }) {
			t.Errorf("%q is not one line of ASCII", line)
		}
	})
}
