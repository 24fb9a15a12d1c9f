package code

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

type runOptions struct {
	kernelOptions
	JSON      bool
	Code      string // the code after -c; valid only if HasCode is set, and may then be empty
	HasCode   bool
	File      string   // the path of a file with the code, or - for standard input
	Arguments []string // the arguments of the code
	Timeout   cmdutil.Duration
}

func newCmdRun(f *cmdutil.Factory) *cobra.Command {
	opts := &runOptions{kernelOptions: kernelOptions{IO: f.IO}}
	cmd := &cobra.Command{
		Use:   "run [flags] [<file>|-] [--] [<argument>...]",
		Short: "Run Python, or another language, in a kernel",
		Long: `Run code in the kernel of a sandbox, from a file, standard input (-) or -c. Output
appears as the code prints it; displayed values and the value of the last
expression follow as text. On a terminal, escape sequences and other control
characters are left out. The status is 1 if the code raised an exception.

The name of the file chooses the language (.py, .js, .ts, .sh, .r, .java), unless
--language does. Arguments are for Python (sys.argv), JavaScript and TypeScript
(process.argv) and Bash ($1); one that begins with a dash comes after --, as those
of -c do.

Without --sandbox, a sandbox is created for the command and killed at the end.
With --sandbox, the code sees the variables of earlier code. With --local
everything runs on this machine, in a cloud that ends with this command; --memory,
--cpus, --disk and --pids are its limits, and on a service the template decides. A
sandbox of e2bctl local up is found without --local.

--upload and --package come before the code, --download after it, even if it raised
an exception. Paths in the sandbox are relative to the user's home, where the code
runs unless --workdir says another directory. With --sandbox, --workdir runs the code
in a context of its own, without the variables of earlier code.`,
		Example: `  e2bctl code run --local -c 'import sys; sys.version'
  e2bctl code run --local --save-images out plot.py
  e2bctl code run --local --no-internet --upload data:data --download report.csv:. report.py data -- --top 10
  e2bctl code run --package 'polars>=1' --allow-out pypi.org,files.pythonhosted.org --deny-out 0.0.0.0/0 polars.py
  echo '6 * 7' | e2bctl code run --sandbox "$ID" - -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.JSON, opts.Progress = f.JSON(), f.Progress()
			if err := opts.parse(cmd, args); err != nil {
				return err
			}
			if err := opts.locate(cmd, f); err != nil {
				return err
			}
			return cmdutil.OwnFailure(runRun(cmd.Context(), opts))
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&opts.Code, "code", "c", "", "run `CODE`")
	flags.Var(&opts.Timeout, "timeout", "interrupt the code after this time")
	opts.add(cmd, "that of the file's name, or python")
	return cmd
}

// parse takes the code, its arguments and its language from the command line.
func (opts *runOptions) parse(cmd *cobra.Command, args []string) error {
	opts.HasCode = cmd.Flags().Changed("code")
	files := args
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		files = args[:dash]
	}
	opts.Arguments = args
	if len(files) > 0 && !opts.HasCode {
		opts.File, opts.Arguments = args[0], args[1:]
	}
	switch {
	case opts.HasCode == (len(files) > 0):
		return cmdutil.Usagef(cmd, "want one of: a file, - for standard input, -c CODE; arguments of -c come after --")
	case strings.EqualFold(filepath.Ext(opts.File), ".ipynb"):
		return cmdutil.Usagef(cmd, "%s is a notebook, not a program: write its code to a file with jupyter nbconvert --to script", opts.File)
	}
	if err := opts.check(cmd); err != nil {
		return err
	}
	if opts.Language == "" && opts.Context == "" {
		opts.Language = languageOf(opts.File)
	}
	return nil
}

func runRun(ctx context.Context, opts *runOptions) error {
	code, err := opts.read(ctx)
	if err != nil {
		return err
	}
	prelude, err := opts.prelude()
	if err != nil {
		return err
	}
	if err := opts.Transfers.Check(); err != nil {
		return err
	}
	ctx, cancel := cmdutil.WithLimit(ctx, "timeout", opts.Timeout)
	defer cancel()
	return opts.within(ctx, "code run", func(ctx context.Context, sb *sandbox.Sandbox) error {
		if err := opts.begin(ctx, sb, prelude); err != nil {
			return err
		}
		return opts.execute(ctx, sb, code)
	})
}

// prelude returns code to run before the user's code, or "" for none. For a Python file, the
// prelude sets sys.argv as python3 does, even if there are no arguments. Otherwise the file would
// see the kernel's arguments, which make argument parsers fail.
func (o *runOptions) prelude() (string, error) {
	name := o.File
	switch {
	case o.isScript():
		return beginScript(name, o.Arguments), nil
	case len(o.Arguments) == 0:
		return "", nil
	case o.HasCode:
		name = "-c"
	}
	return argumentsCode(o.Language, name, o.Arguments)
}

// begin runs the prelude, and does nothing if it is "".
func (o *runOptions) begin(ctx context.Context, sb *sandbox.Sandbox, prelude string) error {
	if prelude == "" {
		return nil
	}
	params := o.params()
	if _, err := sb.RunCode(ctx, prelude, &params); err != nil {
		return fmt.Errorf("passing the arguments: %w", o.notStarted(err))
	}
	return nil
}

// execute runs the code and shows its output and result. If the code raised an exception it
// returns a cmdutil.RemoteStatus.
func (o *runOptions) execute(ctx context.Context, sb *sandbox.Sandbox, code string) error {
	images := imageSaver{dir: o.SaveImages, tell: o.Progress}
	stdout := &codeWriter{w: o.IO.Out, terminal: o.IO.OutIsTerminal}
	stderr := &codeWriter{w: o.IO.RawErr, terminal: o.IO.ErrIsTerminal}
	var shown error
	params := o.params()
	params.Envs, params.Stdin = o.Envs, o.answer()
	if !o.JSON {
		params.Stdout, params.Stderr, params.MaxOutputBytes = stdout, stderr, -1
		params.OnResult = func(r sandbox.Result) {
			// A program itself prints the output for its readers.
			silent := o.isScript() && !o.IO.OutIsTerminal && (r.Main || len(imagesOf(r)) > 0)
			if text := r.Text(); text != "" && shown == nil && !silent {
				shown = stdout.println(text)
			}
		}
	}
	execution, err := sb.RunCode(ctx, code, &params)
	raised, isRaised := errors.AsType[*sandbox.ExecutionError](o.notStarted(err))
	if err != nil && !isRaised {
		return o.givenUp(stderr, execution, err)
	}
	if err := errors.Join(shown, images.save(execution.Results)); err != nil {
		return err
	}
	if isRaised && !o.JSON && !o.exits(raised) {
		if err := stderr.println(strings.TrimRight(raised.Traceback, "\n")); err != nil {
			return err
		}
	}
	var status error
	switch {
	case o.isScript():
		status = o.endScript(ctx, sb, execution, params, raised)
	case isRaised:
		status = cmdutil.RemoteStatus(1)
	}
	if _, ok := errors.AsType[cmdutil.RemoteStatus](status); o.JSON && (status == nil || ok) {
		if err := cmdutil.WriteJSON(o.IO.Out, executionViewOf(sb.ID(), execution)); err != nil {
			return err
		}
	}
	return status
}

// givenUp returns err as the error of code whose end is unknown. When --timeout ends or after
// Ctrl-C, the code reports where it was interrupted. If that report has arrived, givenUp writes it
// first.
func (o *runOptions) givenUp(stderr *codeWriter, execution *sandbox.Execution, err error) error {
	if execution != nil && execution.Error != nil && !o.JSON {
		if err := stderr.println(strings.TrimRight(execution.Error.Traceback, "\n")); err != nil {
			return err
		}
	}
	return &cmdutil.OwnError{Err: o.notStarted(err), Running: true}
}
