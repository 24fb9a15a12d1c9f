package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

// stream is stdin or stdout in place of a file.
const stream = "-"

func newCmdCopy(f *cmdutil.Factory) *cobra.Command {
	return command(f, &cobra.Command{
		Use:   "cp <source> <destination>",
		Short: "Copy a file to a volume, or from one",
		Long: `Copy one file to a volume, or from one. What is in a volume is <volume>:<path>, and
- is stdin or stdout. A destination that ends in / is a directory, which keeps the
name of the file. A file that exists is replaced.`,
		Example: `  e2bctl volume cp --local numbers.csv data:/input/
  e2bctl volume cp --local data:/results/report.html .
  tar c src | e2bctl volume cp --local - data:/src.tar`,
		Args: cmdutil.Wants("a source and a destination", cobra.ExactArgs(2)),
	}, func(ctx context.Context, volumes *sandbox.Volumes, args []string) error {
		from, source, download := cutPath(args[0])
		to, destination, upload := cutPath(args[1])
		if upload == download {
			return errors.New("one of the two must be in a volume: <volume>:<path>")
		}
		if upload {
			return copyTo(ctx, f.IO, volumes, args[0], to, destination)
		}
		return copyFrom(ctx, f.IO, volumes, from, source, args[1])
	})
}

// copyTo copies a local file to a volume.
func copyTo(ctx context.Context, streams *cmdutil.IOStreams, volumes *sandbox.Volumes, source, name, destination string) error {
	r := streams.In
	if source != stream {
		file, err := os.Open(source)
		if err != nil {
			return err
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return err
		}
		if info.IsDir() {
			return fmt.Errorf("%s is a directory: copy a tar of it instead", source)
		}
		r = file
	}
	if strings.HasSuffix(destination, "/") {
		if source == stream {
			return errors.New("stdin has no name: name the file in the volume")
		}
		destination = path.Join(destination, filepath.Base(source))
	}
	v, err := volumes.Open(ctx, name)
	if err != nil {
		return err
	}
	return v.WriteFrom(ctx, destination, r, nil)
}

// copyFrom copies a file of a volume to a local one, which is there only if all of it
// came.
func copyFrom(ctx context.Context, streams *cmdutil.IOStreams, volumes *sandbox.Volumes, name, source, destination string) error {
	v, err := volumes.Open(ctx, name)
	if err != nil {
		return err
	}
	r, err := v.Open(ctx, source)
	if err != nil {
		return err
	}
	defer r.Close()
	if destination == stream {
		_, err = io.Copy(streams.Out, r)
		return err
	}
	info, err := os.Stat(destination)
	if strings.HasSuffix(destination, "/") || err == nil && info.IsDir() {
		destination = filepath.Join(destination, path.Base(path.Clean("/"+source)))
	}
	file, err := os.CreateTemp(filepath.Dir(destination), "."+filepath.Base(destination)+".*")
	if err != nil {
		return err
	}
	_, err = io.Copy(file, r)
	if err = errors.Join(err, file.Chmod(0o644), file.Close()); err == nil {
		err = os.Rename(file.Name(), destination)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}
