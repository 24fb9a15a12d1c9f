package sandbox

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

// copier copies files and directories between this machine and a sandbox: a
// file through the file API, a directory as a tar stream.
type copier struct {
	sandbox *sandbox.Sandbox
	user    string
	warn    io.Writer

	// maxBytes and maxFiles bound each download, because code in the sandbox
	// decides how much there is to download.
	maxBytes, maxFiles int64
}

// upload copies a local file or the content of a local directory into the
// sandbox.
func (c *copier) upload(ctx context.Context, t transfer) error {
	info, err := os.Stat(t.source)
	if err != nil {
		return err
	}
	target := remotePath(t.target)
	switch {
	case info.IsDir():
		return c.sandbox.Files.UploadDir(ctx, t.source, target, &sandbox.UploadDirParams{User: c.user, Skipped: c.skipped})
	case strings.HasSuffix(t.target, "/"):
		target = path.Join(target, filepath.Base(t.source))
	}
	file, err := os.Open(t.source)
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
func (c *copier) download(ctx context.Context, t transfer) error {
	source := remotePath(t.source)
	err := c.sandbox.Files.DownloadDir(ctx, source, t.target, &sandbox.DownloadDirParams{
		User: c.user, MaxBytes: c.maxBytes, MaxFiles: c.maxFiles, Skipped: c.skipped,
	})
	if errors.Is(err, syscall.ENOTDIR) {
		err = c.downloadFile(ctx, source, t.target)
	}
	if errors.Is(err, sandbox.ErrTooLarge) {
		return fmt.Errorf("%w (--max-download %v, --max-files %d)", err, (*cmdutil.Size)(&c.maxBytes), c.maxFiles)
	}
	return err
}

func (c *copier) downloadFile(ctx context.Context, source, target string) error {
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
	_, err = io.CopyN(file, content, c.maxBytes)
	if err == nil {
		_, err = io.ReadFull(content, make([]byte, 1))
		if err == nil {
			err = fmt.Errorf("%w: the file has more than %d bytes", sandbox.ErrTooLarge, c.maxBytes)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, file.Close())
}

func (c *copier) skipped(name, why string) {
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
