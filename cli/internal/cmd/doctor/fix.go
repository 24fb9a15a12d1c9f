package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/shell"
)

type fixOptions struct {
	Fix     bool
	Yes     bool
	Program string // print the profile of this program; "" means that e2bctl itself is mended
}

func (o *fixOptions) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&o.Fix, "fix", false, "on Ubuntu, let AppArmor allow full isolation to e2bctl,\nafter a question")
	flags.BoolVarP(&o.Yes, "yes", "y", false, "with --fix: do not ask")
	flags.StringVar(&o.Program, "program", "", "with --fix: only print the profile that `FILE` needs,\na program with package local")
}

// check refuses flags that have no meaning together.
func (o *fixOptions) check(cmd *cobra.Command) error {
	flags := cmd.Flags()
	for _, name := range []string{"yes", "program"} {
		if flags.Changed(name) && !o.Fix {
			return cmdutil.Usagef(cmd, "--%s needs --fix", name)
		}
	}
	switch {
	case flags.Changed("program") && o.Program == "":
		return cmdutil.Usagef(cmd, "--program needs the path of a program")
	case o.Fix && flags.Changed("engine"):
		return cmdutil.Usagef(cmd, "--fix mends the isolation of the engine room, so it takes no --engine")
	}
	return nil
}

// fixView describes a mend, or the profile of a program, as -o json shows it.
type fixView struct {
	Changed bool   `json:"changed"`           // whether anything of this machine was changed
	Program string `json:"program"`           // the program that has full isolation, or whose profile this is
	Profile string `json:"profile,omitempty"` // the file of the profile
	Text    string `json:"text,omitempty"`    // the profile, with --program
}

// fixRun mends the isolation, or prints the profile of another program.
func fixRun(cmd *cobra.Command, opts *doctorOptions) error {
	if opts.Fix.Program != "" {
		return printProfile(opts.Factory, opts.Fix.Program)
	}
	view, err := mend(cmd.Context(), opts.Factory, func(ctx context.Context, question string) error {
		ios := opts.Factory.IO
		switch {
		case opts.Fix.Yes:
			return nil
		case !ios.InIsTerminal:
			return cmdutil.Usagef(cmd, "it asks first, but there is no terminal: add --yes; the question is: %s", question)
		}
		return cmdutil.Confirm(ctx, ios, cmdutil.Printable(question))
	})
	switch {
	case err != nil:
		return err
	case opts.Factory.JSON():
		return cmdutil.WriteJSON(opts.Factory.IO.Out, view)
	case opts.Factory.Quiet():
	case !view.Changed:
		fmt.Fprintf(opts.Factory.IO.Err, "There is nothing to mend: %s has full isolation\n", cmdutil.Printable(view.Program))
	default:
		fmt.Fprintf(opts.Factory.IO.Err, "%s has full isolation now, by the profile %s. To undo it: sudo apparmor_parser --remove %[2]s && sudo rm %[2]s\n", cmdutil.Printable(view.Program), view.Profile)
	}
	return nil
}

// printProfile prints the profile of a program, and how it is loaded.
func printProfile(f *cmdutil.Factory, program string) error {
	path, err := filepath.Abs(program)
	if err == nil {
		path, err = filepath.EvalSymlinks(path) // AppArmor compares the path of the file itself
	}
	if err != nil {
		return fmt.Errorf("--program: %w", err)
	}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return errors.Join(fmt.Errorf("--program: %s is no file", path), err)
	}
	p, err := profileOf(path)
	if err != nil {
		return err
	}
	if f.JSON() {
		return cmdutil.WriteJSON(f.IO.Out, fixView{Program: path, Profile: p.path(), Text: p.Text})
	}
	fmt.Fprint(f.IO.Out, p.Text)
	if !f.Quiet() {
		file := shell.Quote(p.path())
		fmt.Fprintf(f.IO.Err, "Write it to %s, and run: sudo apparmor_parser --replace %[1]s\nLet only root write to the program: whoever can replace it gets user namespaces, too\n", file)
	}
	return nil
}
