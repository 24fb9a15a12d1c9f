package code

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/cli/internal/transfer"
	"github.com/e2bctl/e2bctl/sandbox"
)

// kernelOptions are the options of every command that runs code:
// the kernel, its sandbox, and the sandbox's uploads and packages.
type kernelOptions struct {
	IO        *cmdutil.IOStreams
	Progress  io.Writer
	Open      cmdutil.Opener
	Sandbox   string // the ID of the sandbox; "": a new sandbox for this command
	New       cmdutil.NewSandboxFlags
	Transfers transfer.Flags
	Language  string
	Context   string
	// the directory in which code runs; "": the home, or the directory of the context
	Workdir    string
	made       sandbox.ContextID // the context made for Workdir
	Envs       cmdutil.KeyValues
	SaveImages string
	isLocal    bool
}

// add adds the flags. language is the default language.
func (o *kernelOptions) add(cmd *cobra.Command, language string) {
	flags := cmd.Flags()
	flags.StringVarP(&o.Sandbox, "sandbox", "s", "", "use the running sandbox `ID`")
	flags.StringVar(&o.Language, "language", "", "the code is in `LANGUAGE` (default: "+language+")")
	flags.StringVar(&o.Context, "context", "", "run in the context `ID`")
	flags.StringVarP(&o.Workdir, "workdir", "w", "", "run in `DIR`, relative to the user's home")
	flags.VarP(&o.Envs, "env", "e", "environment variable for the code, repeatable")
	flags.StringVar(&o.SaveImages, "save-images", "", "write images and PDFs to `DIR`")
	o.New.Add(cmd, "how long the sandbox may live (default: as long as this command)")
	o.Transfers.Add(cmd, "the code")
	cmdutil.AddLocalFlag(cmd, &o.isLocal)
}

// check refuses flags that exclude each other.
func (o *kernelOptions) check(cmd *cobra.Command) error {
	name := o.New.Changed()
	switch {
	case o.Context != "" && (o.Sandbox == "" || o.Language != ""):
		return cmdutil.Usagef(cmd, "--context needs --sandbox, and excludes --language")
	case o.Context != "" && o.Workdir != "":
		return cmdutil.Usagef(cmd, "--context and --workdir exclude each other: the context has its directory already")
	case o.Sandbox != "" && name != "":
		return cmdutil.Usagef(cmd, "--sandbox and --%s exclude each other: the sandbox already exists", name)
	}
	return nil
}

// locate chooses the connection to the service that has the sandbox.
func (o *kernelOptions) locate(cmd *cobra.Command, f *cmdutil.Factory) (err error) {
	if o.Sandbox != "" {
		o.Open, err = f.SandboxOpener(cmd, o.isLocal, o.Sandbox)
	} else {
		o.Open, err = f.Opener(cmd, o.isLocal, cmdutil.LocalEphemeral, &o.New.Resources)
	}
	return err
}

// sandbox connects to the sandbox, or creates one that ends when the handle is closed.
func (o *kernelOptions) sandbox(ctx context.Context, conn *cmdutil.Connection) (*sandbox.Sandbox, error) {
	if o.Sandbox != "" {
		return conn.Connect(ctx, o.Sandbox, sandbox.WithExpiry(sandbox.Expiry{Renew: true})) // as exec does
	}
	return o.New.Create(ctx, conn)
}

// within opens and prepares the sandbox, calls do with it, and then makes the downloads. name is
// the command's name. If do returns a cmdutil.RemoteStatus, within still makes the downloads, and
// returns that status. If do returns any other error, within downloads nothing.
func (o *kernelOptions) within(ctx context.Context, name string, do func(context.Context, *sandbox.Sandbox) error) (err error) {
	conn, err := o.Open(ctx)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(conn, &err)
	sb, err := o.sandbox(ctx, conn)
	if err != nil {
		return err
	}
	defer cmdutil.Closing(sb, &err)
	copier := o.Transfers.In(sb, "", o.IO.Err)
	if err := o.prepare(ctx, sb, copier); err != nil {
		return err
	}
	leave, err := o.enterWorkdir(ctx, sb)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave()) }()
	err = do(ctx, sb)
	if _, ok := errors.AsType[cmdutil.RemoteStatus](err); err != nil && !ok {
		return err
	}
	return copier.DownloadAfter(ctx, name, err)
}

// prepare uploads the files and installs the packages that the flags name.
func (o *kernelOptions) prepare(ctx context.Context, sb *sandbox.Sandbox, copier *transfer.Copier) error {
	if err := copier.Upload(ctx); err != nil {
		return err
	}
	return o.New.Install(ctx, sb, o.Progress)
}

// params returns the context and the language of the run. A context that was made for --workdir
// takes precedence.
func (o *kernelOptions) params() sandbox.RunCodeParams {
	if o.made != "" {
		return sandbox.RunCodeParams{Context: o.made}
	}
	return sandbox.RunCodeParams{Context: sandbox.ContextID(o.Context), Language: o.Language}
}

// enterWorkdir creates a context with the directory of --workdir. The code then runs in this
// context. leave removes the context. Without --workdir, enterWorkdir and leave do nothing.
func (o *kernelOptions) enterWorkdir(ctx context.Context, sb *sandbox.Sandbox) (leave func() error, err error) {
	if o.Workdir == "" {
		return func() error { return nil }, nil
	}
	dir, err := sb.Files.Stat(ctx, o.Workdir, nil)
	if err == nil && !dir.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, fmt.Errorf("running in --workdir %s: %w", o.Workdir, err)
	}
	made, err := sb.Contexts.Create(ctx, &sandbox.CodeContextParams{Language: o.Language, Cwd: dir.Path})
	if err != nil {
		return nil, fmt.Errorf("running in --workdir %s: %w", o.Workdir, o.notStarted(err))
	}
	o.made = made.ID
	return func() error { return sb.Contexts.Remove(context.WithoutCancel(ctx), made.ID) }, nil
}

// notStarted returns the cause if err means that the code never ran: the language of the kernel is
// unknown, or the kernel could not start. Otherwise it returns err.
func (o *kernelOptions) notStarted(err error) error {
	if errors.Is(err, sandbox.ErrUnknownLanguage) {
		return fmt.Errorf("%w: %s", sandbox.ErrUnknownLanguage, o.Language)
	}
	raised, ok := errors.AsType[*sandbox.ExecutionError](err)
	if !ok || raised.Name != "KernelStartError" || strings.Contains(strings.TrimSpace(raised.Traceback), "\n") {
		return err
	}
	return errors.New("the kernel cannot start: " + strings.TrimSpace(raised.Value))
}
