package agentmcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/e2bctl/e2bctl/internal/exampletest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/agent/agentmcp"
)

// serveVariable makes the binary of the tests a server at its standard input and output.
const serveVariable = "AGENTMCP_TEST_SERVE"

func TestMain(m *testing.M) {
	if os.Getenv(serveVariable) != "" {
		if err := serve(); err != nil {
			panic(err)
		}
		return
	}
	goleak.VerifyTestMain(exampletest.Ending{M: m})
}

// serve serves two tools of package agent to a client at the standard input and output.
func serve() error {
	server := mcp.NewServer(&mcp.Implementation{Name: "pair"}, nil)
	err := agentmcp.AddTools(server,
		agent.MustTool("add", "Adds two numbers.", func(_ context.Context, in struct{ A, B int }) (int, error) { return in.A + in.B, nil }),
		agent.MustTool("die", "", func(context.Context, struct{}) (int, error) {
			os.Exit(3) //nolint:forbidigo // it plays a server that ends in the middle of a call
			return 0, nil
		}))
	if err != nil {
		return err
	}
	return server.Run(context.Background(), &mcp.StdioTransport{})
}

// connect connects a client with a server until the test ends.
func connect(t *testing.T, server *mcp.Server) *mcp.ClientSession {
	t.Helper()
	near, far := mcp.NewInMemoryTransports()
	serving, err := server.Connect(t.Context(), far, nil)
	must.Do(t, err)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(t.Context(), near, nil)
	must.Do(t, err)
	t.Cleanup(func() {
		_ = session.Close()
		_ = serving.Wait()
	})
	return session
}

// offering returns a server that lists tools, however odd, ten a page, and answers calls by call.
func offering(tools []*mcp.Tool, call func(context.Context, *mcp.CallToolParamsRaw) (*mcp.CallToolResult, error)) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "odd"}, &mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}})
	server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
			switch params := request.GetParams().(type) {
			case *mcp.ListToolsParams:
				const size = 10
				page, _ := strconv.Atoi(params.Cursor)
				result := &mcp.ListToolsResult{Tools: tools[min(page*size, len(tools)):min((page+1)*size, len(tools))]}
				if (page+1)*size < len(tools) {
					result.NextCursor = strconv.Itoa(page + 1)
				}
				return result, nil
			case *mcp.CallToolParamsRaw:
				return call(ctx, params)
			}
			return next(ctx, method, request)
		}
	})
	return server
}

// offered returns a tool as a server lists it.
func offered(name, schema string) *mcp.Tool {
	return &mcp.Tool{Name: name, InputSchema: json.RawMessage(schema)}
}

// all lets code call every tool.
func all(context.Context, string, agent.ToolCall) error { return nil }

// called calls a tool as the code of a run would, and returns its result or the type and text of
// its error.
func called(t *testing.T, tools []agent.Tool, name, arguments string) string {
	t.Helper()
	box, err := agent.NewToolbox(tools...)
	must.Do(t, err)
	result, err := box.Call(t.Context(), name, json.RawMessage(arguments))
	if failed, ok := errors.AsType[*agent.ToolError](err); ok {
		return failed.Type + ": " + failed.Message
	}
	must.Do(t, err)
	return string(result)
}

func names(tools []agent.Tool) []string {
	list := []string{}
	for _, tool := range tools {
		list = append(list, tool.Name())
	}
	return list
}
