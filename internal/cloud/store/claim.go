package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// own lists the names of files that a directory may contain when it becomes a state directory. A
// directory with any other file cannot become a state directory. A directory that is already a
// store may contain other files.
var own = []string{unfinished, lockFile, published, staging, noted, trash, AllowedFile, "lost+found"}

// claim creates dir if necessary, and closes it to other users. It does not change a directory
// that is neither empty nor a store.
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

// claimable returns an error if a directory is neither a store nor empty. It ignores the names in
// own.
func claimable(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, databaseFile)); !errors.Is(err, fs.ErrNotExist) {
		return err
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

// AllowedFile is the name of a file in the state directory. The file lists hosts about which no
// question is asked. The program that asks the questions uses this file. A store does not read it.
const AllowedFile = "allowed-hosts.json"

// inUse returns the error for a store that another process has open. lock is the lock file, in
// which that process has written its id.
func inUse(dir string, lock *os.File) *InUseError {
	var text [64]byte
	n, _ := lock.ReadAt(text[:], 0)
	pid, namespace, _ := strings.Cut(string(text[:n]), "\n")
	number, _ := strconv.Atoi(strings.TrimSpace(pid)) // 0 if the file contains no id yet
	own, theirs := namespaceOfProcesses(), strings.TrimSpace(namespace)
	if own != "" && theirs != "" && own != theirs {
		return &InUseError{Dir: dir, Elsewhere: true}
	}
	return &InUseError{Dir: dir, PID: number}
}

// namespaceOfProcesses returns the name of this process's PID namespace. Each container has its own
// namespace. If the system has no namespaces, namespaceOfProcesses returns "".
func namespaceOfProcesses() string {
	name, _ := os.Readlink("/proc/self/ns/pid") // exists only on Linux
	return name
}
