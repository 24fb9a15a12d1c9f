//go:build linux

package e2e

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/template"
)

// standIn replaces the program that runs MCP servers. It serves its configuration to
// clients that know the token.
const standIn = `#!/usr/bin/env python3
import http.server, os, sys
if "broken" in sys.argv[2]: sys.exit("no server is broken")
token = os.environ["GATEWAY_ACCESS_TOKEN"]
os.makedirs("/etc/mcp-gateway", exist_ok=True)
with open("/etc/mcp-gateway/.token", "w", opener=lambda p, f: os.open(p, f, 0o600)) as file: file.write(token)
class Gateway(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        known = self.path == "/mcp" and self.headers.get("Authorization") == "Bearer " + token
        self.send_response(200 if known else 401)
        self.end_headers()
        self.wfile.write(sys.argv[2].encode() if known else b"")
server = http.server.HTTPServer(("127.0.0.1", 50005), Gateway)
if os.fork() == 0:
    os.setsid()
    for stream in range(3): os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    server.serve_forever()
`

// MCP servers run in sandboxes of a template with their program, and only there.
func TestMCP(t *testing.T) {
	t.Parallel()
	b := newBuilder(t)
	servers := sandbox.WithMCP(map[string]any{"exa": map[string]string{"apiKey": "it's a secret"}})
	if _, err := b.client.Create(t.Context(), servers); !errors.Is(err, sandbox.ErrUnknownTemplate) || !strings.Contains(err.Error(), "build a template mcp-gateway with the program mcp-gateway") {
		t.Errorf("without the template: got %v, want ErrUnknownTemplate and what to build", err)
	}
	// As on the service, the sandbox is created, and its client cannot continue.
	var missing *sandbox.ExitError
	if _, err := b.client.Create(t.Context(), servers, sandbox.WithTemplate("base")); !errors.As(err, &missing) || missing.Result.ExitCode != 127 || !strings.Contains(err.Error(), "mcp-gateway") {
		t.Errorf("a template without the program: got %v, want an ExitError of 127 that names it", err)
	}

	b.write(t, "mcp-gateway", standIn, 0o755)
	b.must(t, "mcp-gateway", template.FromBase().Copy("mcp-gateway", "/usr/local/bin/", &template.CopyParams{User: "root"}))
	sb, err := b.client.Create(t.Context(), servers)
	must.Do(t, err)
	defer sb.Close()
	token, err := sb.MCPToken(t.Context())
	if err != nil || len(token) < 20 {
		t.Fatalf("got the token %q and %v, want one", token, err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, sb.MCPURL(), nil)
	must.Do(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	client := &http.Client{Transport: sb.Transport(50005)}
	answer := func() (int, string) {
		t.Helper()
		resp, err := client.Do(r)
		must.Do(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		must.Do(t, err)
		return resp.StatusCode, string(body)
	}
	if status, body := answer(); status != http.StatusOK || body != `{"exa":{"apiKey":"it's a secret"}}` {
		t.Errorf("got %d %s, want 200 and what was passed", status, body)
	}
	r.Header.Del("Authorization")
	if status, _ := answer(); status != http.StatusUnauthorized {
		t.Errorf("without the token: got %d, want 401", status)
	}

	label := map[string]string{"which": "broken"}
	_, err = b.client.Create(t.Context(), sandbox.WithMCP(map[string]any{"broken": nil}), sandbox.WithMetadata(label))
	if _, ok := errors.AsType[*sandbox.ExitError](err); !ok || !strings.Contains(err.Error(), "no server is broken") {
		t.Errorf("got %v, want an ExitError that says why", err)
	}
	var left []string
	for info, err := range b.client.List(t.Context(), &sandbox.ListParams{Metadata: label}) {
		must.Do(t, err)
		left = append(left, info.ID)
	}
	if len(slices.Compact(left)) != 0 {
		t.Errorf("sandboxes without their servers are left: %v", left)
	}

	plain, err := b.client.Create(t.Context())
	must.Do(t, err)
	defer plain.Close()
	if _, err := plain.MCPToken(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without servers: got %v, want fs.ErrNotExist", err)
	}
}
