package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/e2bctl/e2bctl/internal/cloud/envdclient"
	"github.com/e2bctl/e2bctl/internal/cloud/lifecycle"
)

// checkMCP refuses a sandbox that is to have MCP servers and lacks the program that runs
// them. It looks where clients start it: in the PATH of root.
func (r *reachable) checkMCP(ctx context.Context, spec lifecycle.Spec) error {
	if !spec.MCP {
		return nil
	}
	client := envdclient.New(r.Dial, spec.AccessToken)
	defer client.Close()
	look := envdclient.Check("type -P " + lifecycle.MCPGateway)
	look.User = "root"
	err := client.Run(ctx, look)
	if _, missing := errors.AsType[*envdclient.ExitError](err); missing {
		return lifecycle.NoMCPGateway(fmt.Sprintf("the template '%s' has no such program", cmp.Or(spec.Template.Alias, spec.Template.ID)))
	}
	return err
}
