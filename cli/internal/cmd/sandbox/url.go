package sandbox

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/cli/browser"
	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

type urlOptions struct {
	IO     *cmdutil.IOStreams
	JSON   bool
	Quiet  bool
	Open   cmdutil.Opener
	ID     string
	Port   int    // the port whose address the command returns
	Path   string // the path after the address of the port, or the path of a file in the sandbox
	File   bool
	Upload bool
	Valid  cmdutil.Duration
	Show   bool // open the address in a browser
}

// NewCmdURL returns e2bctl url.
func NewCmdURL(f *cmdutil.Factory) *cobra.Command {
	opts := &urlOptions{IO: f.IO}
	var isLocal, signed bool
	cmd := &cobra.Command{
		Use:        "url <id> <port> | url --signed <id>:<path>",
		SuggestFor: []string{"host", "preview-url", "address", "port"},
		Short:      "Print the address of a port, or a signed address of a file",
		Long: `Print the address under which a port of a sandbox is reached from outside. Nothing is
sent to the sandbox: one that is paused stays so, and whether a server listens there is
not tried. e2bctl wait --for port= waits for one.

With --signed, print an address that reads one file of a sandbox, or with --upload writes
it, for whoever has the address: no key is needed. Ports have no such addresses.`,
		Example: `  e2bctl url "$ID" 3000
  curl "$(e2bctl url "$ID" 3000 --path /health)"
  e2bctl url --signed --expires 1h "$ID":report.pdf`,
		Args: cmdutil.Wants("the ID of a sandbox and a port, or with --signed one <id>:<path>", cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.JSON, opts.Quiet, opts.File = f.JSON(), f.Quiet(), signed
			switch id, path, ok := cmdutil.SandboxPath(args[0]); {
			case signed && len(args) == 2:
				return cmdutil.Usagef(cmd, "a port has no signed address: sign a file, as <id>:<path>, or use e2bctl port-forward to reach a port that wants a token")
			case signed && !ok:
				return cmdutil.Usagef(cmd, "%s: want <id>:<path>, as in %s:report.pdf", args[0], args[0])
			case signed:
				opts.ID, opts.Path = id, path
			case ok && len(args) == 1:
				return cmdutil.Usagef(cmd, "add --signed for the address of a file: whoever has it can read the file")
			case len(args) == 1:
				return cmdutil.Usagef(cmd, "want the port, as in e2bctl url %s 3000", args[0])
			default:
				opts.ID = args[0]
				if opts.Port, err = parsePort(args[1]); err != nil {
					return cmdutil.Usagef(cmd, "%s: want a port, a number from 1 to 65535", args[1])
				}
			}
			for _, name := range []string{"upload", "expires"} {
				if !signed && cmd.Flags().Changed(name) {
					return cmdutil.Usagef(cmd, "--%s is for signed addresses and needs --signed", name)
				}
			}
			if signed && cmd.Flags().Changed("path") {
				return cmdutil.Usagef(cmd, "--path is for the address of a port: name the file as <id>:<path>")
			}
			if opts.Open, err = f.SandboxOpener(cmd, isLocal, opts.ID); err != nil {
				return err
			}
			return urlRun(cmd.Context(), opts)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.Path, "path", "", "the address of `PATH` on that port, as in /health?full=1")
	flags.BoolVar(&signed, "signed", false, "a signed address of a file")
	flags.BoolVar(&opts.Upload, "upload", false, "the address writes the file")
	flags.Var(&opts.Valid, "expires", "how long the signed address is valid (default: as long as the sandbox lives)")
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}

// NewCmdOpen returns e2bctl open.
func NewCmdOpen(f *cmdutil.Factory) *cobra.Command {
	opts := &urlOptions{IO: f.IO, Show: true}
	var isLocal bool
	cmd := &cobra.Command{
		Use:        "open <id> <port>",
		SuggestFor: []string{"browse"},
		Short:      "Open a port of a sandbox in the browser",
		Long: `Open the address of a port of a sandbox in this machine's browser, and print it. Without
a terminal it is only printed, as by e2bctl url.`,
		Example: `  e2bctl open "$ID" 3000
  e2bctl open "$ID" 8888 --path /lab`,
		Args: cmdutil.Wants("the ID of a sandbox and a port", cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.JSON, opts.Quiet, opts.ID = f.JSON(), f.Quiet(), args[0]
			if opts.Port, err = parsePort(args[1]); err != nil {
				return cmdutil.Usagef(cmd, "%s: want a port, a number from 1 to 65535", args[1])
			}
			if opts.Open, err = f.SandboxOpener(cmd, isLocal, opts.ID); err != nil {
				return err
			}
			return urlRun(cmd.Context(), opts)
		},
	}
	cmd.Flags().StringVar(&opts.Path, "path", "", "open `PATH` on that port")
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}

// urlView is an address, as -o json shows it.
type urlView struct {
	URL string `json:"url"`
}

func urlRun(ctx context.Context, opts *urlOptions) (err error) {
	conn, err := opts.Open(ctx)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(conn, &err)
	address, err := opts.address(ctx, conn)
	if err != nil {
		return err
	}
	if opts.JSON {
		err = cmdutil.WriteJSON(opts.IO.Out, urlView{address})
	} else {
		_, err = fmt.Fprintln(opts.IO.Out, cmdutil.Printable(address))
	}
	if err != nil || !opts.Show || !opts.IO.OutIsTerminal {
		return err
	}
	browser.Stdout, browser.Stderr = io.Discard, io.Discard
	if err := browser.OpenURL(address); err != nil {
		return fmt.Errorf("open %s in the browser of this machine: %w", address, err)
	}
	return nil
}

// address returns the address that the command prints or opens.
func (o *urlOptions) address(ctx context.Context, conn *cmdutil.Connection) (_ string, err error) {
	if o.File {
		return o.signed(ctx, conn)
	}
	info, err := conn.Info(ctx, o.ID)
	if err != nil {
		return "", err
	}
	address := conn.URL(info, o.Port)
	if o.Path != "" {
		reference, err := url.Parse("/" + strings.TrimPrefix(o.Path, "/"))
		if err != nil {
			return "", fmt.Errorf("--path: %w", err)
		}
		address += reference.String()
	}
	if at, err := url.Parse(address); err == nil && strings.HasSuffix(at.Hostname(), ".localhost") && !o.Quiet {
		fmt.Fprintf(o.IO.Err, "Browsers and curl resolve names below localhost; plain Python and Node do not: e2bctl port-forward %s %d is for them.\n", o.ID, o.Port)
	}
	return address, nil
}

// signed returns a signed address of a file. Whoever uses that address needs no key.
func (o *urlOptions) signed(ctx context.Context, conn *cmdutil.Connection) (_ string, err error) {
	sb, err := conn.Connect(ctx, o.ID, sandbox.WithExpiry(sandbox.Expiry{Renew: true}))
	if err != nil {
		return "", err
	}
	defer cmdutil.Closing(sb, &err)
	params := &sandbox.SignedURLParams{Expires: time.Duration(o.Valid)}
	if o.Upload {
		return sb.Files.UploadURL(o.Path, params)
	}
	return sb.Files.DownloadURL(o.Path, params)
}
