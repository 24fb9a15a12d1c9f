// Package mcp implements e2bctl mcp: a server of the Model Context Protocol that gives sandboxes to
// agents.
package mcp

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmd/version"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/mcpserver"
	"github.com/e2bctl/e2bctl/cli/internal/transfer"
	"github.com/e2bctl/e2bctl/sandbox"
)

type options struct {
	factory   *cmdutil.Factory
	IO        *cmdutil.IOStreams
	Progress  io.Writer
	Open      cmdutil.Opener
	New       cmdutil.NewSandboxFlags
	Uploads   transfer.Flags
	Network   network
	HTTP      string
	Keep      bool
	Publish   bool
	isLocal   bool
	Idle      cmdutil.Duration
	Max       cmdutil.Count
	Sandboxes []string
	Tools     []string

	Proxies    proxies
	ProxyEnv   proxyVariables
	AllowTools []string
	Audit      string
}

// NewCmdMCP returns e2bctl mcp.
func NewCmdMCP(f *cmdutil.Factory) *cobra.Command {
	opts := &options{factory: f, IO: f.IO, Network: networkPyPI, Idle: cmdutil.Duration(mcpserver.DefaultIdle), Max: mcpserver.DefaultMaxSandboxes}
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Serve sandboxes to an agent's client, over MCP",
		Long: `Serve tools to a client of the Model Context Protocol, such as Claude Code, Cursor,
Codex, VS Code or Gemini: run_python, bash, read_file, edit_file, write_file,
publish_port, checkpoint and restore. They work in sandboxes, never on this machine.

The client starts this command and talks to it over stdin and stdout; with --http, any
number of clients connect to a port of this machine. Without a key for a service,
sandboxes are on this machine, in a cloud that ends with the command.

What a sandbox may reach and see is decided here, never by a tool: the packages of PyPI
unless --network says otherwise, and no directory of this machine but those of --mount.
Private networks are out of reach, except for addresses that --allow-out names.

Each session has a sandbox of its own, made at its first call; every answer names it, and a
later session goes on there by its id. A sandbox that nothing uses ends after --idle. With
--keep, sandboxes stay until their --lifetime ends, on this machine in e2bctl local up.`,
		Example: `  e2bctl mcp install claude
  e2bctl mcp --mount .:/work --network none
  e2bctl mcp --keep --package pandas --package polars
  e2bctl mcp --proxy 'github=github-mcp-server stdio' --proxy-env github:GITHUB_TOKEN --allow-tool github.list_issues
  e2bctl mcp --http 127.0.0.1:8930`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.Progress = f.Progress()
			if err := opts.check(cmd); err != nil {
				return err
			}
			return run(cmd.Context(), opts)
		},
	}
	flags := cmd.Flags()
	flags.Var(&opts.Network, "network", "what sandboxes reach: none, pypi for its packages, all, or\nask, which has the client ask its user about each host, with\nlocal sandboxes")
	flags.StringVar(&opts.HTTP, "http", "", "serve HTTP at `ADDRESS`, on loopback, such as 127.0.0.1:8930")
	flags.BoolVar(&opts.Keep, "keep", false, "let sandboxes and checkpoints stay after the session")
	flags.BoolVar(&opts.Publish, "publish", false, "serve publish_port with sandboxes of a service, too, where\nwhoever knows the address reaches the port")
	flags.StringSliceVar(&opts.Sandboxes, "sandbox", nil, "let calls use the running sandbox `ID`, repeatable; the first is\nused by calls that name none")
	flags.StringSliceVar(&opts.Tools, "tools", nil, "serve only these `TOOLS` (default: all)")
	flags.Var(&opts.Proxies, "proxy", "make the tools of an MCP server that COMMAND starts on this\nmachine callable from code, as NAME_TOOL, repeatable")
	flags.Var(&opts.ProxyEnv, "proxy-env", "give a proxied command this variable; it gets no others")
	flags.StringSliceVar(&opts.AllowTools, "allow-tool", nil, "let code call the proxied tool `NAME.TOOL` without a question to\nthe client's user, repeatable")
	flags.StringVar(&opts.Audit, "audit", "", "append code and calls of proxied tools to `FILE`, as JSON\n(default: audit.jsonl beside the token)")
	flags.Var(&opts.Idle, "idle", "end a sandbox that has been unused for this long")
	flags.Var(&opts.Max, "max-sandboxes", "most sandboxes at once")
	opts.New.AddMany(cmd, "how long a sandbox may live (default: as long as it is used,\nwith --keep an hour)")
	opts.Uploads.AddUploads(cmd, "its first call")
	cmdutil.AddLocalFlag(cmd, &opts.isLocal)
	cmd.AddCommand(newCmdInstall(f))
	return cmd
}

// check refuses flags that contradict each other or have invalid values, and chooses the place of
// the sandboxes.
func (o *options) check(cmd *cobra.Command) error {
	if o.New.Network.Given() && cmd.Flags().Changed("network") {
		return cmdutil.Usagef(cmd, "--network and the flags for single rules (--no-internet, --allow-out, --deny-out, --header) exclude each other")
	}
	if len(o.Proxies) == 0 && (len(o.AllowTools) > 0 || len(o.ProxyEnv) > 0 || o.Audit != "") {
		return cmdutil.Usagef(cmd, "--allow-tool, --proxy-env and --audit are about proxied tools: they need --proxy")
	}
	for _, name := range o.Tools {
		if !slices.Contains(mcpserver.Tools(), name) {
			return cmdutil.Usagef(cmd, "--tools %s: want some of %s", name, strings.Join(mcpserver.Tools(), ", "))
		}
	}
	if o.HTTP != "" {
		if err := checkAddress(o.HTTP); err != nil {
			return cmdutil.Usagef(cmd, "--http %s: %w", o.HTTP, err)
		}
	}
	if err := o.place(cmd); err != nil {
		return err
	}
	if !o.isLocal && o.Network == networkAsk {
		return cmdutil.Usagef(cmd, "--network ask needs --local: a service cannot ask")
	}
	return o.Uploads.Check()
}

// place chooses the service or a local cloud for the sandboxes. If it chooses a local cloud without
// the flag --local, it prints that choice.
func (o *options) place(cmd *cobra.Command) (err error) {
	own := o.New.NeedsOwnCloud()
	if o.Keep && own != "" {
		return cmdutil.Usagef(cmd, "--keep and --%s exclude each other: --%s is for a local cloud that ends with the client", own, own)
	}
	if !o.isLocal && (own != "" || o.New.Resources.Engine() != "" || o.factory.LacksKey()) {
		o.isLocal = true
		fmt.Fprintln(o.Progress, "e2bctl mcp: sandboxes are on this machine, in a local cloud")
	}
	where := cmdutil.LocalEphemeral
	if o.Keep {
		where = cmdutil.LocalStarting
	}
	o.Open, err = o.factory.Opener(cmd, o.isLocal, where, &o.New.Resources)
	return err
}

func run(ctx context.Context, opts *options) (err error) {
	identity, err := openIdentity()
	if err != nil {
		return err
	}
	var conn *cmdutil.Connection
	config := mcpserver.Config{
		Open: func(ctx context.Context) (*sandbox.Client, error) {
			opened, err := opts.Open(ctx)
			if err != nil {
				return nil, err
			}
			conn = opened
			return opened.Client, nil
		},
		Options: opts.sandboxOptions(), Prepare: opts.prepare,
		Owner: identity.Owner, Sandboxes: opts.Sandboxes, Keep: opts.Keep,
		Idle: time.Duration(opts.Idle), MaxSandboxes: int(opts.Max),
		Ask: opts.Network == networkAsk && !opts.New.Network.Given(), Tools: opts.Tools,
		Place: opts.describe(), Version: version.Number(), Logger: opts.factory.Logger(),
	}
	if len(opts.Proxies) > 0 {
		if config.Proxies, err = opts.Proxies.resolved(opts.ProxyEnv); err != nil {
			return err
		}
		audit, err := openAudit(opts.Audit, identity)
		if err != nil {
			return fmt.Errorf("opening the audit: %w", err)
		}
		defer audit.Close()
		config.Audit, config.AllowTools = audit, opts.AllowTools
	}
	if opts.isLocal {
		config.Publish = forward
	} else if opts.Publish {
		config.Publish = publicAddress
	}
	server, err := mcpserver.New(config)
	if err != nil {
		return err
	}
	defer func() {
		err = cmdutil.WithClose(err, server) // the sandboxes before their cloud
		if conn != nil {
			err = cmdutil.WithClose(err, conn)
		}
	}()
	if opts.HTTP != "" {
		return serveHTTP(ctx, opts, server, identity)
	}
	return serveStdio(ctx, opts, server)
}

// sandboxOptions returns the options with which each sandbox is created.
func (o *options) sandboxOptions() []sandbox.CreateOption {
	o.New.Network.DenyPrivate = o.New.Network.Given()
	options := o.New.Options()
	if o.Keep && o.New.Lifetime == 0 {
		options = append(options, sandbox.WithExpiry(sandbox.Expiry{After: time.Hour, Renew: true}))
	}
	if o.New.Network.Given() {
		return options
	}
	return append(options, o.Network.options()...)
}

// prepare uploads the files and installs the packages that the flags name.
func (o *options) prepare(ctx context.Context, sb *sandbox.Sandbox) error {
	if err := o.Uploads.In(sb, "", o.IO.Err).Upload(ctx); err != nil {
		return err
	}
	return o.New.Install(ctx, sb, o.Progress)
}

// describe returns a description of the sandboxes for the model.
func (o *options) describe() string {
	lines := []string{o.Network.describe()}
	if o.New.Network.Given() {
		lines = []string{"The operator has set rules for the network of the sandbox."}
	}
	for _, m := range o.New.Mounts() {
		rights := "read-only"
		if m.Writable {
			rights = "writable: changes there are changes of the user's files"
		}
		lines = append(lines, fmt.Sprintf("%s shows a directory of the user, %s.", m.Path, rights))
	}
	return strings.Join(lines, "\n")
}
