package cmdutil

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/e2bctl/e2bctl/cli/internal/ci"
)

// idFlags are the flags for files that receive the ID of a new sandbox.
type idFlags struct {
	file   string     // the path of the file; "" means no file
	output stepOutput // the name of the output of the CI step; "" means no output
}

func (i *idFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&i.file, "name-file", "", "write the ID to `FILE` as soon as the sandbox exists")
	flags.Var(&i.output, "github-output", "set the output `NAME` of a step of GitHub Actions to the ID")
}

// stepOutput is a flag value that accepts the name of an output of a step.
type stepOutput string

func (o *stepOutput) Type() string   { return "NAME" }
func (o *stepOutput) String() string { return string(*o) }

func (o *stepOutput) Set(value string) error {
	switch {
	case !ci.IsOutputName(value):
		return errors.New("want letters, digits, - and _, with a letter or _ first")
	case os.Getenv(ci.OutputVariable) == "":
		return errors.New(ci.OutputVariable + " is not set, as it is in a step of GitHub Actions; --name-file works everywhere")
	}
	*o = stepOutput(value)
	return nil
}

// idFiles are the open files that receive the ID of a sandbox once it was created.
type idFiles struct {
	name   string   // the name to which beside is renamed after the ID was written
	beside *os.File // a temporary file in the directory of name; nil if no file is wanted
	output *os.File // the file for outputs of the step; nil if no output is wanted
	key    string   // the name of the output of the step
}

// open opens the files. It is called before the sandbox is created, so that no sandbox is created
// if a file cannot be written. It removes an existing file of --name-file, because that file
// contains the ID of another sandbox.
func (i *idFlags) open() (_ *idFiles, err error) {
	files := &idFiles{key: string(i.output)}
	defer func() {
		if err != nil {
			files.close()
		}
	}()
	if i.output != "" {
		files.output, err = os.OpenFile(os.Getenv(ci.OutputVariable), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return nil, fmt.Errorf("--github-output, with the file that %s names: %w", ci.OutputVariable, err)
		}
	}
	if i.file == "" {
		return files, nil
	}
	files.name = target(i.file)
	there, err := os.Lstat(files.name)
	switch {
	case err == nil && !there.Mode().IsRegular():
		return nil, fmt.Errorf("--name-file %s: this is not a regular file", Printable(i.file))
	case err == nil:
		err = os.Remove(files.name)
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	if err == nil {
		files.beside, err = os.OpenFile(filepath.Join(filepath.Dir(files.name), ".e2bctl-"+rand.Text()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	}
	if err != nil {
		return nil, fmt.Errorf("--name-file: %w", &fs.PathError{Op: "create", Path: i.file, Err: cause(err)})
	}
	return files, nil
}

// target returns the path to which a path leads if it is a symbolic link. The file there may be missing: an earlier
// command removed it, and created no sandbox.
func target(path string) string {
	if there, err := filepath.EvalSymlinks(path); err == nil {
		return there
	}
	to, err := os.Readlink(path)
	if err != nil || filepath.IsAbs(to) {
		return cmp.Or(to, path)
	}
	return filepath.Join(filepath.Dir(path), to)
}

// cause returns the cause inside err, without the paths that err contains. These would name the
// temporary file.
func cause(err error) error {
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		return failed.Err
	}
	if failed, ok := errors.AsType[*os.LinkError](err); ok {
		return failed.Err
	}
	return err
}

// write writes the ID to the files.
func (f *idFiles) write(id string) error {
	if f.beside != nil {
		_, err := fmt.Fprintln(f.beside, id)
		err = errors.Join(err, f.beside.Close())
		if err == nil {
			err = os.Rename(f.beside.Name(), f.name)
		}
		if err != nil {
			return fmt.Errorf("writing its ID to --name-file %s: %w", Printable(f.name), cause(err))
		}
		f.beside = nil
	}
	if f.output != nil {
		if _, err := f.output.WriteString(ci.Output(f.key, id)); err != nil {
			return fmt.Errorf("writing its ID to the file that %s names: %w", ci.OutputVariable, err)
		}
	}
	return nil
}

// close closes the files, and removes the temporary file if the ID was not written to it.
func (f *idFiles) close() {
	if f.output != nil {
		f.output.Close()
	}
	if f.beside != nil {
		f.beside.Close()
		_ = os.Remove(f.beside.Name()) // it is empty
	}
}
