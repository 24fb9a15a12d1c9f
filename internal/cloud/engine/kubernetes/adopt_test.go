//go:build linux

package kubernetes

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/guest"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/kubetest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

var secret = []byte("a secret of servers for tests, of 32 bytes or more")

const private = "tokens and variables"

// recordFor returns the record of a sandbox that lives for a time.
func recordFor(life time.Duration) engine.Record {
	now := time.Now().UTC()
	return engine.Record{
		Template: "base", Metadata: map[string]string{"user": "Zoë", "": "-"}, StartedAt: now, EndAt: now.Add(life), Linger: time.Hour,
		Sealed: []byte(private),
	}
}

// serverVariable makes this program a server that is killed: its value is a childServer.
const serverVariable = "E2BCTL_TEST_SERVER"

type childServer struct {
	Kubeconfig, Namespace, ID string
	Keeps                     bool          // it stores a record
	Lease                     time.Duration // see Options
	Pauses                    bool          // it has homes, and pauses the sandbox that it keeps
}

// serve starts a sandbox, writes its record, and waits for its end by a signal. It may also pause the
// sandbox, and does not store the record of the pause.
func (c childServer) serve(ctx context.Context) error {
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(c.Kubeconfig))
	if err != nil {
		return err
	}
	o := Options{Config: config, Namespace: c.Namespace, Image: kubetest.Python, ProgramImage: kubetest.Program, Secret: secret, lease: c.Lease}
	if c.Pauses {
		o.HomeBytes = 16 << 20
	}
	e, err := Open(ctx, o)
	if err != nil {
		return err
	}
	s, err := e.NewSandbox(ctx, engine.SandboxOptions{ID: c.ID, Config: guest.Config{SandboxID: c.ID}})
	if err != nil {
		return err
	}
	if r := recordFor(time.Hour); c.Keeps {
		if err := errors.Join(s.(engine.Lasting).Keep(ctx, r), json.NewEncoder(os.Stdout).Encode(r)); err != nil {
			return err
		}
	}
	if c.Pauses {
		return s.Freeze(ctx)
	}
	select {}
}

// shortLease is how long an object without a record outlives a killed server in these tests.
const shortLease = 4 * time.Second

// startServer starts a server in a process of its own. kill kills it.
func startServer(t *testing.T, c *kubetest.Cluster, id string, keeps bool) (out *bufio.Reader, kill func()) {
	t.Helper()
	return childServer{Kubeconfig: string(c.Kubeconfig()), Namespace: c.Namespace, ID: id, Keeps: keeps, Lease: shortLease}.start(t)
}

// start starts the server.
func (c childServer) start(t *testing.T) (out *bufio.Reader, kill func()) {
	t.Helper()
	text, err := json.Marshal(c)
	must.Do(t, err)
	own, err := os.Executable()
	must.Do(t, err)
	cmd := exec.CommandContext(patience.Context(t), own)
	cmd.Env, cmd.Stderr = append(os.Environ(), serverVariable+"="+string(text)), os.Stderr
	stdout, err := cmd.StdoutPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	return bufio.NewReader(stdout), kill
}

// adopting opens an engine with the secret, and returns the sandboxes that it finds.
func adopting(t *testing.T, c *kubetest.Cluster) (*Engine, <-chan engine.Found) {
	t.Helper()
	e := open(t, c, func(o *Options) { o.Secret = secret })
	all := make(chan engine.Found, 100)
	begin := time.Now()
	must.Do(t, e.Adopt(t.Context(), func(f engine.Found) { all <- f }))
	t.Logf("adopted after %v", time.Since(begin))
	return e, all
}

// adopted returns the next sandbox that was found.
func adopted(t *testing.T, all <-chan engine.Found, id string, want engine.Record) engine.Lasting {
	t.Helper()
	f := patience.Receive(t, "the sandbox is found", all)
	if f.ID != id || !f.Record.Equal(want) {
		t.Fatalf("found %+v, want %s with %+v", f, id, want)
	}
	s, err := f.Open(engine.SandboxOptions{ID: id, Config: guest.Config{SandboxID: id}})
	must.Do(t, err)
	return s
}

func (c childServer) path() string {
	return "/apis/agents.x-k8s.io/v1beta1/namespaces/" + c.Namespace + "/sandboxes/sandbox-" + c.ID
}

// TestAdopts checks on a cluster that sandboxes outlive their server.
func TestAdopts(t *testing.T) {
	kubetest.Need(t)
	c := kubetest.Start(t)
	c.AddImage(t, kubetest.Program)
	c.AddImage(t, kubetest.Python)
	path := func(id string) string { return childServer{Namespace: c.Namespace, ID: id}.path() }
	podPath := func(id string) string { return "/api/v1/namespaces/" + c.Namespace + "/pods/sandbox-" + id }
	// lives makes a sandbox with a process and a file, and returns the check that both are there.
	lives := func(t *testing.T, s engine.Sandbox) func(engine.Sandbox) {
		t.Helper()
		pid := run(t, s, "echo unsaved >/tmp/file; sleep 10000 >/dev/null 2>&1 & echo $!")
		return func(s engine.Sandbox) {
			t.Helper()
			begin := time.Now()
			if got := run(t, s, "kill -0 "+pid+" && cat /tmp/file"); got != "unsaved" {
				t.Errorf("after its adoption it says %q", got)
			}
			t.Logf("it answered after %v", time.Since(begin))
		}
	}

	t.Run("its server closes", func(t *testing.T) {
		e := open(t, c, func(o *Options) { o.Secret = secret })
		s, want := start(t, e, "closes").(engine.Lasting), recordFor(time.Hour)
		if r, _ := s.Kept(); !r.StartedAt.IsZero() {
			t.Errorf("it has a record before the first one: %+v", r)
		}
		must.Do(t, s.Keep(t.Context(), want))
		check := lives(t, s)
		var object kubetest.Object
		must.Do(t, c.Call(t.Context(), "GET", path("closes"), nil, &object))
		if text, err := json.Marshal(object); err != nil || strings.Contains(string(text), private) {
			t.Errorf("the object has the sealed part in clear, or %v", err)
		}
		must.Do(t, e.Close())
		must.Is(t, s.Err(), engine.ErrClosed)
		foreign := open(t, c, func(o *Options) { o.Secret = append([]byte("another"), secret...) })
		must.Do(t, foreign.Adopt(t.Context(), func(f engine.Found) { t.Errorf("a server with another secret found %+v", f) }))
		must.Do(t, foreign.Close())
		_, all := adopting(t, c)
		s = adopted(t, all, "closes", want)
		check(s)
		must.Do(t, s.Close())
		c.AwaitGone(t, path("closes"))
		c.AwaitGone(t, podPath("closes"))
	})
	t.Run("its server is killed", func(t *testing.T) {
		out, kill := startServer(t, c, "killed", true)
		line, err := out.ReadBytes('\n')
		must.Do(t, err)
		var want engine.Record
		must.Do(t, json.Unmarshal(line, &want))
		kill()
		e, all := adopting(t, c)
		s := adopted(t, all, "killed", want)
		check := lives(t, s)
		must.Do(t, e.Close())
		_, all = adopting(t, c)
		s = adopted(t, all, "killed", want)
		check(s)
		must.Do(t, s.Close())
		c.AwaitGone(t, path("killed"))
	})
	t.Run("its server is killed while it is created", func(t *testing.T) {
		_, kill := startServer(t, c, "creating", false)
		c.Await(t, "the object", path("creating"), func(kubetest.Object) bool { return true })
		kill()
		_, all := adopting(t, c)
		c.AwaitGone(t, path("creating"))
		c.AwaitGone(t, podPath("creating"))
		select {
		case f := <-all:
			t.Errorf("found %+v", f)
		default:
		}
	})
	t.Run("two servers", func(t *testing.T) {
		a, _ := adopting(t, c)
		_, all := adopting(t, c)
		first := start(t, a, "both").(engine.Lasting)
		want := recordFor(time.Hour)
		must.Do(t, first.Keep(t.Context(), want))
		check := lives(t, first)
		second := adopted(t, all, "both", want)
		for range 3 {
			check(first)
			check(second)
		}
		_, changed := first.Kept()
		want.EndAt, want.Metadata = want.EndAt.Add(time.Hour), maps.Clone(want.Metadata)
		want.Metadata["more"] = "yes"
		must.Do(t, second.Keep(t.Context(), want))
		patience.Receive(t, "the other server sees the change", changed)
		if r, _ := first.Kept(); !r.Equal(want) {
			t.Errorf("the other server has %+v, want %+v", r, want)
		}
		must.Do(t, second.Close())
		patience.Receive(t, "the other server sees the end", first.Done())
		must.Is(t, first.Err(), engine.ErrElsewhere)
		must.Is(t, first.Keep(t.Context(), want), engine.ErrGone)
		c.AwaitGone(t, podPath("both"))
	})
	t.Run("its pod comes back empty", func(t *testing.T) {
		e := open(t, c, func(o *Options) { o.Secret = secret })
		s, want := start(t, e, "empty").(engine.Lasting), recordFor(time.Hour)
		must.Do(t, s.Keep(t.Context(), want))
		uid := string(s.(lasting).uid)
		must.Do(t, e.Close())
		must.Do(t, e.client.Resource(pods).Namespace(c.Namespace).Delete(t.Context(), "sandbox-empty", metav1.DeleteOptions{}))
		patience.Until(t, "another pod", func() bool {
			pod, err := e.client.Resource(pods).Namespace(c.Namespace).Get(t.Context(), "sandbox-empty", metav1.GetOptions{})
			return err == nil && string(pod.GetUID()) != uid
		})
		_, all := adopting(t, c)
		s = adopted(t, all, "empty", want)
		patience.Receive(t, "its end", s.Done())
		must.Is(t, s.Err(), errReplaced)
		c.AwaitGone(t, path("empty"))
	})
	t.Run("its time is over without a server", func(t *testing.T) {
		e := open(t, c, func(o *Options) { o.Secret = secret })
		s, r := start(t, e, "over").(engine.Lasting), recordFor(2*time.Second)
		r.Linger = 0
		must.Do(t, s.Keep(t.Context(), r))
		must.Do(t, e.Close())
		c.AwaitGone(t, path("over"))
		c.AwaitGone(t, podPath("over"))
	})
}

// runChild runs this program as a server if it was started as one.
func runChild(out io.Writer) bool {
	text := os.Getenv(serverVariable)
	if text == "" {
		return false
	}
	var c childServer
	err := json.Unmarshal([]byte(text), &c)
	if err == nil {
		err = c.serve(context.Background())
	}
	_, _ = fmt.Fprintln(out, err)
	return true
}
