package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Kept describes the directory of a record in a state directory.
type Kept struct {
	ID    string
	Saved time.Time // time when the files were saved
	Bytes int64     // bytes on the disk, as far as this user can read the directory
	Dir   string    // path of the directory
}

// Survey lists the directories of a table's records in the state directory dir, ordered by id. A
// process may have the store open. Some of the listed directories may then soon be removed. If the
// state directory does not exist, the list is empty.
func Survey(ctx context.Context, dir string, table Table) ([]Kept, error) {
	names, err := os.ReadDir(filepath.Join(dir, published))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the state directory %s: %w", dir, explain(err))
	}
	var all []Kept
	for _, name := range names {
		id, rest, _ := strings.Cut(name.Name(), ".")
		_, of, named := strings.Cut(rest, ".")
		if !named {
			of = string(Sandboxes)
		}
		info, err := name.Info()
		if err != nil || check(table, id) != nil || of != string(table) {
			continue // removed meanwhile, or not in the table
		}
		at := filepath.Join(dir, published, name.Name())
		bytes, err := size(ctx, at)
		if err != nil {
			return nil, err
		}
		one := Kept{ID: id, Saved: info.ModTime(), Bytes: bytes, Dir: at}
		if last := len(all) - 1; last >= 0 && all[last].ID == id { // the directory is being replaced
			one.Bytes += all[last].Bytes
			all = all[:last]
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Kept) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}

// Usage returns the bytes that the directories of a table's records take on the disk, keyed by
// record id. It measures a directory only once, except for volumes, which change.
func (s *Store) Usage(ctx context.Context, table Table) (map[string]int64, error) {
	all, _ := s.Records(table) // damaged records are left out
	s.measuring.Lock()
	defer s.measuring.Unlock()
	if s.sizes == nil {
		s.sizes = map[string]int64{}
	}
	bytes := map[string]int64{}
	for _, r := range all {
		if r.Dir == "" {
			continue
		}
		known, ok := s.sizes[r.Dir]
		if !ok {
			var err error
			if known, err = size(ctx, r.Dir); err != nil {
				return nil, err
			}
			s.sizes[r.Dir] = known
		}
		bytes[r.ID] = known
	}
	return bytes, nil
}

// size returns the bytes that a directory takes on the disk. It leaves out directories that it
// cannot read.
func size(ctx context.Context, dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if entry == nil || err != nil {
			return nil //nolint:nilerr // a mode that a sandbox set, or removed since
		}
		if info, err := entry.Info(); err == nil {
			bytes += blocks(info)
		}
		return nil
	})
	return bytes, err
}
