//go:build linux

package layer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Names in the directory of a layer.
const (
	manifestName = "layer.json"
	Trees        = "trees"
)

// ErrDamaged means that the directory of a layer has changed since it was written.
var ErrDamaged = errors.New("the layer is damaged")

const version = 1

// Manifest describes the content of a layer.
type Manifest struct {
	Version int    `json:"version"`
	Layout  string `json:"layout"` // the layout of the sandboxes that can use the layer
	// Whole means that there is no other layer below this layer.
	Whole bool `json:"whole,omitempty"`
	// Trees are the paths of the trees in the numbered directories, in order. The first one is "",
	// the root.
	Trees []string `json:"trees"`
}

// Name returns the path of the manifest of the layer in dir.
func Name(dir string) string { return filepath.Join(dir, manifestName) }

// Read reads the manifest of the layer in dir.
func Read(dir string) (m Manifest, err error) {
	name := Name(dir)
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return m, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("%w: %s: %w", ErrDamaged, name, err)
	}
	if m.Version != version {
		return m, fmt.Errorf("%s was made by another version of e2bctl: its format is %d, not %d", dir, m.Version, version)
	}
	if len(m.Trees) == 0 || m.Trees[0] != "" {
		return m, fmt.Errorf("%w: %s: it has no root", ErrDamaged, name)
	}
	for i := range m.Trees {
		info, err := os.Lstat(filepath.Join(dir, Trees, strconv.Itoa(i)))
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is not a directory", info.Name())
		}
		if err != nil {
			return m, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	}
	return m, nil
}

// Write writes the manifest, and so completes the layer in dir. After it returns, the whole layer
// survives a loss of power. A directory without a manifest is not a layer.
func (m Manifest) Write(dir string) error {
	m.Version = version
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	// Syncing each file would take much longer.
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return os.NewSyscallError("syncfs", err)
	}
	f, err := os.OpenFile(Name(dir), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return d.Sync()
}
