//go:build linux

package interpreter

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/kernel/kerneltest"
	"github.com/e2bctl/e2bctl/internal/cloud/kernel/zmq"
	"github.com/e2bctl/e2bctl/internal/jupyter"
	"github.com/e2bctl/e2bctl/internal/must"
)

// withKernels installs the kernels bash, deno and python3 (ipykernel).
func withKernels(t testing.TB) func(*Options) {
	t.Helper()
	environ := kerneltest.Environ(t)
	return func(o *Options) {
		o.Environ = func() ([]string, error) { return append(environ, "GLOBAL=global"), nil }
		o.Dir = t.TempDir()
	}
}

func TestLanguages(t *testing.T) {
	t.Parallel()
	p := serve(t, "", withKernels(t))
	// Deno is the kernel for JavaScript if there is no other.
	var contexts []contextModel
	_, body := p.call(t, t.Context(), http.MethodGet, p.interpreter+"/contexts", "")
	if err := json.Unmarshal([]byte(body), &contexts); err != nil || len(contexts) != 2 || contexts[1].Language != "javascript" {
		t.Fatalf("%s: got %v, want 2 contexts, language %q and no error", body, err, "javascript")
	}
	for _, test := range []struct{ language, code, stdout, text, failed string }{
		{"javascript", "const a = await Promise.resolve(20); console.log('Hello, World!'); a + 1", "Hello, World!\n", "21", ""},
		{" JS ", "a * 2", "", "40", ""},
		{"ts", "const b: number = 5; console.log(b)", "5\n", "", ""},
		{"typescript", "a", "", "", "ReferenceError"}, // a context of its own
		{"bash", "echo out; echo err >&2", "out\nerr\n", "", ""},
		{"bash", "pwd", p.options.Dir + "\n", "", ""},
		{"bash", "echo $GLOBAL $K", "global v\n", "", ""},
		{"python3", "1 + 1", "", "2", ""},
	} {
		request := map[string]any{"code": test.code, "language": test.language}
		if strings.Contains(test.code, "$K") {
			request["env_vars"] = map[string]string{"K": "v"}
		}
		lines := p.run(t, request)
		for kind, want := range map[string]string{"stdout": test.stdout, "error": test.failed, "result": test.text} {
			if got := merged(lines, kind); got != want {
				t.Errorf("%s %q: %s is %q, want %q: %+v", test.language, test.code, kind, got, want, lines)
			}
		}
	}
	// The exit status is the value of an error without a name.
	lines := p.run(t, map[string]any{"code": "(exit 3)", "language": "bash"})
	if len(lines) != 2 {
		t.Fatalf("got %+v, want 2 lines", lines)
	}
	if l := lines[1]; l.Type != "error" || l.Value != "3" || l.Traceback != "" {
		t.Errorf("got %+v, want an error with the value 3 and no traceback", l)
	}
	if lines := p.run(t, map[string]any{"code": "1", "language": "deno", "env_vars": map[string]string{"not a name": ""}}); merged(lines, "error") != "NotImplementedError" {
		t.Errorf("got %+v, want the error %s", lines, "NotImplementedError")
	}
	// Whether a missing directory is an error depends on the language.
	for request, want := range map[string]string{
		`{"language":"bash","cwd":"/nowhere"}`: "Failed to set working directory",
		`{"language":"foo"}`: `Failed to create context: {"message": "The 'foo' kernel is not available. Please pick another suitable kernel instead, ` +
			`or install that kernel.", "short_message": "foo not found"}`,
		`{"language":"java"}`: `Failed to create context: {"message": "The 'java' kernel is not available. Please pick another suitable kernel instead, ` +
			`or install that kernel. The local cloud has it if IJava is installed on its machine, after ` + "`e2bctl local setup --full`" + ` and a new start.", "short_message": "java not found"}`,
	} {
		if status, body := p.call(t, t.Context(), http.MethodPost, p.interpreter+"/contexts", request); status != 500 || body != want {
			t.Errorf("%s: got %d %q, want status 500 and body %v", request, status, body, want)
		}
	}
}

// TestKernelOfR checks that R's kernel is found under the name that its installer
// uses, with the kernel of Bash in its place.
func TestKernelOfR(t *testing.T) {
	t.Parallel()
	environ := kerneltest.Environ(t)
	specs := zmq.Dirs(environ, "/nowhere")
	spec, err := specs.Find("bash")
	must.Do(t, err)
	home := t.TempDir()
	must.Do(t, os.CopyFS(filepath.Join(home, ".local/share/jupyter/kernels/ir"), os.DirFS(spec.Dir)))
	p := serve(t, "", func(o *Options) {
		o.Environ = func() ([]string, error) { return environ, nil }
		o.Dir = home
	})
	if got := merged(p.run(t, map[string]any{"code": "echo R", "language": "R"}), "stdout"); got != "R\n" {
		t.Errorf("got %q, want %q", got, "R\n")
	}
}

func TestBashAfterInterruptIsAborted(t *testing.T) {
	t.Parallel()
	p := serve(t, "", withKernels(t))
	k, err := p.newContext("bash", p.options.Dir, false)
	must.Do(t, err)
	ws := p.dial(t, k.id, "", nil)
	ended := make(chan []line, 1)
	go func() {
		ended <- p.run(t, map[string]any{"code": "echo here; read -r", "context_id": k.id}) // between two commands bash may lose an interrupt
	}()
	for m := ws.receive(); m.Header.MsgType != "stream"; m = ws.receive() {
	}
	if status, _ := p.call(t, t.Context(), http.MethodPost, p.jupyter+"/api/kernels/"+k.id+"/interrupt", ""); status != 204 {
		t.Errorf("interrupt: %d, want 204", status)
	}
	if lines := <-ended; merged(lines, "error") != "ExecutionAborted" {
		t.Errorf("got %+v, want the error %s", lines, "ExecutionAborted")
	}
}

func TestJupyterWithInstalledKernels(t *testing.T) {
	t.Parallel()
	p := serve(t, "", withKernels(t))
	_, body := p.call(t, t.Context(), http.MethodGet, p.jupyter+"/api/kernelspecs", "")
	var specs struct {
		Default     string `json:"default"`
		Kernelspecs map[string]struct {
			Name string `json:"name"`
			Spec struct {
				Argv          []string `json:"argv"`
				Language      string   `json:"language"`
				InterruptMode string   `json:"interrupt_mode"`
			} `json:"spec"`
		} `json:"kernelspecs"`
	}
	must.Do(t, json.Unmarshal([]byte(body), &specs))
	for name, language := range map[string]string{"python3": "python", "bash": "bash", "deno": "typescript"} {
		got := specs.Kernelspecs[name]
		if got.Name != name || got.Spec.Language != language || got.Spec.InterruptMode != "signal" {
			t.Errorf("%s: got %+v, want the language %q, interrupted by signal", name, got, language)
		}
		if len(got.Spec.Argv) == 0 {
			t.Errorf("%s: got %+v, want a command line", name, got)
		}
	}
	status, body := p.call(t, t.Context(), http.MethodPost, p.jupyter+"/api/kernels", `{"name":"bash"}`)
	var k kernelModel
	if err := json.Unmarshal([]byte(body), &k); err != nil || status != 201 || k.Name != "bash" {
		t.Fatalf("got %d %s, want status 201 and the name %q", status, body, "bash")
	}
	ws := p.dial(t, k.ID, "", nil)
	got := ws.until(ws.execute("echo hello", false))
	got = slices.CompactFunc(got, func(a, b *jupyter.Message) bool { // a line may come in parts
		return a.Header.MsgType == "stream" && b.Header.MsgType == "stream"
	})
	if want := "iopub:status iopub:execute_input iopub:stream shell:execute_reply iopub:status"; types(got) != want {
		t.Errorf("got %s, want %s", types(got), want)
	}
	got = ws.until(ws.send(jupyter.Shell, "kernel_info_request", struct{}{}, jupyter.Header{}))
	if !strings.Contains(string(got[1].Content), "bash") {
		t.Errorf("got %s, want %q in it", got[1].Content, "bash")
	}
}
