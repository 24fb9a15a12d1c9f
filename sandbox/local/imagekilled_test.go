//go:build linux

package local_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/e2bctl/e2bctl/internal/clienttest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/room/imagetest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/sandbox"
	"github.com/e2bctl/e2bctl/sandbox/local"
)

// serveVariable makes the test binary run serveState.
const serveVariable = "E2BCTL_TEST_SERVE_STATE"

// serveState starts a cloud with a state directory, writes its address and key to w, and serves until
// the process is killed.
func serveState(w io.Writer, dir string) error {
	cloud, err := local.Start(context.Background(), local.WithWarm(0), local.WithStateDir(dir))
	if err != nil {
		return err
	}
	fmt.Fprintln(w, cloud.URL(), string(cloud.APIKey()))
	<-cloud.Done()
	return cloud.Err()
}

// serveKillable starts a process with a cloud, which kill ends by SIGKILL.
func serveKillable(t *testing.T, state string) (client *sandbox.Client, kill func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), serveVariable+"="+state)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	kill = sync.OnceFunc(func() {
		must.Do(t, cmd.Process.Kill())
		_ = cmd.Wait() // its error is the signal
	})
	t.Cleanup(kill)
	var url, key string
	_, err = fmt.Fscan(out, &url, &key)
	must.Do(t, err)
	client, err = sandbox.NewClient(sandbox.WithAPIURL(url), sandbox.WithSandboxURL(url), sandbox.WithAPIKey(sandbox.Key(key)), sandbox.WithMaxRetries(0))
	must.Do(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client, kill
}

// stallingRegistry is a registry whose images have a layer that stops in the middle.
type stallingRegistry struct {
	url     string
	begun   chan string // receives the path of each layer that has stopped
	release chan struct{}

	mu     sync.Mutex
	stalls map[string][]byte // contents of the layers that stop, by the end of their paths
}

func newStallingRegistry(t *testing.T) *stallingRegistry {
	t.Helper()
	r := &stallingRegistry{begun: make(chan string, 100), release: make(chan struct{}), stalls: map[string][]byte{}}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		content := r.stalls[filepath.Base(q.URL.Path)]
		r.mu.Unlock()
		if q.Method != http.MethodGet || content == nil {
			inner.ServeHTTP(w, q)
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		half := len(content) / 2
		_, _ = w.Write(content[:half]) // if it fails, the client is gone
		_ = http.NewResponseController(w).Flush()
		r.begun <- q.URL.Path
		select {
		case <-r.release:
			_, _ = w.Write(content[half:])
		case <-q.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	r.url = strings.TrimPrefix(server.URL, "http://")
	return r
}

// push adds an image with a shell, and with a file /big of 1 MiB in the layer that stops.
func (r *stallingRegistry) push(t *testing.T, path string) (reference string) {
	t.Helper()
	root, big := t.TempDir(), make([]byte, 1<<20)
	must.Do(t, imagetest.Busybox(t, root, "sh", "wc"))
	_, _ = rand.NewChaCha8([32]byte([]byte(fmt.Sprintf("%32s", path)))).Read(big)
	var shell, file bytes.Buffer
	w := tar.NewWriter(&shell)
	must.Do(t, w.AddFS(os.DirFS(root)))
	must.Do(t, w.Close())
	w = tar.NewWriter(&file)
	must.Do(t, w.WriteHeader(&tar.Header{Name: "big", Mode: 0o644, Size: int64(len(big))}))
	_, err := w.Write(big)
	must.Do(t, err)
	must.Do(t, w.Close())
	last := static.NewLayer(file.Bytes(), types.OCIUncompressedLayer)
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH})
	must.Do(t, err)
	img, err = mutate.AppendLayers(img, static.NewLayer(shell.Bytes(), types.OCIUncompressedLayer), last)
	must.Do(t, err)
	reference = r.url + "/" + path
	ref, err := name.ParseReference(reference)
	must.Do(t, err)
	must.Do(t, remote.Write(ref, img, remote.WithTransport(clienttest.New(t).Transport)))
	digest, err := last.Digest()
	must.Do(t, err)
	r.mu.Lock()
	r.stalls[digest.String()] = file.Bytes()
	r.mu.Unlock()
	return reference
}

// creations starts 30 creations of an image, 20 of them with a context of their own.
func creations(ctx, gone context.Context, client *sandbox.Client, reference string) (wait func() []error) {
	all := make([]error, 30)
	var group sync.WaitGroup
	for i := range all {
		of := ctx
		if i < 20 {
			of = gone
		}
		group.Go(func() {
			sb, err := client.Create(of, sandbox.WithImage(reference))
			if err == nil { // the sandbox ends with the cloud
				err = errors.Join(hasFile(of, sb), sb.Detach())
			}
			all[i] = err
		})
	}
	return func() []error { group.Wait(); return all }
}

// hasFile returns an error if a sandbox does not have the whole file of its image.
func hasFile(ctx context.Context, sb *sandbox.Sandbox) error {
	got, err := sb.Commands.Run(ctx, "wc -c </big", nil)
	if err == nil && strings.TrimSpace(got.Stdout) != "1048576" {
		err = fmt.Errorf("got %+v, want the file of the image", got)
	}
	return err
}

// TestImageFetchKilled checks that a fetch continues for the callers that still wait for it, and that
// nothing of a fetch is left when the server is killed in the middle of it.
func TestImageFetchKilled(t *testing.T) {
	t.Parallel()
	ctx, state := patience.Context(t), filepath.Join(t.TempDir(), "state")
	one, other := newStallingRegistry(t), newStallingRegistry(t)
	first, second := one.push(t, "first"), other.push(t, "second")
	client, kill := serveKillable(t, state)

	gone, leave := context.WithCancel(ctx)
	wait := creations(ctx, gone, client, first)
	patience.Receive(t, "half of a layer", one.begun)
	leave()
	close(one.release)
	for i, err := range wait() {
		if left := i < 20; left {
			must.Is(t, err, context.Canceled)
		} else {
			must.Do(t, err)
		}
	}
	// The client ends those that were made for a caller who had left, as soon as it has an answer.
	patience.Until(t, "one sandbox is there for each caller that waited", func() bool {
		sandboxes := 0
		for _, err := range client.List(ctx, nil) {
			must.Do(t, err)
			sandboxes++
		}
		return sandboxes == 10
	})
	if len(one.begun) > 0 {
		t.Errorf("there are %d more fetches, want one for all callers", len(one.begun))
	}

	wait = creations(ctx, ctx, client, second)
	patience.Receive(t, "half of a layer", other.begun)
	if left := unfinished(state); len(left) == 0 {
		t.Errorf("the fetch has no files in %s, so this test proves nothing", state)
	}
	kill()
	for _, err := range wait() {
		if err == nil {
			t.Error("a sandbox was created of half an image")
		}
	}
	close(other.release)
	cloud, err := local.Start(ctx, local.WithWarm(0), local.WithStateDir(state))
	must.Do(t, err)
	defer func() { must.Do(t, cloud.Close()) }()
	patience.Until(t, "nothing unfinished is left", func() bool { return len(unfinished(state)) == 0 })
	again, err := sandbox.NewClient(cloud.Option())
	must.Do(t, err)
	defer again.Close()
	for _, reference := range []string{first, second} {
		sb, err := again.Create(ctx, sandbox.WithImage(reference))
		must.Do(t, err)
		must.Do(t, hasFile(ctx, sb))
		must.Do(t, sb.Close())
	}
	if whole, half := len(one.begun), len(other.begun); whole != 0 || half != 1 {
		t.Errorf("%d whole layers and %d others were fetched again, want only the one that was not whole", whole, half)
	}
}

// unfinished returns the files and directories of a state directory that are not complete.
func unfinished(state string) (names []string) {
	for _, dir := range []string{"new", "trash"} {
		found, _ := filepath.Glob(filepath.Join(state, dir, "*"))
		names = append(names, found...)
	}
	return names
}
