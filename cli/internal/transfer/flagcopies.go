package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

// Copier makes the copies for the flags of one command.
type Copier struct {
	flags   *Flags
	sandbox *sandbox.Sandbox
	user    string
	copy    Copy
}

// Check fails if a file to upload does not exist. Call it before a sandbox is created.
func (f *Flags) Check() error {
	for _, p := range f.uploads {
		if _, err := os.Stat(p.source); err != nil {
			return fmt.Errorf("uploading %s: %w", p.source, err)
		}
	}
	return nil
}

// In returns a Copier between this machine and sb. In the sandbox it acts as user. It reports
// skipped files to warn. It copies the content of a directory, never the directory itself.
func (f *Flags) In(sb *sandbox.Sandbox, user string, warn io.Writer) *Copier {
	return &Copier{flags: f, sandbox: sb, user: user, copy: Copy{
		IO: &cmdutil.IOStreams{Err: warn}, Recursive: true, OnlyContent: true,
		MaxBytes: f.maxBytes, MaxFiles: f.maxFiles, BoundFiles: true,
	}}
}

// Upload makes the uploads one after another, and stops at the first failure.
func (c *Copier) Upload(ctx context.Context) error {
	for _, p := range c.flags.uploads {
		if err := c.copy.Run(ctx, localFile(p.source), InSandbox(c.sandbox, c.user, p.target)); err != nil {
			return fmt.Errorf("uploading %s: %w", p.source, err)
		}
	}
	return nil
}

// DownloadAfter makes all downloads, for the e2bctl command called name. err is the result of that
// command. If err is a status that is not 0, DownloadAfter returns it, and writes failures of the
// downloads to standard error.
func (c *Copier) DownloadAfter(ctx context.Context, name string, err error) error {
	_, keep := errors.AsType[cmdutil.RemoteStatus](err)
	for _, p := range c.flags.downloads {
		failure := c.copy.Run(ctx, InSandbox(c.sandbox, c.user, p.source), localFile(p.target))
		if failure == nil {
			continue
		}
		failure = fmt.Errorf("downloading %s: %w", p.source, failure)
		err = cmdutil.KeepStatus(err, failure)
		if keep {
			fmt.Fprintf(c.copy.IO.Err, "e2bctl: %s: %s\n", name, cmdutil.Message(failure))
		}
	}
	return err
}

// localFile returns the end of a copy for a path of this machine. The path - means a file of that
// name, because stdin and stdout belong to the program that the command runs.
func localFile(path string) End {
	if path == stream {
		path = "./" + stream
	}
	return End{Path: path}
}
