//go:build linux

package docker_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/e2bctl/e2bctl/internal/cloud/engine"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker"
	"github.com/e2bctl/e2bctl/internal/cloud/engine/docker/dockertest"
	"github.com/e2bctl/e2bctl/internal/must"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// serverVariable makes this test program a server with two sandboxes, one of them frozen: it
// has the address of the daemon.
const serverVariable = "E2BCTL_TEST_DOCKER_SERVER"

func serve(host string) {
	err := func() error {
		e, err := docker.Open(context.Background(), docker.Options{Host: host, Image: dockertest.Bare, Binary: os.Getenv("E2BCTL_TEST_PROGRAM")})
		if err != nil {
			return err
		}
		own := e.(*docker.Engine)
		if err := own.Load(context.Background(), digest, archiveOf(own, digest, 0)); err != nil {
			return err
		}
		for _, id := range []string{"running", "frozen"} {
			s, err := e.NewSandbox(context.Background(), engine.SandboxOptions{ID: id})
			if err != nil {
				return err
			}
			if id == "frozen" {
				if err := s.Freeze(context.Background()); err != nil {
					return err
				}
			}
		}
		return nil
	}()
	fmt.Fprintln(os.Stdout, "started", err)
	select {}
}

// startServer starts such a server.
func startServer(t *testing.T, d *dockertest.Daemon) *exec.Cmd {
	t.Helper()
	command := exec.CommandContext(t.Context(), "/proc/self/exe")
	command.Env = append(os.Environ(), serverVariable+"="+d.Host(), "E2BCTL_TEST_PROGRAM="+dockertest.Program(t))
	out, err := command.StdoutPipe()
	must.Do(t, err)
	must.Do(t, command.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if strings.TrimSpace(line) != "started <nil>" {
		_ = command.Process.Kill()
		_ = command.Wait()
		t.Fatalf("the server says %q, %v", line, err)
	}
	return command
}

// awaitContainers waits until what docker ps prints of all containers is want.
func awaitContainers(t *testing.T, d *dockertest.Daemon, want string) {
	t.Helper()
	var got string
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("at last, docker ps --all printed %q", got)
		}
	})
	patience.Until(t, fmt.Sprintf("docker ps --all prints %q", want), func() bool {
		got = d.Docker(t, "ps", "--all", "--format", `{{.Label "e2bctl.sandbox"}} {{.State}}`)
		return got == want
	})
}

// TestKilledServer checks that no container continues to run when a server was killed, and that
// the next engine removes frozen ones.
func TestKilledServer(t *testing.T) {
	t.Parallel()
	d := dockertest.Own(t, t.TempDir())
	command := startServer(t, d)
	must.Do(t, command.Process.Kill())
	_ = command.Wait()
	awaitContainers(t, d, "frozen paused")
	if got := images(t, d); got != digest {
		t.Errorf("the daemon has the images %q, want that of the server", got)
	}
	open(t, docker.Options{Host: d.Host()})
	awaitContainers(t, d, "")
	if got := images(t, d); got != "" {
		t.Errorf("the daemon has %q of a server that has ended", got)
	}
}

// TestKilledDaemon checks that a daemon that was killed, and started again, is left with
// nothing of the sandboxes that it had, and that the engine continues to use it.
func TestKilledDaemon(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := dockertest.Own(t, dir)
	e := open(t, docker.Options{Host: d.Host(), Image: dockertest.Bare})
	s := start(t, e, engine.SandboxOptions{ID: "first"})
	server := startServer(t, d)
	d.Kill()
	<-s.Done()
	if err := s.Err(); err == nil || errors.Is(err, engine.ErrClosed) {
		t.Errorf("got %v, want why the sandbox ended", err)
	}
	if _, err := e.NewSandbox(t.Context(), options(t, engine.SandboxOptions{ID: "none"})); err == nil {
		t.Error("a sandbox started without a daemon")
	}
	_ = server.Process.Kill()
	_ = server.Wait()
	again, err := dockertest.Start(t.Context(), dir)
	must.Do(t, err)
	t.Cleanup(again.Stop)
	second := start(t, e, engine.SandboxOptions{ID: "second"})
	if got := run(t, second, "echo again"); got != "again" {
		t.Errorf("the next sandbox says %q", got)
	}
	open(t, docker.Options{Host: again.Host()})
	awaitContainers(t, again, "second running")
	if err := e.Close(); err != nil { // before the daemon ends, which removes the container
		t.Errorf("close the engine: %v", err)
	}
}

// TestNoDaemon checks that the error names the places tried and the remedy.
func TestNoDaemon(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for _, name := range []string{"DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG"} {
		t.Setenv(name, "")
	}
	missing := "unix://" + filepath.Join(t.TempDir(), "none.sock")
	check := func(what string, o docker.Options, wants ...string) {
		t.Helper()
		_, err := docker.Open(t.Context(), o)
		if !errors.Is(err, docker.ErrNoDaemon) {
			t.Errorf("%s: got %v, want no daemon", what, err)
			return
		}
		for _, want := range append(wants, "to mend it: install") {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want it to name %q", what, err, want)
			}
		}
	}
	check("asked for", docker.Options{Host: missing}, missing, "asked for", "no such file")
	t.Setenv("DOCKER_HOST", missing)
	check("in the environment", docker.Options{}, missing, "DOCKER_HOST")
	t.Setenv("DOCKER_HOST", "")
	dir := t.TempDir()
	t.Setenv("DOCKER_CONFIG", dir)
	must.Do(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"currentContext":"far"}`), 0o600))
	if _, err := docker.Open(t.Context(), docker.Options{}); !errors.Is(err, docker.ErrNoDaemon) || !strings.Contains(err.Error(), `the context "far"`) {
		t.Errorf("a context that is not there: got %v", err)
	}
}

// TestNoImage checks that the error names the image and the remedy.
func TestNoImage(t *testing.T) {
	t.Parallel()
	_, err := open(t, docker.Options{Image: "localhost:1/none:7"}).NewSandbox(t.Context(), options(t, engine.SandboxOptions{}))
	if err == nil || !strings.Contains(err.Error(), "does not have the image localhost:1/none:7") || !strings.Contains(err.Error(), "docker pull localhost:1/none:7") {
		t.Errorf("got %v, want an error that names the image", err)
	}
	e := open(t, docker.Options{Image: "No Image"})
	if _, err := e.NewSandbox(t.Context(), options(t, engine.SandboxOptions{})); err == nil {
		t.Error("a name that is none was taken")
	}
	asked := &engine.Image{Reference: "localhost/gone:1", Digest: "sha256:12"}
	if _, err := e.NewSandbox(t.Context(), options(t, engine.SandboxOptions{Image: asked})); err == nil || !strings.Contains(err.Error(), "does not have the image localhost/gone:1 (sha256:12) of the template") {
		t.Errorf("the image of a template: got %v, want an error that names it", err)
	}
}

// TestMany starts sandboxes at once and closes them twice.
func TestMany(t *testing.T) {
	t.Parallel()
	e := open(t, docker.Options{Image: dockertest.Bare})
	var all sync.WaitGroup
	for i := range 10 {
		o := options(t, engine.SandboxOptions{ID: fmt.Sprintf("many-%d", i)})
		all.Go(func() {
			s, err := e.NewSandbox(t.Context(), o)
			if err != nil {
				t.Error(err)
				return
			}
			if got, err := try(t, s, "user", "hostname"); err != nil || got != o.ID {
				t.Errorf("got %q, %v, want %s", got, err, o.ID)
			}
			for range 2 {
				if err := s.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			}
			<-s.Done()
			if err := s.Err(); !errors.Is(err, engine.ErrClosed) {
				t.Errorf("got %v, want closed", err)
			}
			if _, err := s.Dial(t.Context(), 49983); !errors.Is(err, engine.ErrGone) {
				t.Errorf("dial: got %v, want gone", err)
			}
		})
	}
	all.Wait()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	<-e.Done()
	if _, err := e.NewSandbox(t.Context(), options(t, engine.SandboxOptions{})); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("got %v, want closed", err)
	}
}
