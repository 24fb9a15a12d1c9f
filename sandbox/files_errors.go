package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"syscall"

	"github.com/e2bctl/e2bctl/api"
)

// failed returns the error of an operation on a path.
func (f *Files) failed(ctx context.Context, op, path string, err error) error {
	return f.pathError(op, path, asSystem(f.sb.cause(ctx, err)))
}

func (f *Files) pathError(op, path string, err error) error {
	return &fs.PathError{Op: op, Path: f.sb.ID() + ":" + path, Err: err}
}

func invalid(why string) error { return fmt.Errorf("%w: %s", fs.ErrInvalid, why) }

// reasons contains the texts with which the daemon reports errors of its operating system. A line
// break in a text matches the end of the message.
var reasons = []struct {
	words string
	err   error
}{
	{": no space left on device\n", syscall.ENOSPC},
	{": disk quota exceeded\n", syscall.ENOSPC},
	{": not a directory\n", syscall.ENOTDIR},
	{" not a directory: ", syscall.ENOTDIR},
	{"path is a file: ", syscall.ENOTDIR},
	{": is a directory\n", syscall.EISDIR},
	{"' is a directory\n", syscall.EISDIR},
	{"path is a directory: ", syscall.EISDIR},
	{": file exists\n", fs.ErrExist},
	{": directory not empty\n", syscall.ENOTEMPTY},
	{": permission denied\n", fs.ErrPermission},
	{": operation not permitted\n", fs.ErrPermission},
	{": no such file or directory\n", fs.ErrNotExist},
	{": file name too long\n", syscall.ENAMETOOLONG},
	{": invalid cross-device link\n", syscall.EXDEV},
}

// asSystem adds to err the operating system's error that the same failure causes on a local
// machine.
func asSystem(err error) error {
	e, ok := errors.AsType[*api.Error](err)
	if !ok {
		return err
	}
	for _, r := range reasons {
		if strings.Contains(e.Message+"\n", r.words) {
			err = fmt.Errorf("%w: %w", r.err, err)
			break
		}
	}
	switch {
	case e.StatusCode == http.StatusInsufficientStorage:
		return fmt.Errorf("%w: %w", syscall.ENOSPC, err)
	case errors.Is(e, api.ErrNotFound):
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	case errors.Is(e, api.ErrForbidden):
		return fmt.Errorf("%w: %w", fs.ErrPermission, err)
	case errors.Is(e, api.ErrInvalidArgument):
		return fmt.Errorf("%w: %w", fs.ErrInvalid, err)
	}
	return err
}
