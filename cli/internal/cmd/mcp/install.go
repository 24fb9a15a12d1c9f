package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/cloud/hostprogram"
)

type installOptions struct {
	IO      *cmdutil.IOStreams
	JSON    bool
	Quiet   bool
	Client  client
	Project bool
	Print   bool
	Yes     bool
	WithKey bool
	Name    string
	Flags   []string // the flags for e2bctl mcp
}

func newCmdInstall(f *cmdutil.Factory) *cobra.Command {
	opts := &installOptions{IO: f.IO}
	clients := strings.Join(clientNames(), "|")
	cmd := &cobra.Command{
		Use:   "install " + clients + " [flags] [-- <flag of e2bctl mcp>...]",
		Short: "Have the client of an agent start e2bctl mcp",
		Long: `Add e2bctl mcp, with the flags after --, to the servers that a client starts. The
change of the client's configuration is shown first, and made when you agree; without a
terminal that needs --yes. All other text of the file stays as it is, comments too. The
file before the latest change is kept beside it, with .e2bctl-backup at the end of its
name. An earlier server of the same name is replaced as a whole.

Without --project the file is your own: ~/.claude.json, ~/.cursor/mcp.json,
~/.codex/config.toml, mcp.json of VS Code's default profile, ~/.gemini/settings.json,
or where CLAUDE_CONFIG_DIR, CODEX_HOME, VSCODE_PORTABLE, VSCODE_APPDATA or
GEMINI_CLI_HOME have it. With --project it is the file of the project in the current
directory, and everyone who opens the project needs e2bctl in PATH.

No key is ever written. If E2B_API_KEY is set, its name is written, and the client passes
the value on. The same goes for the variables with the service's address. Codex passes
nothing on by itself, so it also gets the names of the variables that find the local
cloud. In the change that is shown, stars replace secrets of other servers.`,
		Example: `  e2bctl mcp install claude
  e2bctl mcp install codex -- --api-url https://api.example.com
  e2bctl mcp install vscode --project
  e2bctl mcp install gemini --print`,
		ValidArgs: clientNames(),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.JSON, opts.Quiet = f.JSON(), f.Quiet()
			if err := opts.parse(cmd, args); err != nil {
				return err
			}
			return installRun(cmd.Context(), opts)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&opts.Project, "project", false, "write the file of the project in the current directory")
	flags.BoolVar(&opts.Print, "print", false, "print what is to be in the file, and write nothing")
	flags.BoolVarP(&opts.Yes, "yes", "y", false, "do not ask")
	flags.BoolVar(&opts.WithKey, "with-key", false, "name E2B_API_KEY even if it is not set here")
	flags.StringVar(&opts.Name, "name", "e2bctl", "call the server `NAME`")
	return cmd
}

// parse reads the arguments. It refuses arguments with which the server would not start.
func (o *installOptions) parse(cmd *cobra.Command, args []string) error {
	before := args
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		before, o.Flags = args[:dash], args[dash:]
	}
	wanted := strings.Join(clientNames(), ", ")
	if len(before) != 1 {
		return cmdutil.Usagef(cmd, "want one client: %s; flags of e2bctl mcp come after --", wanted)
	}
	var known bool
	if o.Client, known = findClient(before[0]); !known {
		return cmdutil.Usagef(cmd, "unknown client %q: want %s", before[0], wanted)
	}
	if isName := strings.Trim(strings.ToLower(o.Name), "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""; o.Name == "" || !isName {
		return cmdutil.Usagef(cmd, "--name %q: want letters, digits, - and _", o.Name)
	}
	for _, global := range []string{"api-url", "domain", "env-file", "no-env-file"} {
		if cmd.Flags().Changed(global) {
			return cmdutil.Usagef(cmd, "--%s is for the server: write it after --", global)
		}
	}
	if err := checkFlags(o.Flags); err != nil {
		return cmdutil.Usagef(cmd, "flags after --: %w", err)
	}
	if !o.Yes && !o.Print && !o.IO.InIsTerminal {
		return cmdutil.Usagef(cmd, "the change is shown and asked about first, but there is no terminal: add --yes, or --print to see it")
	}
	return nil
}

// checkFlags returns an error if e2bctl mcp would refuse the flags, or if a flag contains a key.
func checkFlags(flags []string) error {
	for i, flag := range flags {
		if hasKey(flag) {
			return fmt.Errorf("number %d has a key, which is never written: the server reads E2B_API_KEY", i+1)
		}
	}
	streams := cmdutil.NewIOStreams(nil, io.Discard, io.Discard)
	other := cmdutil.NewFactory(streams, nil) // their values must not be this command's
	root := &cobra.Command{Use: "e2bctl"}
	other.AddFlags(root)
	cmd := NewCmdMCP(other)
	root.AddCommand(cmd)
	if err := cmd.ParseFlags(flags); err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// installView is an installation as -o json shows it.
type installView struct {
	Client  string `json:"client"`
	File    string `json:"file"`
	Backup  string `json:"backup"` // the path of the backup; "" if the file is new or unchanged
	Changed bool   `json:"changed"`
	Config  string `json:"config,omitempty"` // the text of the configuration, with --print
}

func installRun(ctx context.Context, opts *installOptions) error {
	file, err := opts.Client.file(opts.Project)
	if err != nil {
		return err
	}
	s := server{Args: append([]string{"mcp"}, opts.Flags...), Variables: opts.Client.variables(opts.WithKey)}
	if s.Command, err = program(opts.Project); err != nil {
		return err
	}
	if opts.Print {
		return printEntry(opts, file, s)
	}
	view := installView{Client: opts.Client.name, File: file}
	for {
		view.Backup, view.Changed, err = install(ctx, opts, file, s)
		if !errors.Is(err, errChanged) {
			break
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	if !opts.Quiet {
		fmt.Fprintln(opts.IO.Err, cmdutil.Printable(outcome(opts, view)))
	}
	if opts.JSON {
		return cmdutil.WriteJSON(opts.IO.Out, view)
	}
	_, err = fmt.Fprintln(opts.IO.Out, cmdutil.Printable(file))
	return err
}

// program returns the command by which clients start e2bctl. The command is "e2bctl" for a project,
// and also if a search for e2bctl in PATH finds this program. Otherwise the command is the path of
// this program.
func program(isProject bool) (string, error) {
	const name = "e2bctl"
	if isProject {
		return name, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the path of this e2bctl: %w", err)
	}
	if found, err := hostprogram.Find(name); err == nil && sameFile(found, self) {
		return name, nil
	}
	return self, nil
}

func sameFile(a, b string) bool {
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}

// printEntry prints the text of a configuration file that contains only the server.
func printEntry(opts *installOptions, file string, s server) error {
	text, err := opts.Client.format.entry(opts.Name, s)
	if err != nil {
		return err
	}
	if opts.JSON {
		return cmdutil.WriteJSON(opts.IO.Out, installView{Client: opts.Client.name, File: file, Config: text})
	}
	if !opts.Quiet {
		fmt.Fprintf(opts.IO.Err, "for %s:\n", cmdutil.Printable(file))
	}
	_, err = io.WriteString(opts.IO.Out, text)
	return err
}

// install asks the user for permission, and changes the file. It returns errChanged if the file
// changed after it was read.
func install(ctx context.Context, opts *installOptions, file string, s server) (backup string, isChanged bool, err error) {
	config, err := readConfig(file)
	if err != nil {
		return "", false, err
	}
	made, err := changed(opts.Client.format, config.text, opts.Name, s)
	if err != nil {
		return "", false, fmt.Errorf("%s: %w", file, err)
	}
	if bytes.Equal(made.text, config.text) {
		return "", false, nil
	}
	if !opts.Quiet || !opts.Yes {
		fmt.Fprint(opts.IO.Err, made.diffText(config.path, config.text, s))
	}
	if !opts.Yes {
		question := fmt.Sprintf("Write %s?", file)
		if made.existed {
			question = fmt.Sprintf("Replace the server %s in %s?", opts.Name, file)
		}
		if err := cmdutil.Confirm(ctx, opts.IO, cmdutil.Printable(question)); err != nil {
			return "", false, err
		}
	}
	backup, err = config.replace(made.text, opts.Project)
	return backup, err == nil, err
}

// outcome returns a line about the change and the user's next step.
func outcome(opts *installOptions, view installView) string {
	if !view.Changed {
		return fmt.Sprintf("%s has this server already: nothing changes", view.File)
	}
	kept := ""
	if view.Backup != "" {
		kept = ", backup " + view.Backup
	}
	next := opts.Client.next
	if opts.Project {
		next = opts.Client.nextProject
	}
	return fmt.Sprintf("wrote the server %s%s; %s", opts.Name, kept, next)
}
