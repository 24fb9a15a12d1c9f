//go:build linux && amd64

package packaging_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// npmRegistry is verdaccio, a registry of npm, behind a proxy on a loopback address.
type npmRegistry struct {
	url  string
	mu   sync.Mutex
	sent []string    // names of the packages' files that clients fetched
	hold chan string // if it is not nil, a request for a file goes there, and has no answer
}

// verdaccioConfig lets everybody on this machine publish packages, and asks no other registry.
const verdaccioConfig = `storage: ./storage
max_body_size: 200mb
packages:
  "**": { access: $all, publish: $all }
log: { type: stdout, format: json, level: error }
`

// newNPMRegistry starts verdaccio from the directory at, with the Node.js of p, until the end of the test.
func newNPMRegistry(t *testing.T, p *npmProject, at string) *npmRegistry {
	t.Helper()
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(verdaccioConfig), 0o600))
	socket := filepath.Join(p.temporary, "registry.sock")
	cmd := exec.CommandContext(t.Context(), filepath.Join(p.nodes, "node"), filepath.Join(at, "node_modules/verdaccio/bin/verdaccio"), "--config", "config.yaml", "--listen", "unix:"+socket)
	cmd.Dir = dir
	log := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = log, log
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // the error says that it was killed
		if t.Failed() {
			t.Log("verdaccio prints ", log)
		}
	})
	patience.Until(t, "verdaccio listens", func() bool {
		_, err := os.Stat(socket)
		return err == nil
	})
	r := &npmRegistry{}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(request *httputil.ProxyRequest) {
			request.SetURL(&url.URL{Scheme: "http", Host: "registry"})
			request.Out.Host = request.In.Host // its answers have addresses of packages
		},
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if r.note(request) {
			<-request.Context().Done() // until the client ends
			return
		}
		proxy.ServeHTTP(w, request)
	}))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// note notes a request for the file of a package. It reports whether the request is to have no answer.
func (r *npmRegistry) note(request *http.Request) bool {
	name := filepath.Base(request.URL.Path)
	if request.Method != http.MethodGet || filepath.Ext(name) != ".tgz" {
		return false
	}
	r.mu.Lock()
	r.sent = append(r.sent, name)
	hold := r.hold
	r.mu.Unlock()
	if hold == nil || !strings.HasPrefix(name, "linux-x64") {
		return false
	}
	hold <- name
	return true
}

// holding makes requests for the program have no answer. The names of their files go to the channel, which
// is nil when they have answers again.
func (r *npmRegistry) holding(to chan string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hold = to
}

// publish publishes packages as their authors do, all at once. The cache is another one than that of users,
// because npm stores what it publishes there, and would not fetch it.
func (r *npmRegistry) publish(t *testing.T, p *npmProject, npm string, paths []string) {
	t.Helper()
	arguments := []string{
		"publish", "--registry", r.url, "--//" + strings.TrimPrefix(r.url, "http://") + "/:_authToken=any", "--cache", p.temporary + "/authors",
		"--access", "public", "--tag", "latest", "--ignore-scripts",
	}
	var group errgroup.Group
	for _, path := range paths {
		cmd := p.command(t, npm, append(slices.Clone(arguments), path)...)
		group.Go(func() error {
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("npm publish %s: %w\n%s", path, err, out)
			}
			return nil
		})
	}
	must.Do(t, group.Wait())
}

// fetched returns the sorted names of the files that clients fetched.
func (r *npmRegistry) fetched() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(slices.Values(r.sent))
}
