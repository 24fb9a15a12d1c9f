package code

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

type runOptions struct {
	IO         *cmdutil.IOStreams
	JSON       bool
	Quiet      bool
	Open       cmdutil.Opener
	Code       string // -c; if HasCode is set it is used even when empty
	HasCode    bool
	File       string // a path, or - for standard input
	Sandbox    string // "": a sandbox of its own
	Template   string
	Language   string
	Context    string
	Envs       cmdutil.KeyValues
	SaveImages string
	Timeout    cmdutil.Duration
}

func newCmdRun(f *cmdutil.Factory) *cobra.Command {
	opts := &runOptions{IO: f.IO}
	var isLocal bool
	cmd := &cobra.Command{
		Use:   "run [flags] [<file>|-]",
		Short: "Run Python, or another language, in a kernel",
		Long: `Run code in the kernel of a sandbox, from a file, standard input (-) or -c. Output
appears as the code prints it; displayed values and the value of the last
expression follow as text. On a terminal, escape sequences and other control
characters are left out. The status is 1 if the code raised an exception.

Without --sandbox, a sandbox is created for the command and killed at the end.
With --sandbox, the code sees the variables of earlier code. With --local
everything runs on this machine, in a cloud that ends with this command, or with
--sandbox in the one of e2bctl local up.`,
		Example: `  e2bctl code run --local -c 'import sys; sys.version'
  e2bctl code run --local --save-images out plot.py
  echo '6 * 7' | e2bctl code run --sandbox "$ID" - -o json`,
		Args: cmdutil.Wants("one file at most", cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.JSON, opts.Quiet = f.JSON(), f.Quiet()
			opts.HasCode = cmd.Flags().Changed("code")
			if len(args) == 1 {
				opts.File = args[0]
			}
			switch {
			case opts.HasCode == (opts.File != ""):
				return cmdutil.Usagef(cmd, "want one of: a file, - for standard input, -c CODE")
			case opts.Sandbox != "" && opts.Template != "":
				return cmdutil.Usagef(cmd, "--sandbox and --template exclude each other")
			case opts.Context != "" && (opts.Sandbox == "" || opts.Language != ""):
				return cmdutil.Usagef(cmd, "--context needs --sandbox, and excludes --language")
			}
			if opts.Sandbox != "" {
				opts.Open, err = f.SandboxOpener(cmd, isLocal, opts.Sandbox)
			} else {
				opts.Open, err = f.Opener(cmd, isLocal, cmdutil.LocalEphemeral, nil)
			}
			if err != nil {
				return err
			}
			return cmdutil.OwnFailure(runRun(cmd.Context(), opts))
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&opts.Code, "code", "c", "", "run `CODE`")
	flags.StringVarP(&opts.Sandbox, "sandbox", "s", "", "use the running sandbox `ID`")
	flags.StringVarP(&opts.Template, "template", "t", "", "create the sandbox from template `NAME`")
	flags.StringVar(&opts.Language, "language", "", "the code is in `LANGUAGE` (default: python)")
	flags.StringVar(&opts.Context, "context", "", "run in the context `ID`")
	flags.VarP(&opts.Envs, "env", "e", "environment variable for the code, repeatable")
	flags.StringVar(&opts.SaveImages, "save-images", "", "write images and PDFs to `DIR`")
	flags.Var(&opts.Timeout, "timeout", "interrupt the code after this time")
	cmdutil.AddLocalFlag(cmd, &isLocal)
	return cmd
}

func runRun(ctx context.Context, opts *runOptions) (err error) {
	code, err := opts.read()
	if err != nil {
		return err
	}
	ctx, cancel := cmdutil.WithLimit(ctx, "timeout", opts.Timeout)
	defer cancel()
	conn, err := opts.Open(ctx)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(conn, &err)
	var sb *sandbox.Sandbox
	if opts.Sandbox != "" {
		sb, err = conn.Connect(ctx, opts.Sandbox)
	} else {
		sb, err = conn.Create(ctx, sandbox.WithTemplate(opts.Template))
	}
	if err != nil {
		return err
	}
	defer cmdutil.Closing(sb, &err)

	images := imageSaver{dir: opts.SaveImages, tell: opts.IO.Err}
	if opts.Quiet {
		images.tell = io.Discard
	}
	stdout := &codeWriter{w: opts.IO.Out, terminal: opts.IO.OutIsTerminal}
	stderr := &codeWriter{w: opts.IO.Err, terminal: opts.IO.ErrIsTerminal}
	var shown error
	params := &sandbox.RunCodeParams{
		Context: opts.Context, Language: opts.Language, Envs: opts.Envs,
		Stdin: opts.answer(),
	}
	if !opts.JSON {
		params.Stdout, params.Stderr, params.MaxOutput = stdout, stderr, -1
		params.OnResult = func(r sandbox.Result) {
			if text := r.Text(); text != "" && shown == nil {
				shown = stdout.println(text)
			}
		}
	}
	execution, err := sb.RunCode(ctx, code, params)
	raised, isRaised := errors.AsType[*sandbox.ExecutionError](err)
	if err != nil && !isRaised {
		return &cmdutil.OwnError{Err: err, Running: true}
	}
	if err := errors.Join(shown, images.save(execution.Results)); err != nil {
		return err
	}
	if opts.JSON {
		if err := cmdutil.WriteJSON(opts.IO.Out, executionViewOf(sb.ID(), execution)); err != nil {
			return err
		}
	} else if isRaised {
		if err := stderr.println(strings.TrimRight(raised.Traceback, "\n")); err != nil {
			return err
		}
	}
	if isRaised {
		return cmdutil.RemoteStatus(1)
	}
	return nil
}
