package interop

import (
	"context"
	"fmt"
	"strings"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/sandbox/template"
)

// buildGateway builds the template that SDKs ask for to have MCP servers, with a stand-in
// for its program. The clients of a cloud share it: if each built it, they would supersede
// each other.
func buildGateway(cloud []string) error {
	client, err := apiClient(cloud)
	if err != nil {
		return err
	}
	defer client.Close()
	gateway := template.FromBase().Copy("mcp-gateway", "/usr/local/bin/", &template.CopyParams{User: "root", Mode: 0o755})
	if _, err := template.Build(context.Background(), client.Templates, "mcp-gateway", gateway, &template.BuildParams{Dir: "testdata"}); err != nil {
		return fmt.Errorf("build the template of the gateway: %w", err)
	}
	return nil
}

// apiClient returns a client of the API for the variables of a cloud.
func apiClient(cloud []string) (*api.Client, error) {
	return api.NewClient(api.WithAPIKey(api.Key(variable(cloud, "E2B_API_KEY"))), api.WithBaseURL(variable(cloud, "E2B_API_URL")))
}

// variable returns the value of one of the variables of a cloud.
func variable(cloud []string, name string) string {
	for _, pair := range cloud {
		if value, ok := strings.CutPrefix(pair, name+"="); ok {
			return value
		}
	}
	return ""
}
