package interop

import (
	"slices"
	"strings"
	"testing"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/sandbox/template"
)

// buildGateway builds the template that SDKs ask for to have MCP servers, with a stand-in
// for its program. The clients of a cloud share it: if each built it, they would supersede
// each other.
func buildGateway(t *testing.T, cloud []string) {
	t.Helper()
	variable := func(name string) string {
		i := slices.IndexFunc(cloud, func(pair string) bool { return strings.HasPrefix(pair, name+"=") })
		return strings.TrimPrefix(cloud[i], name+"=")
	}
	client, err := api.NewClient(api.WithAPIKey(api.Key(variable("E2B_API_KEY"))), api.WithBaseURL(variable("E2B_API_URL")))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	gateway := template.FromBase().Copy("mcp-gateway", "/usr/local/bin/", &template.CopyParams{User: "root", Mode: 0o755})
	if _, err := template.Build(t.Context(), client, "mcp-gateway", gateway, &template.BuildParams{Dir: "testdata"}); err != nil {
		t.Fatal(err)
	}
}
