package store

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	bolterrors "go.etcd.io/bbolt/errors"
)

// InUseError reports that another process has the store open.
type InUseError struct {
	Dir string
	PID int // 0: unknown
	// Elsewhere means that the process is in another container, where its id is different.
	Elsewhere bool
}

func (e *InUseError) Error() string {
	if e.Elsewhere {
		return "the state directory " + e.Dir + " is " + e.By() + ", whose local cloud has it: use another directory"
	}
	return "the state directory " + e.Dir + " is " + e.By() + ": end that local cloud (e2bctl local down), or use another directory"
}

// By returns a text that describes the process which has the store open, such as "in use by process
// 12".
func (e *InUseError) By() string {
	if e.Elsewhere {
		return "in use by another container that shares it"
	}
	if e.PID == 0 {
		return "in use by another process"
	}
	return fmt.Sprintf("in use by process %d", e.PID)
}

var (
	errDamaged = errors.New("it is damaged")
	errForeign = errors.New("it is the database of another program: use another directory")
)

// remedies contains the errors that have a remedy, and the texts of the remedies.
var remedies = []struct {
	err  error
	text string
}{
	{syscall.ENOSPC, "the disk is full: free space, or remove paused sandboxes (e2bctl local prune)"},
	{syscall.EDQUOT, "the quota of the disk is used up: free space, or remove paused sandboxes (e2bctl local prune)"},
	{syscall.ENODEV, "the file system cannot map files into memory: use a directory on a local disk"},
	{syscall.EROFS, "the file system is read-only: use another directory"},
	{fs.ErrPermission, "use a directory that this user can write to"},
	{bolterrors.ErrTimeout, "another program has the database open: end it, or use another directory"},
	{errDamaged, "nothing was changed: restore it from a copy, or move the directory away to begin with an empty one"},
}

// explain returns err with its remedy, if remedies has one.
func explain(err error) error {
	for _, remedy := range remedies {
		if errors.Is(err, remedy.err) {
			return fmt.Errorf("%w; %s", err, remedy.text)
		}
	}
	return err
}
