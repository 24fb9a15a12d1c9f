package volumes

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// batch is the number of names that are read at a time from a directory.
const batch = 1024

// List describes the entries of a directory and of its subdirectories, ordered by path. depth is
// the number of levels. List does not follow links in the directory. Entries that are added or
// removed while List runs may be missing. The errors include [ErrNotDir] and [ErrTooLong].
func (c *Content) List(ctx context.Context, name string, depth int) ([]Entry, error) {
	name, err := clean(name)
	if err != nil {
		return nil, err
	}
	type level struct {
		name  string
		depth int
	}
	entries := []Entry{} // the list of an empty directory is not nil
	for waiting := []level{{name, depth}}; len(waiting) > 0; {
		next := waiting[len(waiting)-1]
		waiting = waiting[:len(waiting)-1]
		from := len(entries)
		entries, err = c.appendDir(ctx, entries, next.name)
		if err != nil && (next.name == name || !gone(err)) {
			return nil, err
		}
		if next.depth <= 1 {
			continue
		}
		for _, e := range entries[from:] {
			if e.Kind == Directory && len(e.Path) < maxPath {
				waiting = append(waiting, level{strings.TrimPrefix(e.Path, "/"), next.depth - 1})
			}
		}
	}
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	return entries, nil
}

// gone reports whether err means that a directory no longer exists.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNotDir) }

// appendDir appends the entries of one directory to entries.
func (c *Content) appendDir(ctx context.Context, entries []Entry, name string) ([]Entry, error) {
	dir, err := c.root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, unix.ENOTDIR) {
		if e, err := c.Stat(name); err == nil && e.Kind != Symlink {
			return entries, ErrNotDir
		}
	}
	if err != nil {
		return entries, explain(err)
	}
	defer dir.Close()
	for {
		if err := ctx.Err(); err != nil {
			return entries, context.Cause(ctx)
		}
		names, err := dir.Readdirnames(batch)
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if err != nil {
			return entries, err
		}
		if len(entries)+len(names) > maxEntries {
			return entries, ErrTooLong
		}
		for _, base := range names {
			var stat unix.Stat_t
			err := unix.Fstatat(int(dir.Fd()), base, &stat, unix.AT_SYMLINK_NOFOLLOW)
			if err == nil {
				var e Entry
				if e, err = c.entryOf(path.Join(name, base), &stat, int(dir.Fd()), base); err == nil {
					entries = append(entries, e)
					continue
				}
			}
			// The entry was removed or replaced meanwhile.
			if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
				return entries, err
			}
		}
	}
}
