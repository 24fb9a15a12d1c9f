//go:build linux

package dockertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/e2bctl/e2bctl/internal/cloud/engine/enginetest"
	"github.com/e2bctl/e2bctl/internal/patience"
)

// Daemon is a dockerd with a socket and a data root of its own.
type Daemon struct {
	dir     string
	process *exec.Cmd
	ended   chan struct{} // closed when process has ended
}

// Start starts a daemon whose files are in dir. dir may already contain the files of an earlier
// daemon.
func Start(ctx context.Context, dir string) (*Daemon, error) { return start(ctx, dir, 0) }

// start starts a daemon with namespaces of its own.
func start(ctx context.Context, dir string, namespaces uintptr) (*Daemon, error) {
	d := &Daemon{dir: dir, ended: make(chan struct{})}
	log, err := os.OpenFile(d.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	_ = os.Remove(d.socket()) // of one that was killed
	d.process = exec.CommandContext(context.WithoutCancel(ctx), "dockerd", "--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "exec"),
		"--pidfile", filepath.Join(dir, "pid"), "--host", d.Host(), "--bridge=none", "--iptables=false", "--ip6tables=false")
	_ = os.Remove(filepath.Join(dir, "pid"))
	d.process.Stdout, d.process.Stderr = log, log
	d.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Unshareflags: namespaces}
	if err := d.process.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(d.ended)
		_ = d.process.Wait()
	}()
	ctx, cancel := context.WithTimeout(ctx, patience.Limit) // alone, dockerd takes a quarter of a second
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", d.socket())
		if err == nil {
			conn.Close()
			return d, nil
		}
		select {
		case <-d.ended:
		case <-ctx.Done():
			d.Stop()
		case <-time.After(50 * time.Millisecond):
			continue
		}
		said, _ := os.ReadFile(d.log())
		return nil, fmt.Errorf("dockerd did not start: %w\n%s", err, said[max(0, len(said)-4096):])
	}
}

func (d *Daemon) socket() string { return filepath.Join(d.dir, "docker.sock") }
func (d *Daemon) log() string    { return filepath.Join(d.dir, "log") }

// Host returns the address of the daemon.
func (d *Daemon) Host() string { return "unix://" + d.socket() }

// Docker runs the docker command and returns its output.
func (d *Daemon) Docker(t testing.TB, args ...string) string {
	t.Helper()
	out, err := d.docker(context.WithoutCancel(t.Context()), nil, args...)
	if err != nil {
		t.Fatalf("docker %v: %v", args, err)
	}
	return out
}

// Kill ends the daemon like a crash. The daemon's containers may continue to run.
func (d *Daemon) Kill() {
	_ = d.process.Process.Kill() // fails if it has ended
	<-d.ended
}

// Stop ends the daemon and its containers. It also removes the daemon's mounts, because a killed
// daemon does not remove them.
func (d *Daemon) Stop() {
	d.stop()
	mounts, _ := os.ReadFile("/proc/self/mountinfo") // without the list, no mounts are removed
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], d.dir+"/") {
			_ = syscall.Unmount(fields[4], syscall.MNT_DETACH)
		}
	}
}

func (d *Daemon) stop() {
	_ = d.process.Process.Signal(syscall.SIGTERM) // fails if it has ended
	select {
	case <-d.ended:
	case <-time.After(patience.Limit):
		d.Kill()
	}
}

var shared struct {
	once   sync.Once
	daemon *Daemon
	dir    string
	err    error
}

// Shared returns the daemon that all tests of this program share. The daemon has the image [Image].
// If there is no daemon, Shared fails the test. It skips the test if Docker is not installed,
// except on a CI machine, which should have Docker.
func Shared(t testing.TB) *Daemon {
	t.Helper()
	enginetest.Need(t)
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "e2bctl-docker-"); shared.err != nil { //nolint:usetesting // other tests use it too
			return
		}
		ctx := context.WithoutCancel(t.Context())
		if shared.daemon, shared.err = Start(ctx, shared.dir); shared.err == nil {
			shared.err = shared.daemon.addImage(ctx)
		}
	})
	if shared.err != nil {
		fail(t, shared.err)
	}
	return shared.daemon
}

// Own returns a daemon for one test. The test may kill the daemon. The daemon has the image [Image],
// like the shared daemon.
func Own(t testing.TB, dir string) *Daemon {
	t.Helper()
	return own(t, dir, 0)
}

// Apart returns a daemon for one test. The daemon does not see mounts that are made after its
// start.
func Apart(t testing.TB, dir string) *Daemon {
	t.Helper()
	return own(t, dir, syscall.CLONE_NEWNS)
}

func own(t testing.TB, dir string, namespaces uintptr) *Daemon {
	t.Helper()
	enginetest.Need(t)
	d, err := start(t.Context(), dir, namespaces)
	if err != nil {
		fail(t, err)
	}
	t.Cleanup(d.Stop)
	if err := d.addImage(t.Context()); err != nil {
		fail(t, err)
	}
	return d
}

// fail fails the test. If Docker is not installed, it skips the test, except in CI.
func fail(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, exec.ErrNotFound) && os.Getenv("CI") != "true" {
		t.Skipf("Debian's docker.io and busybox-static are needed: run make deps-engines, which installs them (%v)", err)
	}
	t.Fatal(err)
}

// Ending runs tests and then stops the shared daemon, for TestMain.
type Ending struct{ *testing.M }

// Run runs the tests.
func (e Ending) Run() int {
	defer end()
	return e.M.Run()
}

// end stops the shared daemon and removes its files.
func end() {
	if program.path != "" {
		_ = os.RemoveAll(filepath.Dir(program.path))
	}
	if shared.daemon != nil {
		shared.daemon.Stop()
	}
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir)
	}
}

func (d *Daemon) docker(ctx context.Context, stdin []byte, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "docker", append([]string{"--host", d.Host()}, args...)...)
	if stdin != nil {
		command.Stdin = bytes.NewReader(stdin)
	}
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, stderr.Bytes())
	}
	return string(bytes.TrimSpace(out)), err
}
