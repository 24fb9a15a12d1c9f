package mcpserver

import (
	"context"
	"fmt"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/internal/protocol"
)

const publishName = "publish_port"

type publishArguments struct {
	arguments
	Port int `json:"port" jsonschema:"the port in the sandbox on which a server listens"`
}

// portPatience limits the wait until a server in the sandbox listens on a port.
const portPatience = 20 * time.Second

func publishTool() tool {
	return newTool(&sdk.Tool{
		Name: publishName, Annotations: hints("Publish a port", false, false, true),
		Description: "Make a server in the sandbox reachable for the user, and answer with its address. It waits until the server listens.",
	}, publishPort)
}

func publishPort(ctx context.Context, c *call, in publishArguments) error {
	if in.Port < 1 || in.Port > 65535 {
		return fmt.Errorf("port is %d: want 1 to 65535", in.Port)
	}
	if protocol.OwnPort(in.Port) {
		return fmt.Errorf("port %d is one of the sandbox's own: publish that of your server", in.Port)
	}
	waiting, cancel := context.WithTimeout(ctx, portPatience)
	defer cancel()
	if err := c.box.WaitPort(waiting, in.Port); err != nil {
		if ctx.Err() == nil && waiting.Err() != nil {
			return fmt.Errorf("nothing listens on port %d of the sandbox after %v: start the server first, in the background", in.Port, portPatience)
		}
		return err
	}
	c.box.mu.Lock()
	defer c.box.mu.Unlock()
	p, ok := c.box.forwards[in.Port]
	if !ok {
		var err error
		if p.address, p.end, err = c.server.config.Publish(ctx, c.box.Sandbox, in.Port); err != nil {
			return err
		}
		c.box.forwards[in.Port] = p
	}
	c.answer.note("port %d of the sandbox is at %s, until the sandbox ends", in.Port, p.address)
	return nil
}
