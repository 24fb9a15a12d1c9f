package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/e2bctl/e2bctl/sandbox"
)

// copier moves files and directories between this machine and a sandbox: a file
// through the file API, a directory as a tar stream.
type copier struct {
	sandbox *sandbox.Sandbox
	user    string
	warn    io.Writer
}

// upload copies a local file or the content of a local directory.
func (c *copier) upload(ctx context.Context, t transfer) error {
	info, err := os.Stat(t.source)
	if err != nil {
		return err
	}
	target := remotePath(t.target)
	switch {
	case info.IsDir():
		return c.uploadTree(ctx, t.source, target)
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
	return c.shell(ctx, "chmod +x -- "+shellQuote(target), nil)
}

// uploadTree sends the archive as a file, because a request body streams at the
// speed of the line, and the input of a process goes chunk by chunk.
func (c *copier) uploadTree(ctx context.Context, dir, target string) (err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer closing(root, &err)
	archive := path.Join("/tmp", "e2bctl-"+rand.Text()+".tar")
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := packTree(ctx, w, root, c.skipped)
		w.CloseWithError(err)
		packed <- err
	}()
	err = c.sandbox.Files.WriteFrom(ctx, archive, r, &sandbox.FileParams{User: c.user})
	r.CloseWithError(errors.New("the upload ended"))
	if packErr := <-packed; err == nil {
		err = packErr
	}
	if err != nil {
		return err
	}
	line := fmt.Sprintf("mkdir -p -- %[1]s && tar -x -f %[2]s -C %[1]s; s=$?; rm -f %[2]s; exit $s", shellQuote(target), archive)
	return c.shell(ctx, line, nil)
}

// download copies a file, or the content of a directory, out of the sandbox.
func (c *copier) download(ctx context.Context, t transfer) error {
	source := remotePath(t.source)
	err := c.shell(ctx, "test -d "+shellQuote(source), nil)
	exit, exited := errors.AsType[*sandbox.ExitError](err)
	switch {
	case err == nil:
		return c.downloadTree(ctx, source, t.target)
	case exited && exit.Result.ExitCode == 1:
		return c.downloadFile(ctx, source, t.target)
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
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}

func (c *copier) downloadTree(ctx context.Context, source, target string) (err error) {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(target)
	if err != nil {
		return err
	}
	defer closing(root, &err)
	r, w := io.Pipe()
	unpacked := make(chan error, 1)
	go func() {
		err := unpackTree(ctx, r, root, c.skipped)
		if err == nil {
			_, err = io.Copy(io.Discard, r) // tar pads its end
		}
		r.CloseWithError(err)
		unpacked <- err
	}()
	err = c.shell(ctx, "tar -c -f - -C "+shellQuote(source)+" .", w)
	w.CloseWithError(err)
	// What broke the archive is the better reason when both failed.
	if unpackErr := <-unpacked; unpackErr != nil {
		return unpackErr
	}
	return err
}

// messageBytes is enough of an output to tell why a command failed.
const messageBytes = 4096

// shell runs a line of e2bctl's own in the sandbox. Its error tells the last
// thing the command said.
func (c *copier) shell(ctx context.Context, line string, stdout io.Writer) error {
	params := &sandbox.CommandParams{User: c.user, Stdout: stdout, MaxOutput: messageBytes}
	_, err := c.sandbox.Commands.Run(ctx, line, params)
	return err
}

func (c *copier) skipped(name, why string) {
	fmt.Fprintf(c.warn, "skipped %s: %s\n", printable(name), printable(why))
}
