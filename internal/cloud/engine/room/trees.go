//go:build linux

package room

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
)

// systemTrees are patterns of host directories that exist in every sandbox. They contain programs
// and libraries, their alternatives, the configuration of fonts, of Java and of R, the certificates
// that the machine trusts, and the list of packages.
var systemTrees = []string{
	"/usr", "/etc/alternatives", "/etc/fonts", "/etc/java-*-openjdk", "/etc/R", "/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust", "/etc/ca-certificates/extracted", guest.PackageTree,
}

// hostTrees are the directories of the host that sandboxes show.
type hostTrees struct {
	paths    []string
	system   int               // the number of the first elements of paths that belong to the system
	links    map[string]string // the symbolic links at the root
	private  private           // files of the trees to hide
	mappings mappings
}

// planTrees resolves the trees of a sandbox: first the system trees, then the requested trees. No
// tree is inside another. links are the symbolic links at the root.
func planTrees(asked []string) (trees []string, system int, links map[string]string, err error) {
	links = make(map[string]string)
	var candidates []string
	for _, pattern := range systemTrees {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, 0, nil, err
		}
		candidates = append(candidates, found...)
	}
	for _, name := range guest.RootLinks {
		info, err := os.Lstat(name)
		if err != nil {
			continue // the host does not have it
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			candidates = append(candidates, name)
			continue
		}
		target, err := os.Readlink(name)
		if err != nil {
			return nil, 0, nil, err
		}
		links[name] = target
	}
	for _, path := range candidates {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			trees = append(trees, path)
		}
	}
	system = len(trees)
	more := make([]string, 0, len(asked))
	for _, path := range asked {
		if err := checkTree(path); err != nil {
			return nil, 0, nil, fmt.Errorf("tree %q: %w", path, err)
		}
		more = append(more, filepath.Clean(path))
	}
	sort.Strings(more) // a directory sorts before its content
	for _, path := range more {
		if !within(path, trees) {
			trees = append(trees, path)
		}
	}
	return trees, system, links, nil
}

// leaveOut removes trees that sandboxes of this room cannot enter.
func (t *hostTrees) leaveOut(hidden []string) {
	shown := make([]string, 0, len(t.paths))
	system := 0
	for i, path := range t.paths {
		if slices.Contains(hidden, path) {
			continue
		}
		if shown = append(shown, path); i < t.system {
			system++
		}
	}
	t.paths, t.system = shown, system
}

func within(path string, trees []string) bool {
	for _, t := range trees {
		if path == t || strings.HasPrefix(path, t+"/") {
			return true
		}
	}
	return false
}

// checkTree refuses trees that would give access to more of the host than a directory of programs,
// or would hide the sandbox's own files at that path.
func checkTree(path string) error {
	clean := filepath.Clean(path)
	if !filepath.IsAbs(clean) {
		return errors.New("not an absolute path")
	}
	for _, d := range guest.Directories {
		if clean == d.Path && clean != "/usr" {
			return errors.New("is a directory of the sandbox's own")
		}
	}
	for _, top := range []string{"/proc", "/sys", "/dev"} {
		if within(clean, []string{top}) {
			return errors.New("is not on a disk")
		}
	}
	if clean == "/" {
		return errors.New("is the whole host")
	}
	info, err := os.Stat(clean)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return errors.New("not a directory")
	}
	return nil
}
