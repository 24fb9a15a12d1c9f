//go:build linux

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/kubetest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
	"github.com/e2bctl/e2bctl/internal/protocol"
)

func TestMain(m *testing.M) {
	if !runChild(os.Stderr) {
		goleak.VerifyTestMain(m)
	}
}

// open opens an engine on the cluster.
func open(t testing.TB, c *kubetest.Cluster, change func(*Options)) *Engine {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(c.Kubeconfig())
	must.Do(t, err)
	o := Options{Config: config, Namespace: c.Namespace, Image: kubetest.Python, ProgramImage: kubetest.Program}
	if change != nil {
		change(&o)
	}
	e, err := Open(t.Context(), o)
	must.Do(t, err)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return e
}

func start(t testing.TB, e *Engine, id string) engine.Sandbox {
	t.Helper()
	begin := time.Now()
	s, err := e.NewSandbox(patience.Context(t), engine.SandboxOptions{ID: id, Config: guest.Config{SandboxID: id}})
	must.Do(t, err)
	t.Logf("sandbox %s was ready after %.2f s", id, time.Since(begin).Seconds())
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close %s: %v", id, err)
		}
	})
	return s
}

// healthy asks envd whether it is well.
func healthy(ctx context.Context, s engine.Sandbox) error {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Dial(ctx, protocol.PortEnvd) }}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://sandbox/health", nil)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("status %d, %q, %w", resp.StatusCode, text, err)
	}
	return nil
}

func TestSandboxes(t *testing.T) {
	kubetest.Need(t)
	c := kubetest.Start(t)
	c.AddImage(t, kubetest.Program)
	c.AddImage(t, kubetest.Python)
	e := open(t, c, nil)

	t.Run("answers", func(t *testing.T) {
		s := start(t, e, "one")
		must.Do(t, healthy(patience.Context(t), s))
		if _, err := s.Dial(t.Context(), 9); !errors.Is(err, engine.ErrPortClosed) {
			t.Errorf("a closed port: %v", err)
		}
		const size = 256 << 20
		begin := time.Now()
		if got := len(run(t, s, fmt.Sprintf("head -c %d /dev/zero", size))); got != size {
			t.Errorf("a command wrote %d bytes, want %d", got, size)
		}
		t.Logf("256 MiB of output after %.1f s", time.Since(begin).Seconds())
		for range 2 {
			must.Do(t, s.Close())
		}
		if _, err := s.Dial(t.Context(), protocol.PortEnvd); !errors.Is(err, engine.ErrGone) {
			t.Errorf("dial after Close: %v", err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for pod, changed := e.watch.pod("sandbox-seven"); pod == nil; pod, changed = e.watch.pod("sandbox-seven") {
				<-changed
			}
			cancel()
		}()
		_, err := e.NewSandbox(ctx, engine.SandboxOptions{ID: "seven"})
		must.Is(t, err, context.Canceled)
		c.AwaitGone(t, "/api/v1/namespaces/"+c.Namespace+"/pods/sandbox-seven")
	})
	t.Run("connects again", func(t *testing.T) {
		s := start(t, e, "two").(*sandbox)
		s.mu.Lock()
		first := s.tunnel
		s.mu.Unlock()
		c.RestartAPIServer(t) // ends every connection through it
		patience.Receive(t, "the tunnel ends with the API server", first.Done())
		must.Do(t, healthy(patience.Context(t), s))
		if err := s.Err(); err != nil {
			t.Errorf("the sandbox has ended: %v", err)
		}
	})
	t.Run("its pod is deleted", func(t *testing.T) {
		s := start(t, e, "three")
		must.Do(t, e.client.Resource(pods).Namespace(c.Namespace).Delete(t.Context(), "sandbox-three", metav1.DeleteOptions{}))
		patience.Receive(t, "the sandbox ends with its pod", s.Done())
		if err := s.Err(); !strings.Contains(err.Error(), "its pod was deleted") {
			t.Errorf("it ended for %v", err)
		}
		if _, err := s.Dial(t.Context(), protocol.PortEnvd); !errors.Is(err, engine.ErrGone) {
			t.Errorf("dial: %v", err)
		}
	})
	t.Run("no such image", func(t *testing.T) {
		e := open(t, c, func(o *Options) { o.Image = "e2bctl.test/none:1" })
		_, err := e.NewSandbox(patience.Context(t), engine.SandboxOptions{ID: "four"})
		if err == nil || !strings.Contains(err.Error(), "e2bctl.test/none:1") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no such runtime class", func(t *testing.T) {
		e := open(t, c, func(o *Options) { o.RuntimeClass = "none" })
		_, err := e.NewSandbox(patience.Context(t), engine.SandboxOptions{ID: "five"})
		if err == nil || !strings.Contains(err.Error(), `RuntimeClass "none" not found`) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a foreign server", func(t *testing.T) {
		s := start(t, e, "six")
		other := open(t, c, nil) // has another key
		conn, err := other.forward(patience.Context(t), "sandbox-six", port)
		must.Do(t, err)
		defer conn.Close()
		if _, err := io.ReadFull(conn, make([]byte, 32)); err != nil {
			t.Fatalf("no challenge: %v", err)
		}
		if _, err := conn.Write(make([]byte, 64)); err != nil {
			t.Fatalf("send a wrong proof: %v", err)
		}
		if rest, _ := io.ReadAll(conn); len(rest) > 0 {
			t.Errorf("it answered %q", rest)
		}
		must.Do(t, healthy(patience.Context(t), s))
	})
	must.Do(t, e.Close())
	c.AwaitGone(t, "/api/v1/namespaces/"+c.Namespace+"/pods/sandbox-two")
	left, err := e.client.Resource(sandboxes).Namespace(c.Namespace).List(t.Context(), metav1.ListOptions{})
	must.Do(t, err)
	if len(left.Items) > 0 {
		t.Errorf("%d objects are left", len(left.Items))
	}
}
