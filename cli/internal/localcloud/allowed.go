package localcloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/e2bctl/e2bctl/internal/cloud/store"
)

// AllowedHosts returns the ports of hosts, such as pypi.org:443, that sandboxes of a state
// directory may reach without a question. The result is sorted.
func AllowedHosts(dir string) (hosts []string, err error) {
	path := filepath.Join(dir, store.AllowedFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &hosts); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w; remove it, and the questions come again", path, err)
	}
	slices.Sort(hosts)
	return hosts, nil
}

// AllowHost adds a port of a host, such as pypi.org:443, to [AllowedHosts].
func AllowHost(dir, host string) error {
	hosts, err := AllowedHosts(dir)
	if err != nil || slices.Contains(hosts, host) {
		return err
	}
	return writeAllowed(dir, append(hosts, host))
}

// ForgetHost removes a port of a host from [AllowedHosts]. If host contains no port, it removes all
// ports of that host. It returns the removed entries. If there is nothing to remove, it returns a
// *[NotAllowedError].
func ForgetHost(dir, host string) (forgotten []string, err error) {
	hosts, err := AllowedHosts(dir)
	if err != nil {
		return nil, err
	}
	var left []string
	for _, allowed := range hosts {
		if name, _, err := net.SplitHostPort(allowed); allowed == host || err == nil && name == host {
			forgotten = append(forgotten, allowed)
		} else {
			left = append(left, allowed)
		}
	}
	if forgotten == nil {
		return nil, &NotAllowedError{dir, host}
	}
	return forgotten, writeAllowed(dir, left)
}

// NotAllowedError means that a host or its port is not among the [AllowedHosts] of the state
// directory Dir.
type NotAllowedError struct{ Dir, Host string }

func (e *NotAllowedError) Error() string {
	return fmt.Sprintf("%q is not among the hosts that are always allowed in %s", e.Host, e.Dir)
}

// Hint names the command that lists the hosts.
func (e *NotAllowedError) Hint() string { return "Run e2bctl local ask ls to list them." }

func (e *NotAllowedError) Is(target error) bool { return target == fs.ErrNotExist }

func writeAllowed(dir string, hosts []string) error {
	text, err := json.MarshalIndent(hosts, "", "  ")
	if err != nil {
		return err
	}
	return writeWhole(filepath.Join(dir, store.AllowedFile), append(text, '\n'))
}

// writeWhole writes a file that only this user can read. It replaces the file atomically: a reader
// sees either the old content or the new content.
func writeWhole(path string, text []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // created with mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}
