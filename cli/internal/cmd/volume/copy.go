package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/e2bctl/e2bctl/api"
	"github.com/e2bctl/e2bctl/cli/internal/cmdutil"
	"github.com/e2bctl/e2bctl/sandbox"
)

// stream is stdin or stdout in place of a file.
const stream = "-"

// copyOptions are what a copy was asked to be.
type copyOptions struct {
	IO        *cmdutil.IOStreams
	Command   *cobra.Command // whose arguments are refused
	Volumes   *sandbox.Volumes
	Recursive bool
	MaxBytes  cmdutil.Size
	MaxFiles  cmdutil.Count
}

func newCmdCopy(f *cmdutil.Factory) *cobra.Command {
	opts := &copyOptions{IO: f.IO, MaxBytes: sandbox.DefaultMaxBytes, MaxFiles: sandbox.DefaultMaxFiles}
	cmd := command(f, &cobra.Command{
		Use:   "cp <source> <destination>",
		Short: "Copy files to a volume, or from one",
		Long: `Copy a file, or with -r a directory, to a volume or from one. What is in a volume is
<volume>:<path>, and - is stdin or stdout. A destination that ends in /, or that is a
directory, gets the source into it; <directory>/. is the content of a directory alone.
Files that exist are replaced, others stay.

-r keeps modes. Symbolic links are copied out of volumes where they lead nowhere else,
and not into volumes, because the API of volumes makes none: what is left out is said on
stderr.`,
		Example: `  e2bctl volume cp --local numbers.csv data:/input/
  e2bctl volume cp --local data:/results/report.html .
  e2bctl volume cp --local -r src data:/
  tar c src | e2bctl volume cp --local - data:/src.tar`,
		Args: cmdutil.Wants("a source and a destination", cobra.ExactArgs(2)),
	}, func(ctx context.Context, volumes *sandbox.Volumes, args []string) error {
		opts.Volumes = volumes
		from, source, download := cutPath(args[0])
		to, destination, upload := cutPath(args[1])
		if upload == download {
			return cmdutil.Usagef(opts.Command, "one of the two must be in a volume: <volume>:<path>")
		}
		if upload {
			return opts.copyTo(ctx, args[0], to, destination)
		}
		return opts.copyFrom(ctx, from, source, args[1])
	})
	opts.Command = cmd
	flags := cmd.Flags()
	flags.BoolVarP(&opts.Recursive, "recursive", "r", false, "copy directories, too")
	flags.Var(&opts.MaxBytes, "max-download", "most bytes of a directory that is copied out of a volume;\nwhat came until then stays")
	flags.Var(&opts.MaxFiles, "max-files", "most files, directories and links of one")
	return cmd
}

// copyTo copies a local file or directory to a volume.
func (o *copyOptions) copyTo(ctx context.Context, source, name, destination string) error {
	r := o.IO.In
	isDir := false
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
		r, isDir = file, info.IsDir()
	}
	if isDir && !o.Recursive {
		return cmdutil.Usagef(o.Command, "%s is a directory: copy it with -r", source)
	}
	v, err := o.Volumes.Open(ctx, name)
	if err != nil {
		return err
	}
	base := filepath.Base(source)
	into := strings.HasSuffix(destination, "/")
	switch {
	case source == stream && into:
		return cmdutil.Usagef(o.Command, "stdin has no name: name the file in the volume")
	case source == stream || base == "." || base == "..": // the content of a directory
	case into:
		destination = path.Join(destination, base)
	default:
		there, err := v.Stat(ctx, destination)
		if err == nil && there.Type == api.VolumeDirectory {
			destination = path.Join(destination, base)
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if isDir {
		return v.UploadDir(ctx, source, destination, &sandbox.VolumeUploadDirParams{Skipped: o.skipped})
	}
	return v.WriteFrom(ctx, destination, r, nil)
}

func (o *copyOptions) skipped(name, why string) {
	fmt.Fprintf(o.IO.Err, "skipped %s: %s\n", cmdutil.Printable(name), cmdutil.Printable(why))
}

// copyFrom copies a file or directory of a volume to this machine.
func (o *copyOptions) copyFrom(ctx context.Context, name, source, destination string) error {
	v, err := o.Volumes.Open(ctx, name)
	if err != nil {
		return err
	}
	base, ofContent := path.Base(path.Clean("/"+source)), path.Base(source) == "." || path.Clean("/"+source) == "/"
	if info, err := os.Stat(destination); destination != stream && !ofContent && (strings.HasSuffix(destination, "/") || err == nil && info.IsDir()) {
		destination = filepath.Join(destination, base)
	}
	if !o.Recursive {
		return o.copyFileFrom(ctx, v, source, destination)
	}
	switch there, err := v.Stat(ctx, source); {
	case err != nil:
		return err
	case there.Type != api.VolumeDirectory:
		return o.copyFileFrom(ctx, v, source, destination)
	case destination == stream:
		return cmdutil.Usagef(o.Command, "%s is a directory: name one to copy it to", source)
	}
	err = v.DownloadDir(ctx, source, destination, &sandbox.VolumeDownloadDirParams{
		MaxBytes: int64(o.MaxBytes), MaxFiles: int64(o.MaxFiles), Skipped: o.skipped,
	})
	if errors.Is(err, sandbox.ErrTooLarge) {
		return fmt.Errorf("%w (--max-download %v, --max-files %v)", err, &o.MaxBytes, &o.MaxFiles)
	}
	return err
}

// copyFileFrom copies a file of a volume to a local one, which is there only if all of it
// came.
func (o *copyOptions) copyFileFrom(ctx context.Context, v *sandbox.Volume, source, destination string) error {
	r, err := v.Open(ctx, source)
	if errors.Is(err, syscall.EISDIR) {
		return cmdutil.Usagef(o.Command, "%s:%s is a directory: copy it with -r", v.Name(), source)
	}
	if err != nil {
		return err
	}
	defer r.Close()
	if destination == stream {
		_, err = io.Copy(o.IO.Out, r)
		return err
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
