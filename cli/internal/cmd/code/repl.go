package code

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

func newCmdRepl(f *cmdutil.Factory) *cobra.Command {
	opts := &kernelOptions{IO: f.IO}
	cmd := &cobra.Command{
		Use:        "repl [flags] [<id>]",
		SuggestFor: []string{"shell", "python", "ipython", "console"},
		Short:      "Type Python, or another language, into a kernel",
		Long: `Type code into the kernel of a sandbox, and see its output and results. Without an ID, a
sandbox is created and killed at the end. With an ID, the code sees the variables of
earlier code, and its own variables stay.

Tab completes. In Python, name? shows help on a name, and name?? its source, too. Lines
that belong together, such as those of a function, are read until an empty line. The up
and down keys bring back earlier cells, each on one line: ` + newlineMark + ` stands for the end of a line
in a cell. Ctrl-R finds the latest cell that contains what is on the line, and again an
older one. Ctrl-C clears the line, or interrupts the code that runs; a second Ctrl-C gives
the code up, which may cost the variables. Ctrl-D ends.

Cells are kept for the next time, in a file of the user's state directory that only the
user can read. Code that calls input() asks here; the answers are not kept.

The flags are those of e2bctl code run.`,
		Example: `  e2bctl code repl --local
  e2bctl code repl "$ID"
  e2bctl code repl --local --upload data:data --package polars --save-images plots
  e2bctl code repl "$ID" --context "$CONTEXT"`,
		Args: cmdutil.Wants("the ID of one sandbox, or none for a new one", cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Progress = f.Progress()
			switch {
			case len(args) == 1 && opts.Sandbox != "":
				return cmdutil.Usagef(cmd, "%s and --sandbox %s: want one sandbox", args[0], opts.Sandbox)
			case len(args) == 1:
				opts.Sandbox = args[0]
			}
			if err := opts.check(cmd); err != nil {
				return err
			}
			switch {
			case f.JSON():
				return cmdutil.Usagef(cmd, "leave -o json out: a terminal shows the output; e2bctl code run has JSON")
			case !f.IO.InIsTerminal || !f.IO.OutIsTerminal:
				return cmdutil.Usagef(cmd, "code repl needs a terminal as standard input and output; e2bctl code run - runs code from a pipe or a file")
			}
			if err := opts.locate(cmd, f); err != nil {
				return err
			}
			return cmdutil.OwnFailure(replRun(cmd.Context(), opts))
		},
	}
	opts.add(cmd, "python")
	return cmd
}

func replRun(ctx context.Context, opts *kernelOptions) error {
	if err := opts.Transfers.Check(); err != nil {
		return err
	}
	return opts.within(ctx, "code repl", func(ctx context.Context, sb *sandbox.Sandbox) error {
		return newPrompt(opts, sb).run(ctx)
	})
}

// prompt reads cells from a terminal, and runs them in a kernel.
type prompt struct {
	kernelOptions
	sb      *sandbox.Sandbox
	console *console
	history *history
	stdout  *codeWriter
	stderr  *codeWriter

	python bool   // the kernel's language is Python, so help works as in Python
	deaf   bool   // the kernel does not answer questions about code, such as completions
	cell   string // the lines of the cell that were read before the current line
	images imageSaver
	hinted bool // the hint about keeping pictures was printed
}

func newPrompt(opts *kernelOptions, sb *sandbox.Sandbox) *prompt {
	return &prompt{kernelOptions: *opts, sb: sb, python: isPython(opts.Language)}
}

// run reads and runs cells until the user ends the prompt, ctx ends, or the sandbox is gone.
func (p *prompt) run(ctx context.Context) (err error) {
	if err := p.meet(ctx); err != nil {
		return err
	}
	if p.history, err = openHistory(); err != nil {
		fmt.Fprintf(p.IO.Err, "e2bctl: code repl: the history is not kept: %s\n", cmdutil.Message(err))
	}
	fmt.Fprintf(p.Progress, "sandbox %s; name? helps, Tab completes, Ctrl-C interrupts, Ctrl-D ends\n", cmdutil.Printable(p.sb.ID()))
	console, restore, err := openConsole(p.IO, p.history)
	if err != nil {
		return err
	}
	defer func() { err = cmdutil.KeepStatus(err, restore()) }()
	defer context.AfterFunc(ctx, func() { _ = restore() })() // now, because the remaining steps may take longer than the process lives
	p.console, console.complete = console, func(line string, cursor int) (string, int) { return p.complete(ctx, line, cursor) }
	p.stdout, p.stderr = &codeWriter{w: console.screen, terminal: true}, &codeWriter{w: console.screen, terminal: true}
	if !p.IO.ErrIsTerminal {
		p.stderr = &codeWriter{w: p.IO.Err}
	}
	p.images = imageSaver{dir: p.SaveImages, tell: console.screen}
	if p.Progress == io.Discard {
		p.images.tell = io.Discard
	}
	for {
		cell, err := p.read(ctx)
		switch {
		case errors.Is(err, errInterrupted):
			continue
		case errors.Is(err, io.EOF) || err == nil && p.ends(cell):
			return nil
		case err != nil:
			return err
		case strings.TrimSpace(cell) == "":
			continue
		}
		if err := p.history.keep(cell); err != nil {
			p.printLine("e2bctl: code repl: the history is not kept: " + cmdutil.Message(err))
		}
		if err := p.answer(ctx, cell); err != nil {
			return err
		}
	}
}

// meet sets python and deaf: whether the kernel's language is Python, and whether the kernel cannot
// answer questions about code.
func (p *prompt) meet(ctx context.Context) error {
	if p.Context != "" {
		contexts, err := p.sb.Contexts.List(ctx)
		if err != nil {
			return err
		}
		for _, c := range contexts {
			if string(c.ID) == p.Context {
				p.python = isPython(c.Language)
			}
		}
	}
	_, err := p.check(ctx, "")
	if errors.Is(err, sandbox.ErrNeedsWebsocket) {
		p.deaf = true
		fmt.Fprintf(p.IO.Err, "e2bctl: code repl: no completion, no help and no lines that belong together: %s\n", cmdutil.Message(err))
		return nil
	}
	return p.notStarted(err)
}

// ends reports whether a cell, such as exit(), would end a Python interpreter.
func (p *prompt) ends(cell string) bool {
	switch strings.TrimSpace(cell) {
	case "exit", "quit", "exit()", "quit()":
		return p.python
	}
	return false
}

// printLine writes a message of this command on a line of its own, between lines of the code's
// output.
func (p *prompt) printLine(text string) {
	p.console.screen.finish()
	fmt.Fprintln(p.console.screen, text)
}

// read reads the lines of a cell.
func (p *prompt) read(ctx context.Context) (string, error) {
	p.console.screen.finish()
	p.cell = ""
	indent := ""
	for first := true; ; first = false {
		prefix := "... "
		if first {
			prefix = ">>> "
		}
		line, err := p.console.line(ctx, prefix)
		if err != nil {
			return "", err
		}
		line = unmarked(line)
		if line == indent {
			line = "" // nothing was typed into it
		}
		p.cell += line
		if p.console.keys.inPaste {
			p.cell += "\n"
			continue
		}
		if first && strings.TrimSpace(line) == "" {
			return "", nil
		}
		check, err := p.checkPatiently(ctx)
		if err != nil {
			return "", err
		}
		if check.Verdict != sandbox.VerdictIncomplete {
			return strings.TrimRight(p.cell, "\n"), nil
		}
		p.cell += "\n"
		if indent = check.Indent; strings.Trim(indent, " ") == "" && !p.console.keys.isAhead() {
			p.console.keys.press(indent)
		} else {
			indent = ""
		}
	}
}

// check asks the kernel whether more lines belong to a cell.
func (p *prompt) check(ctx context.Context, cell string) (*sandbox.CodeCheck, error) {
	if _, _, isHelp := p.helpOn(cell); p.deaf || isHelp {
		return &sandbox.CodeCheck{Verdict: sandbox.VerdictUnknown}, nil
	}
	params := p.params()
	return p.sb.Contexts.Check(ctx, cell, &sandbox.CheckParams{Context: params.Context, Language: params.Language})
}

// checkPatiently checks the cell that is being read. Its only error is errInterrupted, after
// Ctrl-C. If the check fails, the verdict is unknown, and running the cell shows the cause.
func (p *prompt) checkPatiently(ctx context.Context) (*sandbox.CodeCheck, error) {
	ctx, done := p.patiently(ctx)
	defer done()
	check, err := p.check(ctx, p.cell)
	if errors.Is(context.Cause(ctx), errInterrupted) {
		return nil, errInterrupted
	}
	if err != nil {
		check = &sandbox.CodeCheck{Verdict: sandbox.VerdictUnknown}
	}
	return check, nil
}

// patiently returns a context that Ctrl-C cancels with the cause errInterrupted. done makes Ctrl-C
// a key of the line editor again. The caller must call done.
func (p *prompt) patiently(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	p.console.keys.during(func() {
		_, _ = p.console.screen.Write([]byte("^C\n"))
		cancel(errInterrupted)
	})
	return ctx, func() {
		p.console.keys.during(nil)
		cancel(nil)
	}
}

// answer shows help if the cell asks for it. Otherwise it runs the cell. An error ends the prompt.
func (p *prompt) answer(ctx context.Context, cell string) error {
	var err error
	if name, source, isHelp := p.helpOn(cell); isHelp {
		err = p.help(ctx, name, source)
	} else {
		err = p.execute(ctx, cell)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, sandbox.ErrGone) || errors.Is(err, sandbox.ErrClosed) {
		return &cmdutil.OwnError{Err: err, Running: true}
	}
	if err != nil {
		p.printLine("e2bctl: code repl: " + cmdutil.Message(err))
	}
	return nil
}
