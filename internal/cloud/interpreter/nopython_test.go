//go:build linux

package interpreter

import (
	"strings"
	"testing"
)

// TestNoPython checks that a sandbox of a machine without Python still serves, and
// does not offer Python.
func TestNoPython(t *testing.T) {
	t.Parallel()
	p := serve(t, "", func(o *Options) { o.Python = nil })
	for path, want := range map[string]string{"/api/kernelspecs": `"kernelspecs":{`, "/api/kernels": `"name":"python3"`} {
		if status, body := p.call(t, t.Context(), "GET", p.jupyter+path, ""); status != 200 || !strings.Contains(body, want) {
			t.Errorf("GET %s: got %d %s, want 200 and %s", path, status, body, want)
		}
	}
	if status, body := p.call(t, t.Context(), "GET", p.jupyter+"/api/kernelspecs/python3", ""); status != 404 {
		t.Errorf("the kernelspec of Python: got %d %s, want 404", status, body)
	}
	lines := p.run(t, map[string]any{"code": "1"})
	said := ""
	for _, l := range lines {
		said += l.Type + " " + l.Name + " " + l.Value + "\n"
	}
	if !strings.Contains(said, "error KernelStartError kernel: start python3: ") || !strings.Contains(said, "install Python 3.9 or newer") {
		t.Errorf("code: got %s, want an error that says what to install", said)
	}
}
