//go:build linux && amd64

package packaging_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/internal/must"
)

// npmRegistry is a registry of npm on a loopback address.
type npmRegistry struct {
	url       string
	mu        sync.Mutex
	documents map[string][]byte // descriptions of packages by their names
	tarballs  map[string][]byte // packages by the names of their files
	served    []string          // names of the files that clients fetched
}

// newNPMRegistry serves packages until the end of the test.
func newNPMRegistry(t *testing.T, paths []string) *npmRegistry {
	t.Helper()
	r := &npmRegistry{documents: map[string][]byte{}, tarballs: map[string][]byte{}}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.url = server.URL
	for _, path := range paths {
		content, err := os.ReadFile(path)
		must.Do(t, err)
		file, sum := filepath.Base(path), sha512.Sum512(content)
		about := packageJSON(t, content)
		about["dist"] = map[string]string{"tarball": r.url + "/-/" + file, "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}
		version := about["version"].(string)
		document, err := json.Marshal(map[string]any{
			"name": about["name"], "dist-tags": map[string]string{"latest": version}, "versions": map[string]any{version: about},
		})
		must.Do(t, err)
		r.mu.Lock()
		r.documents[about["name"].(string)], r.tarballs[file] = document, content
		r.mu.Unlock()
	}
	return r
}

// packageJSON returns the package.json, the first file of a package.
func packageJSON(t *testing.T, content []byte) (about map[string]any) {
	t.Helper()
	unpacked, err := gzip.NewReader(bytes.NewReader(content))
	must.Do(t, err)
	archive := tar.NewReader(unpacked)
	_, err = archive.Next()
	must.Do(t, err)
	must.Do(t, json.NewDecoder(archive).Decode(&about))
	return about
}

func (r *npmRegistry) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := strings.TrimPrefix(request.URL.Path, "/")
	body, found := r.documents[name]
	if file, isFile := strings.CutPrefix(name, "-/"); isFile {
		body, found = r.tarballs[file]
		r.served = append(r.served, file)
	}
	if !found {
		http.NotFound(w, request)
		return
	}
	_, _ = w.Write(body) // an error belongs to the client, which reports it
}

// fetched returns the sorted names of the files that clients fetched.
func (r *npmRegistry) fetched() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(slices.Values(r.served))
}
