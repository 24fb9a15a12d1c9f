package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/internal/shell"
	"github.com/e2bctl/e2bctl/sandbox"
)

// Copier makes the transfers of one command: a file through the file API, a
// directory as a tar stream.
type Copier struct {
	flags   *Flags
	sandbox *sandbox.Sandbox
	user    string
	warn    io.Writer
}

// Check fails when something to upload does not exist. It is for before a sandbox
// is created.
func (f *Flags) Check() error {
	for _, p := range f.uploads {
		if _, err := os.Stat(p.source); err != nil {
			return fmt.Errorf("uploading %s: %w", p.source, err)
		}
	}
	return nil
}

// In returns what makes the transfers with sb, as user, and writes to warn what it
// leaves out.
func (f *Flags) In(sb *sandbox.Sandbox, user string, warn io.Writer) *Copier {
	return &Copier{flags: f, sandbox: sb, user: user, warn: warn}
}

// Upload makes the uploads, up to the first that fails.
func (c *Copier) Upload(ctx context.Context) error {
	for _, p := range c.flags.uploads {
		if err := c.upload(ctx, p); err != nil {
			return fmt.Errorf("uploading %s: %w", p.source, err)
		}
	}
	return nil
}

// DownloadAfter makes all downloads, for the e2bctl command called name. Err is what
// came before: a status that is not 0 is kept, and what fails now is then written
// to warn.
func (c *Copier) DownloadAfter(ctx context.Context, name string, err error) error {
	_, keep := errors.AsType[cmdutil.RemoteStatus](err)
	for _, p := range c.flags.downloads {
		failure := c.download(ctx, p)
		if failure == nil {
			continue
		}
		failure = fmt.Errorf("downloading %s: %w", p.source, failure)
		err = cmdutil.KeepStatus(err, failure)
		if keep {
			fmt.Fprintf(c.warn, "e2bctl: %s: %s\n", name, cmdutil.Message(failure))
		}
	}
	return err
}

// upload copies a local file or the content of a local directory into the
// sandbox.
func (c *Copier) upload(ctx context.Context, p pair) error {
	info, err := os.Stat(p.source)
	if err != nil {
		return err
	}
	target := remotePath(p.target)
	switch {
	case info.IsDir():
		return c.sandbox.Files.UploadDir(ctx, p.source, target, &sandbox.UploadDirParams{User: c.user, Skipped: c.skipped})
	case strings.HasSuffix(p.target, "/"):
		target = path.Join(target, filepath.Base(p.source))
	}
	file, err := os.Open(p.source)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := c.sandbox.Files.WriteFrom(ctx, target, file, &sandbox.FileParams{User: c.user}); err != nil {
		return err
	}
	if info.Mode().Perm()&0o111 == 0 {
		return nil
	}
	_, err = c.sandbox.Commands.Run(ctx, "chmod +x -- "+shell.Quote(target), &sandbox.CommandParams{User: c.user})
	return err
}

// download copies a file, or the content of a directory, out of the sandbox.
func (c *Copier) download(ctx context.Context, p pair) error {
	source := remotePath(p.source)
	err := c.sandbox.Files.DownloadDir(ctx, source, p.target, &sandbox.DownloadDirParams{
		User: c.user, MaxBytes: int64(c.flags.maxBytes), MaxFiles: int64(c.flags.maxFiles), Skipped: c.skipped,
	})
	if errors.Is(err, syscall.ENOTDIR) {
		err = c.downloadFile(ctx, source, p.target)
	}
	if errors.Is(err, sandbox.ErrTooLarge) {
		return fmt.Errorf("%w (--max-download %v, --max-files %v)", err, &c.flags.maxBytes, &c.flags.maxFiles)
	}
	return err
}

func (c *Copier) downloadFile(ctx context.Context, source, target string) error {
	content, err := c.sandbox.Files.Open(ctx, source, &sandbox.FileParams{User: c.user})
	if err != nil {
		return err
	}
	defer content.Close()
	info, err := os.Stat(target)
	if strings.HasSuffix(target, "/") || strings.HasSuffix(target, string(filepath.Separator)) || err == nil && info.IsDir() {
		target = filepath.Join(target, path.Base(source))
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	file, err := os.Create(target)
	if err != nil {
		return err
	}
	_, err = io.CopyN(file, content, int64(c.flags.maxBytes))
	if err == nil {
		_, err = io.ReadFull(content, make([]byte, 1))
		if err == nil {
			err = fmt.Errorf("%w: the file has more than %d bytes", sandbox.ErrTooLarge, int64(c.flags.maxBytes))
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, file.Close())
}

func (c *Copier) skipped(name, why string) {
	fmt.Fprintf(c.warn, "skipped %s: %s\n", cmdutil.Printable(name), cmdutil.Printable(why))
}

// remotePath converts a path from the command line to one that the sandbox's
// file API and its shell read the same way: relative paths start at the user's
// home.
func remotePath(name string) string {
	if name == "~" {
		return "."
	}
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		return path.Clean("./" + strings.TrimLeft(rest, "/"))
	}
	return path.Clean(name)
}
