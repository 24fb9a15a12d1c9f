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

// own are the names that a directory without a store may hold, and still become a state
// directory.
var own = []string{unfinished, lockFile, published, staging, noted, trash, AllowedFile, "lost+found"}

// claim makes dir if necessary, and closes it to other users. It leaves a directory alone that
// is neither empty nor a store.
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

// claimable returns an error if a directory is neither a store nor empty.
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

// AllowedFile is the file of a state directory with the hosts that need no question. It is for
// the program that asks: a store does not read it.
const AllowedFile = "allowed-hosts.json"

// inUse returns the error of a store whose lock another process has written to.
func inUse(dir string, lock *os.File) *InUseError {
	var text [64]byte
	n, _ := lock.ReadAt(text[:], 0)
	pid, namespace, _ := strings.Cut(string(text[:n]), "\n")
	number, _ := strconv.Atoi(strings.TrimSpace(pid)) // 0 if the file has none yet
	own, theirs := namespaceOfProcesses(), strings.TrimSpace(namespace)
	if own != "" && theirs != "" && own != theirs {
		return &InUseError{Dir: dir, Elsewhere: true}
	}
	return &InUseError{Dir: dir, PID: number}
}

// namespaceOfProcesses names the namespace of this process's id: this container's; "": there
// are no namespaces.
func namespaceOfProcesses() string {
	name, _ := os.Readlink("/proc/self/ns/pid") // only Linux has it
	return name
}
