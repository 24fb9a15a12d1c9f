package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// own are the names that a directory may hold which becomes a state directory.
var own = []string{unfinished, lockFile, published, staging, noted, trash, "lost+found"}

// claim makes dir if need be, and a directory of this user alone. One that holds
// something else and no store is left as it is.
func claim(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() || !owned(info) {
		return errors.New("it must be a directory of this user: it holds the files and secrets of sandboxes")
	}
	if err := claimable(dir); err != nil {
		return err
	}
	return closeToOthers(dir, info)
}

// claimable returns an error for a directory that is none of a store and has something
// in it.
func claimable(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, databaseFile)); err == nil {
		return nil
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !slices.Contains(own, name.Name()) {
			return fmt.Errorf("it holds %s, which is not of a state directory: use an empty directory or a new one", name.Name())
		}
	}
	return nil
}

const lockFile = "lock"

// holder returns the process that has locked file, 0 if that is not known.
func holder(file *os.File) int {
	var text [32]byte
	n, _ := file.ReadAt(text[:], 0)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text[:n])))
	return pid
}
