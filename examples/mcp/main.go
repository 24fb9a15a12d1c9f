// Command mcp shows both sides of the Model Context Protocol, server and client. It serves tools of
// an agent to any client, and it lets code in a sandbox call the tools of any server as Python
// functions.
//
//	mcp -local
//	mcp -local -allow list_issues -code 'server_list_issues(owner="golang", repo="go")' -- github-mcp-server stdio
//	mcp -serve
//
// Without a command, the code calls the tools that -serve serves, in this process. The server
// keeps its credentials: the sandbox sees only the results of calls.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/agent"
	"github.com/e2bctl/e2bctl/sandbox/agent/agentmcp"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// snippet combines two tools of the shop. Without code, a model would have to read each list and
// each price.
const snippet = `{fruit: server_price(fruit=fruit) for fruit in server_find(word="berry")}`

const usage = `Usage: mcp [flags] [COMMAND [ARGUMENT...]]
       mcp -serve

COMMAND starts an MCP server that talks over its standard input and output. Without it, code
calls the tools of this example's own server.

`

// options are the flags.
type options struct {
	here        bool
	code, allow string
	command     []string // the command that starts the server; if empty, the example's own server is used
}

func main() {
	var o options
	serves := flag.Bool("serve", false, "serve the tools of this example over stdin and stdout")
	flag.BoolVar(&o.here, "local", false, "start a local cloud in this process instead of using a service")
	flag.StringVar(&o.code, "code", snippet, "Python that calls the tools, each with server_ before its `name`")
	flag.StringVar(&o.allow, "allow", "find,price", "`names` of the tools that the code may call")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	o.command = flag.Args()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if *serves {
		err = serve(ctx, &mcp.StdioTransport{})
	} else {
		err = start(ctx, os.Stdout, &o)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mcp:", err)
		os.Exit(1)
	}
}

// serve serves the tools of the shop to one client.
func serve(ctx context.Context, client mcp.Transport) error {
	server := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1"}, nil)
	if err := agentmcp.AddTools(server, shop()...); err != nil {
		return err
	}
	return server.Run(ctx, client)
}

func start(ctx context.Context, w io.Writer, o *options) (err error) {
	var sandboxes []sandbox.CreateOption
	if o.here {
		cloud, err := local.Start(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, cloud.Close()) }()
		sandboxes = append(sandboxes, cloud.Option())
	}
	session, err := connect(ctx, o.command)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	// A server describes its tools itself. Only the names that you allow decide what the code may call.
	tools, err := agentmcp.Tools(ctx, session, &agentmcp.ToolsParams{Prefix: "server_", Allow: strings.Split(o.allow, ",")})
	if err != nil {
		return err
	}
	return sandbox.Use(ctx, func(ctx context.Context, sb *sandbox.Sandbox) error {
		return work(ctx, w, sb, tools, o.code)
	}, append(sandboxes, sandbox.WithInternet(false))...)
}

// connect connects to the server that a command starts, or to the example's own in this process.
func connect(ctx context.Context, command []string) (*mcp.ClientSession, error) {
	var server mcp.Transport
	if len(command) > 0 {
		program := exec.CommandContext(ctx, command[0], command[1:]...)
		program.Stderr = os.Stderr
		server = &mcp.CommandTransport{Command: program}
	} else {
		near, far := mcp.NewInMemoryTransports()
		go func() { _ = serve(ctx, far) }() // until the session is closed
		server = near
	}
	return mcp.NewClient(&mcp.Implementation{Name: "example", Version: "1"}, nil).Connect(ctx, server, nil)
}

// work runs the code in a sandbox, and prints the observation that a model would receive.
func work(ctx context.Context, w io.Writer, sb *sandbox.Sandbox, tools []agent.Tool, code string) (err error) {
	run, err := agent.Begin(ctx, sb, &agent.Params{Tools: tools})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, run.Close()) }()
	for _, tool := range tools {
		fmt.Fprintln(w, tool.Signature()) // a model gets Prompt, which says more
	}
	step, err := run.Exec(ctx, code)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "--- step %d\n%s\n--- gave\n%s", step.N, code, step.Observation())
	return nil
}
