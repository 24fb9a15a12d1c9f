//go:build linux

package room

import (
	"io/fs"
	"os"
	"sync"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/layer"
)

// manifests is a cache of the manifests of layers that have been used. The cache is useful because
// reading the manifests of a chain of layers takes longer than mounting the chain.
type manifests struct {
	mu    sync.Mutex
	known map[string]knownManifest
}

type knownManifest struct {
	file     fs.FileInfo
	manifest layer.Manifest
}

// maxManifests bounds the number of cached manifests.
const maxManifests = 1000

func (m *manifests) read(dir string) (layer.Manifest, error) {
	file, err := os.Lstat(layer.Name(dir))
	m.mu.Lock()
	defer m.mu.Unlock()
	if known, found := m.known[dir]; found && err == nil && os.SameFile(file, known.file) && file.ModTime().Equal(known.file.ModTime()) {
		return known.manifest, nil
	}
	manifest, failed := layer.Read(dir)
	if err != nil || failed != nil {
		return manifest, failed
	}
	if m.known == nil || len(m.known) >= maxManifests {
		m.known = make(map[string]knownManifest)
	}
	m.known[dir] = knownManifest{file, manifest}
	return manifest, nil
}
